"""Storms made of other storms: the same clients and faults, in a city in which something else happens besides."""

import dataclasses
import random
from typing import Final

from metromq.lab.storm.scenes import mended
from metromq.lab.storm.steps import ROUTINGS, TOPICS, History, Step
from metromq.protocol.topics import matches

CHANGING: Final = "changing"
RESTLESS: Final = "restless"
RESTLESS_S: Final = 15.0
MOVERS: Final = 2
AREAS: Final = ("0/0", "1/2", "3/3", "1", "3")
DELEGATED: Final = ("0/#", "0/0/0/0/a", "1/2/#", "plain/#", "plain/d", "#")
RACES: Final = 6
STREAM: Final = 40  # messages that a client publishes without a pause
STREAM_S: Final = 1.5  # before that its broker was made the owner of their filter


def closely(history: History) -> History:
    """A quarter of the storms: clocks milliseconds apart, and values set at two brokers one just after the other.

    At the end, when all is mended, since only then the judge knows which must stay.
    """
    dice = random.Random(f"{history.seed} closely")
    if dice.random() < 0.75:
        return history
    skews = [dice.choice((0.0, 0.003, 0.008, -0.005, 0.02)) for _ in range(history.brokers)]
    names = [f"#{number}" for number in range(history.brokers)]
    mends, at = mended(history)
    writers = [Step(at, "connect", (f"r{number}", name, "clean")) for number, name in enumerate(names)]
    races: list[Step] = []
    for number in range(RACES):
        at += dice.choice((0.5, 0.9, 1.3))
        topic, (one, other) = dice.choice(TOPICS), dice.sample(range(history.brokers), 2)
        for place, writer, when in (("a", one, at), ("b", other, at + dice.choice((0.001, 0.001, 0.002, 0.004)))):
            words = (f"r{writer}", topic, f"{place}{number}", dice.choice("12"), "retain")
            races.append(Step(when, "publish", words))
    steps = [*mends, *writers, *races]
    rounded = [Step(round(step.at, 3), step.verb, step.words) for step in steps]
    return History(history.seed, history.routing, history.brokers, tuple(skews), (*history.steps, *rounded))


def delegating(history: History) -> History:
    """The same storm in a city whose central broker hands filters to others, and takes them back, all the time."""
    dice = random.Random(f"{history.seed} delegation")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    changes: list[Step] = []
    for _ in range(dice.randint(4, 20)):
        broker = [] if dice.random() < 0.2 else [dice.choice(names)]
        changes.append(Step(round(dice.uniform(start, end), 3), "delegate", (dice.choice(DELEGATED), *broker)))
    streams = _streams(history, names, start, end, "delegate")
    steps = sorted([*history.steps, *changes, *streams], key=lambda step: step.at)
    return History(history.seed, "delegation", history.brokers, history.skews_s, tuple(steps))


def _streams(history: History, names: list[str], start: float, end: float, change: str) -> list[Step]:
    """In half of these storms filters, or areas, move on while a client of their owner publishes without a pause.

    What is held back meanwhile is several messages of one topic then, so that one can overtake another.
    """
    dice = random.Random(f"{history.seed} streams")
    if dice.random() < 0.5:
        return []
    steps: list[Step] = []
    for number in range(dice.randint(1, 3)):
        key = dice.choice(DELEGATED if change == "delegate" else AREAS)
        topic_filter = key if change == "delegate" else f"{key}/#"
        topic, qos = dice.choice([topic for topic in TOPICS if matches(topic_filter, topic)]), dice.choice("12")
        (owner, heir), place = dice.sample(names, 2), dice.choice(names)
        told = [dice.choice(names)] if change == "move" else []
        publisher, subscriber = f"s{number}", f"t{number}"
        at = dice.uniform(start, end)
        steps += [
            Step(at, "connect", (publisher, owner, "keeps")),
            Step(at, "connect", (subscriber, place, "keeps")),
            Step(at + 0.2, "subscribe", (subscriber, topic, "2")),
            Step(at + 0.2, change, (key, owner, *told)),
            Step(at + STREAM_S, change, (key, heir, *told)),
        ]
        pause_s = dice.choice((0.001, 0.003, 0.01))
        for message in range(STREAM):
            words = (publisher, topic, f"{publisher}-{message}", qos, "live")
            steps.append(Step(at + STREAM_S + pause_s * message, "publish", words))
    return [Step(round(step.at, 3), step.verb, step.words) for step in steps]


