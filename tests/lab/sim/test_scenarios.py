"""Every story of tests/scenarios, played in the simulator."""

from pathlib import Path

import pytest

from metromq.errors import UsageError
from metromq.lab.scenario import parse_scenario, payloads, read_scenario
from metromq.lab.sim.runner import play_simulated

STORIES = sorted((Path(__file__).parents[2] / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    play_simulated(read_scenario(story))


def test_a_story_that_should_fail_fails() -> None:
    story = "city central 4\nann connects to b00\nann subscribes a\nann publishes a hi\nexpect ann gets ho"
    with pytest.raises(AssertionError, match=r"line 5: expect ann gets ho: got \['hi'\]"):
        play_simulated(parse_scenario(story))


def test_statements_that_nobody_understands_are_named() -> None:
    with pytest.raises(UsageError, match=r"line 2: 'ann sings' is not a statement"):
        parse_scenario("city central 4\nann sings")
    with pytest.raises(UsageError, match="starts with its city"):
        parse_scenario("settle")
    assert payloads("m9..m11,x,(empty)") == ["m9", "m10", "m11", "x", ""]
