"""A failing history shrinks to the steps that make it fail; the command tells and saves it, and plays it again."""

import sys
from pathlib import Path

import pytest

from metromq.lab.storm import command
from metromq.lab.storm.history import History, history_of, parse_history
from metromq.lab.storm.shrinking import shrunk


def test_only_what_is_needed_stays() -> None:
    wanted = [history_of(3).steps[number] for number in (20, 90, 150)]

    def fails(history: History) -> bool:
        said = [(step.verb, step.words) for step in history.steps]
        return all((step.verb, step.words) in said for step in wanted)

    small = shrunk(history_of(3), fails)
    assert [(step.verb, step.words) for step in small.steps] == [(step.verb, step.words) for step in wanted]
    assert [step.at for step in small.steps] == [0.0, 2.0, 4.0]
    assert small.skews_s == (0.0, 0.0, 0.0)


def test_moments_stay_when_they_matter() -> None:
    history = history_of(3)
    moments = {step.at for step in history.steps}
    small = shrunk(history, lambda one: len(one.steps) > 4 and all(step.at in moments for step in one.steps))
    assert len(small.steps) == 5


def test_it_ends_after_so_many_plays() -> None:
    plays: list[History] = []

    def fails(history: History) -> bool:
        plays.append(history)
        return True

    shrunk(history_of(3), fails, tries=7)
    assert len(plays) == 7


def loses_deletions(history: History, wide: bool = False) -> list[str]:
    """As a judge who finds every deletion wrong."""
    return [f"retained: {step}" for step in history.steps if step.verb == "clear"]


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["storm", *options])
    return command.main()


def test_a_failing_seed_becomes_a_story_that_can_be_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "breaches_of", loses_deletions)
    assert run(monkeypatch, "--seeds", "1", "--first", "3", "--jobs", "1", "--save", str(tmp_path)) == 1
    assert "0 passed, 1 failed" in capsys.readouterr().out
    story = parse_history((tmp_path / "seed-3.txt").read_text())
    assert [step.verb for step in story.steps] == ["clear"]
    assert run(monkeypatch, "--replay", str(tmp_path / "seed-3.txt")) == 1
    assert "retained:" in capsys.readouterr().out


def test_storms_are_played_by_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--seeds", "4", "--first", "2", "--steps", "30", "--jobs", "2") == 0
    assert "4 passed, 0 failed" in capsys.readouterr().out


def test_a_file_that_is_no_story_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_text("city geographic 3\n")
    assert run(monkeypatch, "--replay", str(tmp_path / "x.txt")) == 2
    assert "x.txt: a storm starts with" in capsys.readouterr().err
    assert run(monkeypatch, "--replay", str(tmp_path / "missing.txt")) == 2
