"""Stories with several brokers as short text files: one statement a line, run on live brokers and in the simulator.

city geographic 16            routing and number of brokers; b12 is at home in area 1/2
alice connects to b13 keeping her session
bob connects to b12 with will alarm/bob gone
alice subscribes 1/2/# qos 1
eve is refused at b12 as alice   the user eve, with alice's client identifier; also `with a clean start`
bob publishes 1/2/0/0/test m1..m20 qos 2 retained
bob disconnects               (vanishes: without DISCONNECT)
kill b12                      (start, pause, resume)
split b10 b11                 these from all others; `cut b10 b12` only two; `heal` mends everything
move 1/2 to b13 at b00        told to b00: from now on b13 is at home in the area
join b40 at b00 with 1/2      b40 becomes a broker of the city, at home in 1/2; `with nothing`: nowhere
b12 leaves                    for good, with all it has; the story goes on when it is gone
drain b12                     its clients go elsewhere; the story goes on when none of their sessions is there
route flood-subscriptions at b00    the city's routing changes, step by step; `central` is around b00
undo at b00                   the city is again as it was before the last change
wait 3 s
settle                        until tables agree and nothing waits between brokers within reach
expect alice gets m1..m20     these, in order, once each, and nothing else since the last expectation
expect alice gets m1..m5 in any order
expect alice gets at least m1..m5
expect alice gets m1,(empty)  what `bob clears 1/2/state` sends
expect alice gets nothing
expect carol and dave share m1..m20
expect owner of 1/2 is b13
expect tables equal
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from metromq.errors import UsageError

EMPTY = "(empty)"
_CLIENT = r"(?P<client>[a-z]\w*)"
_BROKER = r"(?P<broker>b\d+)"
_PAYLOADS = r"(?P<payloads>\S+)"
_STATEMENTS: tuple[tuple[str, str], ...] = (
    ("city", r"city (?P<routing>[a-z-]+) (?P<count>\d+)"),
    ("connects", rf"{_CLIENT} connects to {_BROKER}(?P<keeps> keeping \w+ session)?( with will (?P<will>\S+ \S+))?"),
    ("is_refused", rf"{_CLIENT} is refused at {_BROKER} as (?P<owner>[a-z]\w*)(?P<clean> with a clean start)?"),
    ("subscribes", rf"{_CLIENT} subscribes (?P<filter>\S+)( qos (?P<qos>[012]))?"),
    ("unsubscribes", rf"{_CLIENT} unsubscribes (?P<filter>\S+)"),
    ("publishes", rf"{_CLIENT} publishes (?P<topic>\S+) {_PAYLOADS}( qos (?P<qos>[012]))?(?P<retained> retained)?"),
    ("clears", rf"{_CLIENT} clears (?P<topic>\S+)"),
    ("disconnects", rf"{_CLIENT} disconnects"),
    ("vanishes", rf"{_CLIENT} vanishes"),
    ("kill", rf"kill {_BROKER}"),
    ("start", rf"start {_BROKER}"),
    ("pause", rf"pause {_BROKER}"),
    ("resume", rf"resume {_BROKER}"),
    ("split", r"split (?P<brokers>b\d+( b\d+)*)"),
    ("cut", r"cut (?P<one>b\d+) (?P<other>b\d+)"),
    ("heal", r"heal"),
    ("move", rf"move (?P<area>[0-3/]+) to (?P<home>b\d+) at {_BROKER}"),
    ("join", rf"join (?P<newcomer>b\d+) at {_BROKER} with (?P<areas>nothing|[0-3/]+( [0-3/]+)*)"),
    ("leaves", rf"{_BROKER} leaves"),
    ("drain", rf"drain {_BROKER}"),
    ("route", rf"route (?P<routing>[a-z-]+) at {_BROKER}"),
    ("undo", rf"undo at {_BROKER}"),
    ("wait", r"wait (?P<seconds>\d+(\.\d+)?) s"),
    ("settle", r"settle"),
    ("expect_nothing", rf"expect {_CLIENT} gets nothing"),
    ("expect_gets", rf"expect {_CLIENT} gets (?P<least>at least )?{_PAYLOADS}(?P<any> in any order)?"),
    ("expect_share", rf"expect (?P<clients>[a-z]\w*( and [a-z]\w*)+) share {_PAYLOADS}"),
    ("expect_owner", rf"expect owner of (?P<area>[0-3/]+) is {_BROKER}"),
    ("expect_tables", r"expect tables equal"),
)


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One statement: its verb, and the words that fill it."""

    line: int
    text: str
    verb: str
    words: Mapping[str, str]


class Stage(Protocol):
    """Where a story is played: a table of what each verb does. Expectations raise AssertionError."""

    verbs: Mapping[str, Callable[[Mapping[str, str]], None]]


def parse_scenario(text: str, name: str = "scenario") -> tuple[StoryStep, ...]:
    steps: list[StoryStep] = []
    for number, line in enumerate(text.splitlines(), 1):
        statement = " ".join(line.split("#  ")[0].split()) if not line.lstrip().startswith("#") else ""
        if statement:
            steps.append(_parse_line(statement, number, name))
    if not steps or steps[0].verb != "city":
        raise UsageError(f"{name}: a story starts with its city, such as: city geographic 16")
    return tuple(steps)


def _parse_line(statement: str, number: int, name: str) -> StoryStep:
    for verb, pattern in _STATEMENTS:
        match = re.fullmatch(pattern, statement)
        if match:
            words = {key: value for key, value in match.groupdict().items() if value is not None}
            return StoryStep(number, statement, verb, words)
    raise UsageError(f"{name}, line {number}: {statement!r} is not a statement of a story")


def read_scenario(path: Path) -> tuple[StoryStep, ...]:
    return parse_scenario(path.read_text(encoding="utf-8"), path.name)


def play(steps: tuple[StoryStep, ...], stage: Stage) -> None:
    """Plays the steps in order; a failed expectation names its line."""
    for step in steps:
        try:
            stage.verbs[step.verb](step.words)
        except AssertionError as error:
            raise AssertionError(f"line {step.line}: {step.text}: {error}") from error


def payloads(text: str) -> list[str]:
    """`m1..m20` as twenty payloads, `a,b` as two, `(empty)` as none at all, anything else as itself."""
    found: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"([^\d]*)(\d+)\.\.([^\d]*)(\d+)", part)
        if match and match[1] == match[3]:
            found += [f"{match[1]}{number}" for number in range(int(match[2]), int(match[4]) + 1)]
        else:
            found.append("" if part == EMPTY else part)
    return found


def areas_of(words: Mapping[str, str]) -> str:
    """What a newcomer is at home in, as a city's file says it."""
    return words["areas"].removeprefix("nothing")


def judge_delivery(got: list[str], words: Mapping[str, str]) -> None:
    """What `expect ... gets` means, the same on every stage."""
    wanted = payloads(words["payloads"])
    if "least" in words:
        missing = [payload for payload in wanted if payload not in got]
        assert not missing, f"missing {missing[:10]} of {len(wanted)}, got {got[:10]} ... ({len(got)})"
    elif "any" in words:
        assert sorted(got) == sorted(wanted), f"got {sorted(got)}"
    else:
        assert got == wanted, f"got {got}"


def judge_share(got: list[list[str]], words: Mapping[str, str]) -> None:
    together = sorted(payload for one in got for payload in one)
    assert together == sorted(payloads(words["payloads"])), f"together they got {together}"
