"""Areas against brute force: places and paths, filters and the areas they touch, boxes and their fewest filters."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.errors import UsageError
from metromq.protocol.topics.areas import (
    Box,
    all_areas,
    area_at,
    area_of,
    areas_touched,
    areas_within,
    box_of,
    centre_of,
    cover,
    reaches_beyond_areas,
)

CITY = Box(south=35.0, west=139.0, north=36.0, east=140.0)
UNIT = Box(south=0.0, west=0.0, north=1.0, east=1.0)


def matches(topic_filter: str, topic: str) -> bool:
    """The standard's rule, written as plainly as possible."""
    wanted, names = topic_filter.split("/"), topic.split("/")
    for position, name in enumerate(wanted):
        if name == "#":
            return True
        if position >= len(names) or name not in ("+", names[position]):
            return False
    return len(wanted) == len(names)


def test_quarters_are_numbered_as_the_letter_z_is_written() -> None:
    assert area_at(CITY, 35.9, 139.1, 1) == "0"
    assert area_at(CITY, 35.9, 139.9, 1) == "1"
    assert area_at(CITY, 35.1, 139.1, 1) == "2"
    assert area_at(CITY, 35.1, 139.9, 1) == "3"
    assert area_at(CITY, 35.99, 139.51, 3) == "1/0/0"


def test_a_place_outside_the_city_is_refused() -> None:
    with pytest.raises(UsageError, match="outside the city"):
        area_at(CITY, 34.0, 139.5, 2)
    with pytest.raises(UsageError, match="no area"):
        box_of(CITY, "1/x")


@given(st.floats(35, 36), st.floats(139, 140), st.integers(1, 8))
@settings(max_examples=200)
def test_an_area_holds_the_places_that_lead_to_it(latitude: float, longitude: float, level: int) -> None:
    area = area_at(CITY, latitude, longitude, level)
    assert box_of(CITY, area).holds(latitude, longitude)
    assert area_at(CITY, *centre_of(CITY, area), level) == area
    assert area_at(CITY, latitude, longitude, level + 1).startswith(area)


def test_topics_belong_to_one_area() -> None:
    assert area_of("1/0/2/1/2/temperature", 2) == "1/0"
    assert area_of("1/weather", 2) == "1/0"
    assert area_of("1", 3) == "1/0/0"
    assert area_of("kitchen/1/0", 2) is None
    assert area_of("4/0", 2) is None
    assert areas_within("2", 2) == ("2/0", "2/1", "2/2", "2/3")
    assert areas_within("2/1", 2) == ("2/1",)


NAMES = st.sampled_from(["0", "1", "2", "3", "t", ""])
TOPICS = st.lists(NAMES, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(["0", "1", "3", "+", "t"]), min_size=0, max_size=4))
    if not names or draw(st.booleans()):
        names.append("#")
    return "/".join(names)


def test_filters_of_the_paper() -> None:
    assert areas_touched("1/+/2/#", 2) == ("1/0", "1/1", "1/2", "1/3")
    assert areas_touched("+/temperature", 2) == ("0/0", "1/0", "2/0", "3/0")
    assert areas_touched("#", 2) == all_areas(2)
    assert areas_touched("1/0/2/+/+/temperature", 2) == ("1/0",)
    assert areas_touched("kitchen/#", 2) == ()
    assert not reaches_beyond_areas("1/+/2/#")
    assert reaches_beyond_areas("+/temperature")


@given(filters(), TOPICS, st.integers(1, 3))
@settings(max_examples=500)
def test_a_filter_touches_the_area_of_every_topic_it_matches(topic_filter: str, topic: str, level: int) -> None:
    if not matches(topic_filter, topic):
        return
    area = area_of(topic, level)
    if area is None:
        assert reaches_beyond_areas(topic_filter)
    else:
        assert area in areas_touched(topic_filter, level)


