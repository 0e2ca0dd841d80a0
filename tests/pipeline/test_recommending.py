"""The sentence under what-if: what it recommends, the saving, how sure it is, and what would apply it."""

from dataclasses import replace
from datetime import date

import pytest

from metromq.cli.costs import bars, page
from metromq.federation.city import City, grid_city
from metromq.pipeline.recommending import recommend
from metromq.pipeline.whatif import CLOUD, ChoiceCost, SiteCost

MONDAY, TUESDAY, WEDNESDAY = (date(2026, 11, day) for day in (16, 17, 18))


def costs(**between: float) -> list[ChoiceCost]:
    return [
        ChoiceCost(name.replace("_", "-"), (SiteCost("a", 1, 1, count, 3, 4),), SiteCost(CLOUD, 0, 0, 0, 0, 0))
        for name, count in between.items()
    ]


def test_one_day_is_not_enough() -> None:
    found = recommend({MONDAY: costs(central=200, geographic=50, sf=1)})
    assert found is not None
    assert (found.routing, found.instead_of, found.saved, found.saved_share) == ("geographic", "central", 150, 0.75)
    assert found.certainty == "one day only"
    assert found.sentence == (
        "Use geographic: 150 messages (75%) fewer between sites on 2026-11-16 than central. "
        "Only one day was seen, so wait for more before you change anything."
    )


def test_days_that_agree_are_sure() -> None:
    days = {MONDAY: costs(central=200, geographic=50), TUESDAY: costs(central=100, geographic=30)}
    found = recommend(days, grid_city("central", count=4), "central")
    assert found is not None
    assert (found.certainty, found.days, found.days_best) == ("sure", 2, 2)
    assert (found.saved, round(found.lowest_share, 2), round(found.highest_share, 2)) == (70, 0.7, 0.75)
    assert "than central as now" in found.sentence
    assert found.apply == (
        'To apply it, metromq city show > city.toml, write routing = "geographic" into it, remove the line "central", '
        "then: metromq city apply city.toml."
    )


@pytest.mark.parametrize(
    "days",
    [
        {MONDAY: costs(central=40, geographic=50), TUESDAY: costs(central=100, geographic=30)},
        {MONDAY: costs(central=200, geographic=20), TUESDAY: costs(central=100, geographic=90)},
    ],
)
def test_days_that_differ_are_unsure(days: dict[date, list[ChoiceCost]]) -> None:
    found = recommend(days)
    assert found is not None
    assert found.routing == "geographic"
    assert found.certainty == "unsure"
    assert found.sentence.endswith("not sure yet.")


def test_the_present_routing_may_be_the_best() -> None:
    found = recommend({MONDAY: costs(central=200, geographic=50)}, grid_city("geographic", count=4), "city.toml")
    assert found is not None
    assert found.sentence.startswith("Keep geographic: 150 messages")
    assert found.apply == "Nothing has to change."


def test_nobody_is_told_to_change_for_nothing() -> None:
    """Where two are as good, the one that the city has is better."""
    days = {MONDAY: costs(flood_subscriptions=0, geographic=0), TUESDAY: costs(flood_subscriptions=7, geographic=7)}
    found = recommend(days, grid_city("geographic", count=4), "city.toml")
    assert found is not None
    assert found.sentence.startswith("Keep geographic: as many messages between sites as flood-subscriptions.")
    assert (found.apply, found.days_best) == ("Nothing has to change.", 2)


def without_areas(city: City) -> City:
    return replace(city, brokers=tuple(replace(broker, area="") for broker in city.brokers))


def test_what_a_file_needs_to_change() -> None:
    by_day = {MONDAY: costs(central=200, geographic=50), TUESDAY: costs(central=200, geographic=50)}
    found = recommend(by_day, grid_city("central", count=4), "my/city.toml")
    assert found is not None
    assert 'routing = "geographic"' in found.apply
    assert 'remove the line "central"' in found.apply
    assert found.apply.endswith("then: metromq city apply my/city.toml.")  # tests/joints/test_changing_city.py does
    other = recommend({MONDAY: costs(central=1, geographic=50)}, grid_city("geographic", count=4), "c.toml")
    assert other is not None
    assert 'routing = "central" and central = "b00"' in other.apply
    bare = recommend(by_day, without_areas(grid_city("central", count=4)), "c.toml")
    assert bare is not None
    assert "It also needs:" in bare.apply


def test_one_live_routing_is_nothing_to_choose_from() -> None:
    assert recommend({MONDAY: costs(central=200, sf=50)}) is None


def test_bars_are_in_proportion() -> None:
    lines = bars(costs(central=200, geographic=50, sf=0), 60)
    assert [line.count("█") for line in lines] == [40, 10, 0]
    assert [len(line) <= 60 for line in lines] == [True] * 3
    assert [line.count("█") for line in bars(costs(central=0, geographic=0), 20)] == [0, 0]


def test_the_page_says_the_same_and_fetches_nothing() -> None:
    found = recommend({MONDAY: costs(central=200, geographic=50)})
    text = page(costs(central=200, geographic=50), found, "What if? <2026>")
    assert found is not None
    assert found.sentence in text
    assert "What if? &lt;2026&gt;" in text
    assert 'class="bar best" style="width: 25.0%"' in text
    assert "http" not in text
