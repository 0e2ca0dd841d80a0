"""Z-order areas: places on the map as topic levels, and which areas a topic or a filter belongs to.

A city's bounding square is cut into four, again and again; the quarters are numbered as the letter Z is written:
0 north-west, 1 north-east, 2 south-west, 3 south-east. The path of digits is the area and the first levels of a topic:
`1/0/2/1/temperature` was measured somewhere in area `1/0`.

A topic belongs to the area of its leading digits. When it has fewer digits than the brokers' level, zeros fill it up,
so `1/weather` belongs to `1/0`: every topic that starts with a digit has exactly one area, and a filter such as
`1/+/2/#` touches no broker outside `1`. Topics that start with anything else have no area.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final

from metromq.errors import UsageError

DIGITS: Final = ("0", "1", "2", "3")
EXACT_COVER_LEVEL: Final = 6  # deeper grids have too many cells for the exact search, and fall back on the quadtree
SEARCH_STEPS: Final = 20_000  # bounds the exact search; past it the best cover found so far is used


@dataclass(frozen=True)
class Box:
    """A rectangle on the map, in degrees, edges included."""

    south: float
    west: float
    north: float
    east: float

    def holds(self, latitude: float, longitude: float) -> bool:
        return self.south <= latitude <= self.north and self.west <= longitude <= self.east


def area_at(city: Box, latitude: float, longitude: float, level: int) -> str:
    """The area of `level` digits that holds the place."""
    if not city.holds(latitude, longitude):
        raise UsageError(
            f"{latitude}, {longitude} lies outside the city ({city.south}..{city.north}, {city.west}..{city.east}): "
            "widen the city's square or move the place"
        )
    return _path(_column(city, longitude, level), _row(city, latitude, level), level)


def box_of(city: Box, area: str) -> Box:
    """The rectangle that an area covers."""
    south, west, north, east = city.south, city.west, city.north, city.east
    for digit in _digits(area):
        middle_latitude, middle_longitude = (south + north) / 2, (west + east) / 2
        if digit & 1:
            west = middle_longitude
        else:
            east = middle_longitude
        if digit & 2:
            north = middle_latitude
        else:
            south = middle_latitude
    return Box(south, west, north, east)


def centre_of(city: Box, area: str) -> tuple[float, float]:
    """Latitude and longitude of an area's middle."""
    box = box_of(city, area)
    return (box.south + box.north) / 2, (box.west + box.east) / 2


def all_areas(level: int) -> tuple[str, ...]:
    return tuple("/".join(path) for path in product(DIGITS, repeat=level))


def areas_within(prefix: str, level: int) -> tuple[str, ...]:
    """Every area of `level` digits that lies in `prefix`, which may be as deep itself."""
    depth = len(_digits(prefix))
    if depth > level:
        raise UsageError(f"area {prefix} has {depth} digits, more than the {level} at which brokers are placed")
    return tuple("/".join((prefix, *rest)) for rest in product(DIGITS, repeat=level - depth))


def area_of(topic: str, level: int) -> str | None:
    """The area that a topic belongs to, or None when it does not start with a digit."""
    digits: list[str] = []
    for name in topic.split("/", level)[:level]:
        if name not in DIGITS:
            break
        digits.append(name)
    if not digits:
        return None
    digits.extend("0" * (level - len(digits)))
    return "/".join(digits)


def reaches_beyond_areas(topic_filter: str) -> bool:
    """Whether a filter can match a topic without an area."""
    return topic_filter.split("/", 1)[0] not in DIGITS


def areas_touched(topic_filter: str, level: int) -> tuple[str, ...]:
    """Every area that holds a topic which the filter could match, in order."""
    touched: list[tuple[str, ...]] = []
    names = topic_filter.split("/")
    for position in range(level):
        name = names[position] if position < len(names) else ""
        if name == "#":
            touched.extend([DIGITS] * (level - position))
            break
        if name == "+":
            touched.append(DIGITS)
        elif name in DIGITS:
            touched.append((name,))
        elif position == 0:
            return ()
        else:  # the digits end here: zeros fill the area up
            touched.extend([("0",)] * (level - position))
            break
    return tuple("/".join(path) for path in product(*touched))


def cover(city: Box, box: Box, level: int) -> tuple[str, ...]:
    """The fewest filters whose areas are exactly the cells of `level` digits that the box touches.

    Filters may overlap and use `+` between digits: all but the westmost column of a grid is `1/#`, `3/#`, `+/1/#`,
    `+/3/#` and so on, two filters a level instead of one a cell. The part of the box outside the city is ignored.
    """
    if box.south > box.north or box.west > box.east:
        raise UsageError("the box is inside out: south must not exceed north, nor west exceed east")
    if box.north < city.south or box.south > city.north or box.east < city.west or box.west > city.east:
        return ()
    west, east = _column(city, max(box.west, city.west), level), _column(city, min(box.east, city.east), level)
    north, south = _row(city, min(box.north, city.north), level), _row(city, max(box.south, city.south), level)
    if level > EXACT_COVER_LEVEL:
        return tuple(_quadtree(level, west, east, north, south, ""))
    cells = 0
    for x in range(west, east + 1):
        for y in range(north, south + 1):
            cells |= 1 << _cell(x, y, level)
    return tuple(sorted(_filter_text(pattern) for pattern in _fewest(cells, level)))


