"""Scenes that most storms have besides: what takes several steps at the right moments to go wrong.

Chance alone seldom puts such steps one behind the other. They come in the midst of a storm, or behind it when all is
mended, where the judge knows best what must happen.
"""

import dataclasses
import random
from collections.abc import Callable
from typing import Final

from metromq.lab.storm.steps import TOPICS, WILL_TOPIC, History, Step

FALLS: Final = {"kill": "start", "power": "start", "pause": "resume", "split": "heal"}  # and what mends them
CALM_S: Final = 12.0  # so long after all is mended links and owners are surely as before
LINKS_S: Final = 3.2  # and so long links
SCENE_S: Final = 16.0  # from one scene to the next
MESSAGES: Final = 16  # one each millisecond: some are at each of the steps of QoS 2 when the client is torn away
ON_THEIR_WAY_S: Final = (0.004, 0.016)
MEMBERS: Final = 4  # of a group of their own
ENDED_S: Final = 0.1  # within that their sessions end, while a message every other millisecond goes to the group


def mended(history: History) -> tuple[list[Step], float]:
    """The steps that mend everything at the end of a storm, and when all is calm behind them."""
    at = history.steps[-1].at + 0.1
    names = [f"#{number}" for number in range(history.brokers)]
    mends = [Step(at, "heal", ()), *(Step(at, verb, (name,)) for verb in ("resume", "start") for name in names)]
    return mends, at + CALM_S


Scene = Callable[["_Stage", float], list[Step]]


def with_scenes(history: History) -> History:
    """The same storm, and in half of them one or two scenes; in half of the others members of a group end."""
    dice = random.Random(f"{history.seed} scenes")
    if dice.random() >= 0.5:
        return _with(history, dice, SCENES)
    dice = random.Random(f"{history.seed} ended members")
    return _with(history, dice, (_members_end,)) if dice.random() < 0.5 else history


def _with(history: History, dice: random.Random, choice: tuple[Scene, ...]) -> History:
    stage, steps = _Stage(history, dice), history.steps
    mends, calm = mended(history)
    is_behind = dice.random() < 0.5
    at = calm if is_behind else dice.uniform(steps[0].at + 3.0, steps[-1].at)
    scenes = [dice.choice(choice)(stage, at + number * SCENE_S) for number in range(dice.randint(1, 2))]
    more = [*(mends if is_behind else ()), *(step for scene in scenes for step in scene)]
    rounded = [Step(round(step.at, 3), step.verb, step.words) for step in more]
    return dataclasses.replace(history, steps=tuple(sorted([*steps, *rounded], key=lambda step: step.at)))


class _Stage:
    """Who plays: clients whose sessions last, and that are in no shared group; members of groups are newcomers."""

    def __init__(self, history: History, dice: random.Random) -> None:
        self.dice = dice
        self.names = [f"#{number}" for number in range(history.brokers)]
        connects = [step.words for step in history.steps if step.verb == "connect"]
        groups = {step.words[0] for step in history.steps if step.verb == "subscribe" and "$share" in step.words[1]}
        lasting = {words[0] for words in connects if words[2] == "keeps"} - groups
        self.clients = sorted(name for name in lasting if name.startswith("c"))
        self._number = 0

    def payload(self, letter: str = "v") -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def newcomers(self, count: int) -> list[str]:
        """Nobody else's steps are theirs."""
        return [self.payload("e") for _ in range(count)]

    def will(self, client: str) -> tuple[str, str, str]:
        self._number += 1
        return f"{WILL_TOPIC}/{client}", f"y{self._number}", self.dice.choice(("0", "2", "30"))

    def cast(self) -> tuple[str, str, str, str, str]:
        """A subscriber, a publisher, a topic, the subscriber's broker and another one."""
        subscriber, publisher = self.dice.sample(self.clients, 2)
        broker, other = self.dice.sample(self.names, 2)
        return subscriber, publisher, self.dice.choice(TOPICS), broker, other


def _torn_away(stage: _Stage, at: float) -> list[Step]:
    """A client goes on elsewhere while messages are on their way to it, and its broker falls in that moment."""
    dice = stage.dice
    subscriber, publisher, topic, broker, other = stage.cast()
    fall = dice.choice(list(FALLS))
    steps = [
        Step(at, "connect", (subscriber, broker, "keeps")),
        Step(at, "connect", (publisher, dice.choice(stage.names), "keeps")),
        Step(at + 0.5, "subscribe", (subscriber, topic, "2")),
    ]
    at += 1.5
    for number in range(MESSAGES):
        steps.append(Step(at + 0.001 * number, "publish", (publisher, topic, stage.payload(), "2", "live")))
    torn = at + dice.uniform(*ON_THEIR_WAY_S)
    mend = FALLS[fall]
    steps += [
        Step(torn, "slip", (subscriber, other, "keeps")),
        Step(torn + dice.choice((0.0, 0.001, 0.003)), fall, (broker,)),
        Step(torn + dice.choice((1.0, 4.0, 7.0)), mend, () if mend == "heal" else (broker,)),
    ]
    return steps


