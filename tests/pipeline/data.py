"""Generated messages and windows that the pipeline's tests share."""

import random
from collections.abc import Sequence
from pathlib import Path

from metromq.federation.hop import Hop
from metromq.federation.links.routing_slip import slip_of
from metromq.federation.stages import FINAL
from metromq.journal import Journal
from metromq.pipeline.decode import decode_batch
from metromq.pipeline.landing import MESSAGES, TELEMETRY, LandedFile, Landing
from metromq.pipeline.recorder import window_table
from metromq.protocol.session.message import KIND_LINK, KIND_PUBLISH, Message
from metromq.protocol.session.records import Target, encode_message
from metromq.telemetry.windows import TelemetryRow, TelemetryWindow

DAY_US = 86_400_000_000
T0_US = 20_000 * DAY_US  # 2024-10-04
NOTE = slip_of(Hop("b2", FINAL))
PAYLOADS = (
    b'{"value": 21.5, "unit": "C"}',
    b"7",
    b"on",
    b'"on"',
    b"[1, 2]",
    b"\xff\x00",
    b"",
    b'{"value": "x"}',
    b"{bad",
)


def message(number: int, random_: random.Random, time_us: int | None = None) -> Message:
    """A message like many: most with an area, some JSON, some not."""
    area = "/".join(random_.choices("0123", k=random_.randrange(4)))
    topic = "/".join(filter(None, (area, f"sensor{random_.randrange(8)}", "temperature")))
    made = Message(
        topic,
        random_.choice(PAYLOADS),
        qos=random_.choice((1, 2)),
        retain=random_.random() < 0.1,
        time_us=T0_US + number * 1_000_000 if time_us is None else time_us,
        publisher=f"client{random_.randrange(5)}",
    )
    if random_.random() < 0.2:
        made.expires_at_us = made.time_us + 60_000_000
    return made


def bodies(first: int, count: int, seed: int = 1) -> list[bytes]:
    random_ = random.Random(f"{seed}/{first}")
    return [encode_message(message(first + i, random_), targets(random_)) for i in range(count)]


def targets(random_: random.Random) -> list[Target]:
    """Sessions with subscription identifiers, and links with their note."""
    return [
        Target(random_.randrange(99), 1, (), NOTE)
        if random_.random() < 0.3
        else Target(random_.randrange(99), 1, tuple(random_.choices(range(1, 9), k=random_.randrange(3))))
        for _ in range(random_.randrange(4))
    ]


def fill(journal: Journal, count: int, seed: int = 1) -> None:
    for body in bodies(journal.next_offset, count, seed):
        journal.append_message(body)
    journal.flush()


def land(landing: Landing, broker: str, first: int, count: int, seed: int = 1) -> LandedFile:
    file = LandedFile(MESSAGES, broker, first, first + count - 1)
    landing.put(file, decode_batch(broker, first, bodies(first, count, seed)))
    return file


def land_messages(landing: Landing, broker: str, first: int, messages: Sequence[Message]) -> LandedFile:
    file = LandedFile(MESSAGES, broker, first, first + len(messages) - 1)
    landing.put(file, decode_batch(broker, first, [encode_message(item, []) for item in messages]))
    return file


def land_window(landing: Landing, window: TelemetryWindow) -> LandedFile:
    file = LandedFile(TELEMETRY, window.broker, window.start_us, window.sequence)
    landing.put(file, window_table(window))
    return file


def window(broker: str, start_us: int, rows: Sequence[TelemetryRow], sequence: int = 0) -> TelemetryWindow:
    return TelemetryWindow(broker, f"site-{broker}", start_us, 10.0, sequence, tuple(rows))


def link_message(topic: str, time_us: int, origin: str, origin_offset: int, took_us: int = 250_000) -> Message:
    """`time_us` is its origin's."""
    made = Message(topic, b"1", qos=1, time_us=time_us, kind=KIND_LINK, origin=origin, origin_offset=origin_offset)
    made.arrived_us = time_us + took_us
    return made


def plain_message(topic: str, time_us: int, publisher: str = "p", payload: bytes = b"1") -> Message:
    return Message(topic, payload, qos=1, time_us=time_us, publisher=publisher, kind=KIND_PUBLISH)


def journal_of(path: Path, count: int) -> Journal:
    journal = Journal.open(path)
    fill(journal, count)
    return journal
