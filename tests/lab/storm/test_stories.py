"""Storms that once broke the contract, shrunk to what mattered, keep it now; tests/chaos can replay them live."""

from pathlib import Path

import pytest

from metromq.lab.storm.command import breaches_of
from metromq.lab.storm.history import parse_history

STORIES = sorted((Path(__file__).parents[2] / "scenarios" / "storm").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    assert breaches_of(parse_history(story.read_text(encoding="utf-8"), story.name)) == []


def test_there_are_stories() -> None:
    assert STORIES