def changing(history: History) -> History:
    """The same storm in a city of areas that move from broker to broker all the time."""
    dice = random.Random(f"{history.seed} changing")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    moves = [
        Step(round(dice.uniform(start, end), 3), "move", (dice.choice(AREAS), dice.choice(names), dice.choice(names)))
        for _ in range(dice.randint(2, 8))
    ]
    more = [*_members(history, names, start, end), *_streams(history, names, start, end, "move")]
    more += _routes(history, names, start, end)
    steps = sorted([*history.steps, *moves, *more], key=lambda step: step.at)
    return History(history.seed, "geographic", history.brokers, history.skews_s, tuple(steps))


def _routes(history: History, names: list[str], start: float, end: float) -> list[Step]:
    """In half of these storms the city's routing changes as well."""
    dice = random.Random(f"{history.seed} routes")
    count = 0 if dice.random() < 0.5 else dice.randint(1, 6)  # many are not possible, because something is broken
    return [
        Step(round(dice.uniform(start, end), 3), "route", (dice.choice(ROUTINGS), dice.choice(names)))
        for _ in range(count)
    ]


def _members(history: History, names: list[str], start: float, end: float) -> list[Step]:
    """In half of these storms brokers join, clients come to them, and one of all brokers leaves for good."""
    dice = random.Random(f"{history.seed} members")
    if dice.random() < 0.5:
        return []
    clients = sorted({step.words[0] for step in history.steps if step.verb == "connect" and step.words[2] == "keeps"})
    steps: list[Step] = []
    newcomers = [f"b9{number}" for number in range(dice.randint(1, 2))]
    for name in newcomers:
        at = dice.uniform(start, end)
        area = [dice.choice(AREAS)] if dice.random() < 0.6 else []
        steps.append(Step(round(at, 3), "join", (name, dice.choice(names), *area)))
        for _ in range(dice.randint(1, 4)):
            comes = round(dice.uniform(at, end), 3)
            steps.append(Step(comes, "connect", (dice.choice(clients), name, "keeps")))
        if dice.random() < 0.3:
            dies = dice.uniform(at, end)
            steps += [Step(round(dies, 3), "kill", (name,)), Step(round(dies + 2.0, 3), "start", (name,))]
    if dice.random() < 0.7:
        steps.append(Step(round(dice.uniform(start, end), 3), "leave", (dice.choice([*names, *newcomers]),)))
    return steps


def coordinated(history: History, coordination: str) -> History:
    """The same storm on an ensemble, which has faults of its own."""
    dice = random.Random(f"{history.seed} {coordination}")
    names = [f"#{number}" for number in range(history.brokers)]
    start, end = history.steps[0].at + 1.0, history.steps[-1].at
    more: list[Step] = []
    for _ in range(dice.randint(0, 6)):
        at, broker = round(dice.uniform(start, end), 3), dice.choice(names)
        fault = dice.choice(("away", "unreach", "expire", "lag", *(("fell",) if coordination == "workers" else ())))
        if fault == "away":
            more += [Step(at, "away", ()), Step(round(at + dice.choice((0.3, 2.0, 8.0)), 3), "back", ())]
        elif fault == "lag":
            more.append(Step(at, "lag", (broker, dice.choice(("0.1", "1", "3")))))
        elif fault == "fell":
            worker = dice.choice(("w0", "w1"))
            more += [Step(at, "fell", (worker,)), Step(round(at + dice.choice((0.1, 3.0)), 3), "hire", (worker,))]
        else:
            more.append(Step(at, fault, (broker,)))
    steps = tuple(sorted([*history.steps, *more], key=lambda step: step.at))
    return dataclasses.replace(history, steps=steps, coordination=coordination)