@given(filters(), st.integers(1, 2))
@settings(max_examples=200)
def test_a_filter_touches_no_area_without_reason(topic_filter: str, level: int) -> None:
    names = ["0", "1", "2", "3", "t", "x"]
    topics = ["/".join(path) for size in range(1, 6) for path in product(names[: 6 if size < 4 else 5], repeat=size)]
    reached = {area_of(topic, level) for topic in topics if matches(topic_filter, topic)}
    assert set(areas_touched(topic_filter, level)) == reached - {None}


def patterns(level: int) -> dict[str, frozenset[str]]:
    """Every filter of digits and `+`, and the cells it covers."""
    cells = all_areas(level)
    found: dict[frozenset[str], str] = {}
    for size in range(level + 1):
        for path in product("0123+", repeat=size):
            text = "/".join((*path, "#"))
            found.setdefault(frozenset(cell for cell in cells if matches(text, cell)), text)
    return {text: covered for covered, text in found.items()}


def fewest(cells: frozenset[str], choices: dict[str, frozenset[str]], limit: int) -> int:
    """The size of the smallest choice of filters whose union is the cells, by trying every choice."""
    usable = [covered for covered in choices.values() if covered <= cells]
    for size in range(1, limit + 1):
        for chosen in combinations(usable, size):
            if frozenset().union(*chosen) == cells:
                return size
    return limit + 1


def grid_box(west: int, east: int, north: int, south: int, side: int) -> Box:
    return Box(1 - (south + 0.5) / side, (west + 0.5) / side, 1 - (north + 0.5) / side, (east + 0.5) / side)


def touched_cells(box: Box, level: int) -> frozenset[str]:
    cells = set()
    for cell in all_areas(level):
        own = box_of(UNIT, cell)
        if own.south <= box.north and own.north >= box.south and own.west <= box.east and own.east >= box.west:
            cells.add(cell)
    return frozenset(cells)


def test_every_box_of_a_small_grid_gets_the_fewest_filters() -> None:
    choices = patterns(2)
    sides = [(first, last) for first in range(4) for last in range(first, 4)]
    for (west, east), (north, south) in product(sides, sides):
        box = grid_box(west, east, north, south, 4)
        cells = touched_cells(box, 2)
        filters_found = cover(UNIT, box, 2)
        assert frozenset().union(*(choices[text] for text in filters_found)) == cells
        assert fewest(cells, choices, len(filters_found) - 1) == len(filters_found)


SPAN = st.tuples(st.integers(0, 15), st.integers(0, 15)).map(lambda pair: (min(pair), max(pair)))


@given(SPAN, SPAN, st.integers(3, 4))
@settings(max_examples=60)
def test_a_cover_is_exact_and_no_larger_than_the_quadtree(x: tuple[int, int], y: tuple[int, int], level: int) -> None:
    side = 1 << level
    west, east, north, south = (min(value, side - 1) for value in (*x, *y))
    box = grid_box(west, east, north, south, side)
    found = cover(UNIT, box, level)
    covered = {cell for cell in all_areas(level) if any(matches(text, cell) for text in found)}
    assert covered == touched_cells(box, level)
    assert len(found) <= quadtree_size(touched_cells(box, level), "", level)


def quadtree_size(cells: frozenset[str], prefix: str, level: int) -> int:
    inside = [cell for cell in all_areas(level) if cell.startswith(prefix)]
    if not any(cell in cells for cell in inside):
        return 0
    if all(cell in cells for cell in inside):
        return 1
    return sum(quadtree_size(cells, f"{prefix}/{digit}" if prefix else digit, level) for digit in "0123")


def test_deep_grids_use_the_quadtree_and_the_edges_of_the_city_are_kept() -> None:
    assert cover(UNIT, UNIT, 9) == ("#",)
    assert cover(UNIT, Box(0.6, 0.6, 0.9, 0.9), 1) == ("1/#",)
    assert cover(UNIT, Box(2, 2, 3, 3), 4) == ()
    assert "0/0/#" in cover(UNIT, Box(0.51, 0.0, 1.0, 0.49), 8)
    with pytest.raises(UsageError, match="inside out"):
        cover(UNIT, Box(0.9, 0, 0.1, 1), 3)
