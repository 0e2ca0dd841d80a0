"""Every story, played on live broker processes; tests/lab/sim plays the same ones in the simulator."""

from pathlib import Path

import pytest

from metromq.lab.scenario import read_scenario
from tests.scenarios.live import play_live

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, tmp_path: Path) -> None:
    play_live(read_scenario(story), tmp_path)