def _begins_anew(stage: _Stage, at: float) -> list[Step]:
    """A client begins anew while its broker is away, ends that session too, and comes back later."""
    dice = stage.dice
    subscriber, publisher, topic, broker, other = stage.cast()
    fall = dice.choice(list(FALLS))
    mend = FALLS[fall]
    back = dice.choice([name for name in stage.names if name != other])
    steps = [
        Step(at, "connect", (subscriber, broker, "keeps")),
        Step(at + 0.5, "subscribe", (subscriber, topic, dice.choice("12"))),
        Step(at + 1.0, fall, (broker,)),
        Step(at + 1.5, "connect", (subscriber, other, "clean")),
        Step(at + 5.0, dice.choice(("disconnect", "vanish")), (subscriber,)),
        Step(at + dice.choice((4.0, 6.0)), mend, () if mend == "heal" else (broker,)),
        Step(at + 6.0 + LINKS_S, "connect", (subscriber, back, "keeps")),
        Step(at + 6.0 + LINKS_S, "connect", (publisher, dice.choice(stage.names), "keeps")),
    ]
    for number in range(3):
        steps.append(
            Step(at + 12.5 + number, "publish", (publisher, topic, stage.payload(), dice.choice("012"), "live"))
        )
    return steps


def _goes_on(stage: _Stage, at: float) -> list[Step]:
    """A client that leaves wills goes on from broker to broker; behind a storm nothing is broken meanwhile."""
    dice = stage.dice
    client, publisher, topic, broker, other = stage.cast()
    steps = [Step(at, "connect", (client, broker, "keeps", *stage.will(client)))]
    for number, place in enumerate((other, broker)[: dice.randint(1, 2)]):
        steps += [
            Step(at + 1.0 + 2 * number, "publish", (client, topic, stage.payload(), dice.choice("012"), "live")),
            Step(at + 1.0 + 2 * number, "slip", (client, place, "keeps", *stage.will(client))),
        ]
    return [*steps, Step(at + 1.0, "publish", (publisher, topic, stage.payload(), "2", "live"))]


def _members_end(stage: _Stage, at: float) -> list[Step]:
    """Sessions of a group's members end while messages are on their way to them; one stays. Brokers may fall."""
    dice = stage.dice
    topic, members, publishers = dice.choice(TOPICS), stage.newcomers(MEMBERS), dice.sample(stage.clients, 2)
    group = f"$share/e/{dice.choice((topic, '#'))}"
    steps = [Step(at, "connect", (name, dice.choice(stage.names), "keeps")) for name in publishers]
    places = {name: dice.choice(stage.names) for name in members}
    lasts = {name: name == members[0] or dice.random() < 0.5 for name in members}
    for name in members:
        steps.append(Step(at, "connect", (name, places[name], "keeps" if lasts[name] else "clean")))
        steps.append(Step(at + 0.5, "subscribe", (name, group, dice.choice("122"))))
    at += 1.5
    for number in range(int(ENDED_S / 0.002)):
        words = (dice.choice(publishers), topic, stage.payload("e"), dice.choice("12"), "live")
        steps.append(Step(at + 0.002 * number, "publish", words))
    for name in members[1:]:
        steps += _end(stage, name, group, lasts[name], at + dice.uniform(0.0, ENDED_S))
    if dice.random() < 0.5:
        fall, broker, falls = dice.choice(list(FALLS)), dice.choice(stage.names), at + dice.uniform(0.0, ENDED_S)
        mends = falls + dice.choice((1.0, 4.0, 7.0))
        steps += [Step(falls, fall, (broker,)), Step(mends, FALLS[fall], () if FALLS[fall] == "heal" else (broker,))]
    return steps


def _end(stage: _Stage, name: str, group: str, lasts: bool, at: float) -> list[Step]:
    """The session ends with its connection, or if it outlives that, because its client begins anew, now or later."""
    dice = stage.dice
    steps: list[Step] = []
    if dice.random() < 0.3:
        steps.append(Step(at, "unsubscribe", (name, group)))
        at += dice.choice((0.0, 0.001, 0.003))
    if not lasts and dice.random() < 0.7:
        return [*steps, Step(at, dice.choice(("disconnect", "vanish")), (name,))]
    if dice.random() < 0.4:
        steps.append(Step(at, "vanish", (name,)))
        at += dice.choice((0.05, 1.0, 4.0))
    steps.append(Step(at, dice.choice(("connect", "slip")), (name, dice.choice(stage.names), "clean")))
    if dice.random() < 0.4:
        steps.append(Step(at + dice.choice((0.02, 0.5)), "subscribe", (name, group, dice.choice("122"))))
    return steps


SCENES: Final[tuple[Scene, ...]] = (_torn_away, _begins_anew, _goes_on)