def toppling(history: History) -> History:
    """The same storm on an overlay in which brokers die that lead clusters, and servers of the ensemble."""
    dice = random.Random(f"{history.seed} toppling")
    start, end = history.steps[0].at + 3.0, history.steps[-1].at
    more: list[Step] = []
    for topic in dice.sample(TOPICS, dice.randint(1, 3)):
        at, lasts_s = dice.uniform(start, end), dice.choice((0.3, 2.0, 5.0))
        more += [Step(round(at, 3), "topple", (topic,)), Step(round(at + lasts_s, 3), "restore", (topic,))]
    for server in ("leader", "follower") if history.coordination != "embedded" else ():
        if dice.random() < 0.5:
            at, lasts_s = dice.uniform(start, end), dice.choice((0.5, 4.0))
            more += [Step(round(at, 3), "fall", (server,)), Step(round(at + lasts_s, 3), "rise", (server,))]
    steps = tuple(sorted([*history.steps, *more], key=lambda step: step.at))
    return dataclasses.replace(history, steps=steps)


def restless(seed: int, brokers: int, routing: str = "") -> History:
    """Sessions that move every second while others publish without a pause, brokers stand still and one dies."""
    dice = random.Random(f"{seed} restless")
    names = [f"#{number}" for number in range(brokers)]
    *stays, dies = names if dice.random() < 0.7 else [*names, ""]
    movers = [f"c{number}" for number in range(MOVERS)]
    publishers = [f"p{number}" for number in range(len(stays))]
    at, number = 2.0, 0
    steps = [Step(0.0, "connect", (name, dice.choice(stays), "keeps")) for name in movers]
    steps += [Step(0.0, "connect", (name, place, "keeps")) for name, place in zip(publishers, stays, strict=True)]
    steps += [Step(0.5, "subscribe", (movers[0], "#", "2")), Step(0.5, "subscribe", (movers[1], "0/#", "2"))]
    pause_s = dice.choice((0.01, 0.02, 0.05))
    while at < RESTLESS_S:
        at, number = at + pause_s * dice.uniform(0.2, 1.8), number + 1
        words = (dice.choice(publishers), dice.choice(TOPICS), f"m{number}", dice.choice("1222"), "live")
        steps.append(Step(at, "publish", words))
    for mover in movers:
        at = 2.0
        while (at := at + dice.choice((0.1, 0.5, 1.0, 1.0, 1.0, 2.0)) * dice.uniform(0.7, 1.3)) < RESTLESS_S:
            steps.append(Step(at, dice.choice(("connect", "slip")), (mover, dice.choice(stays), "keeps")))
    steps += _standstills(dice, names if dice.random() < 0.5 else stays)
    if dies:
        at = 2.0
        while (at := at + dice.uniform(0.5, 4.0)) < RESTLESS_S:
            steps += [Step(at, "kill", (dies,)), Step(at + dice.choice((0.2, 1.0, 3.0, 10.0)), "start", (dies,))]
            at = steps[-1].at
    rounded = [Step(round(step.at, 3), step.verb, step.words) for step in steps]
    ordered = tuple(sorted(rounded, key=lambda step: step.at))
    return History(seed, routing or dice.choice(ROUTINGS), brokers, (0.0,) * brokers, ordered)


def _standstills(dice: random.Random, names: list[str]) -> list[Step]:
    """As of brokers on a machine that has too much to do."""
    most_s = dice.choice((0.0, 0.4, 1.4, 5.0))
    steps: list[Step] = []
    for name in names if most_s else ():
        at = 2.0
        while (at := at + dice.uniform(0.3, 5.0)) < RESTLESS_S:
            steps.append(Step(at, "pause", (name,)))
            at += dice.uniform(0.05, most_s)
            steps.append(Step(at, "resume", (name,)))
    return steps