def _digits(area: str) -> list[int]:
    digits = [int(name) for name in area.split("/") if name in DIGITS]
    if "/".join(str(digit) for digit in digits) != area:
        raise UsageError(f"{area!r} is no area: write digits 0 to 3 with slashes between, such as 1/0/2")
    return digits


def _column(city: Box, longitude: float, level: int) -> int:
    columns: int = 1 << level
    return min(int((longitude - city.west) / (city.east - city.west) * columns), columns - 1)


def _row(city: Box, latitude: float, level: int) -> int:
    rows: int = 1 << level
    return min(int((city.north - latitude) / (city.north - city.south) * rows), rows - 1)


def _path(x: int, y: int, level: int) -> str:
    return "/".join(str((y >> bit & 1) << 1 | (x >> bit & 1)) for bit in range(level - 1, -1, -1))


def _cell(x: int, y: int, level: int) -> int:
    number = 0
    for bit in range(level - 1, -1, -1):
        number = number << 2 | (y >> bit & 1) << 1 | (x >> bit & 1)
    return number


def _filter_text(pattern: str) -> str:
    kept = pattern.rstrip("+")
    return "/".join((*kept, "#"))


def _quadtree(level: int, west: int, east: int, north: int, south: int, prefix: str) -> list[str]:
    """Quarters that lie wholly inside become one filter each."""
    size = 1 << level
    if west <= 0 and north <= 0 and east >= size - 1 and south >= size - 1:
        return [f"{prefix}#"]
    if west >= size or north >= size or east < 0 or south < 0:
        return []
    half = size >> 1
    found: list[str] = []
    for digit in range(4):
        x, y = (digit & 1) * half, (digit >> 1) * half
        found += _quadtree(level - 1, west - x, east - x, north - y, south - y, f"{prefix}{digit}/")
    return found


def _largest(cells: int, level: int, known: dict[tuple[int, int], list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """The patterns, one sign a level, that fit inside the cells and in no larger such pattern, with their cells."""
    if cells == 0:
        return []
    if level == 0:
        return [("", 1)]
    key = (cells, level)
    if key in known:
        return known[key]
    width: int = 1 << 2 * (level - 1)
    mask = (1 << width) - 1
    quarters = [cells >> digit * width & mask for digit in range(4)]
    common = quarters[0] & quarters[1] & quarters[2] & quarters[3]
    found: list[tuple[str, int]] = []
    for rest, covered in _largest(common, level - 1, known):
        found.append(("+" + rest, covered | covered << width | covered << 2 * width | covered << 3 * width))
    for digit in range(4):
        for rest, covered in _largest(quarters[digit], level - 1, known):
            if covered & ~common:
                found.append((str(digit) + rest, covered << digit * width))
    known[key] = found
    return found


def _fewest(cells: int, level: int) -> list[str]:
    return _CoverSearch(cells, _largest(cells, level, {})).run()


class _CoverSearch:
    """Branch and bound over the largest patterns: always on the cell that the fewest of them can cover."""

    def __init__(self, cells: int, patterns: list[tuple[str, int]]) -> None:
        self.cells = cells
        self.patterns = patterns
        self.biggest = max((covered.bit_count() for _, covered in patterns), default=1)
        self.order: list[tuple[int, list[tuple[str, int]]]] = []
        for number in range(cells.bit_length()):
            if cells >> number & 1:
                cell = 1 << number
                self.order.append((cell, [pattern for pattern in patterns if pattern[1] & cell]))
        self.order.sort(key=lambda entry: len(entry[1]))
        self.steps = 0
        self.best: list[str] = []

    def run(self) -> list[str]:
        self.best = self._greedy()
        self._search(self.cells, [])
        return self.best

    def _greedy(self) -> list[str]:
        chosen: list[str] = []
        cells = self.cells
        while cells:
            text, covered = max(self.patterns, key=lambda pattern: (pattern[1] & cells).bit_count())
            chosen.append(text)
            cells &= ~covered
        return chosen

    def _search(self, cells: int, chosen: list[str]) -> None:
        if not cells:
            self.best = list(chosen)
            return
        self.steps += 1
        if self.steps > SEARCH_STEPS or len(chosen) - (-cells.bit_count() // self.biggest) >= len(self.best):
            return
        options = next(options for cell, options in self.order if cell & cells)
        for text, covered in sorted(options, key=lambda pattern: -(pattern[1] & cells).bit_count()):
            chosen.append(text)
            self._search(cells & ~covered, chosen)
            chosen.pop()
