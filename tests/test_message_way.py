"""The way of a message is short: which files a QoS 1 PUBLISH passes between two brokers, so that none joins quietly.

Counted by every call, once routes are known, from the publisher's bytes to the subscriber's. What the clients do and
what brokers do anyway (ticks) does not count. A file that this test does not know makes the way longer: put the work
where the message passes already, or say in the list why it needs another room.
"""

import os
import sys
from pathlib import Path
from types import FrameType

import pytest

import metromq
from metromq.federation import grid_city
from metromq.lab.sim.sim_city import SimCity
from tests.builds import plain_only

# In the order in which a message comes to them, and what each does.
WAY = (
    # Into the publisher's broker: bytes, packet, message.
    "protocol/session/hub.py",  # its clock
    "protocol/session/connection.py",  # bytes of one network connection
    "protocol/wire/framer.py",  # where a packet ends
    "protocol/session/incoming.py",  # what a client sends
    "protocol/session/routes.py",  # who has subscribed
    "protocol/session/message.py",
    "protocol/session/publishing.py",  # one message to all its receivers
    # To whom.
    "federation/host/copies.py",  # which peers, by what the route book remembers
    # Written down, and queued.
    "protocol/session/records.py",  # the bytes of the journal
    "protocol/session/commits.py",  # nothing leaves before it is stored
    "protocol/session/backlog.py",  # what waits for one receiver
    # Over the link.
    "protocol/session/links.py",  # the backlogs of peers
    "federation/links/link.py",  # collects batches
    "protocol/session/output.py",  # what waits for the network
    "protocol/wire/encoding.py",  # PUBACK here, PUBLISH of the batch and of the message there
    "federation/links/batch.py",  # the bytes of a batch
    "federation/links/mqtt_transport.py",
    # Into the subscriber's broker.
    "protocol/session/peer_incoming.py",  # what a peer sends
    "federation/host/receiving.py",
    "federation/links/inbox.py",  # what has come already
    # To the subscriber.
    "protocol/session/delivery.py",
    "protocol/session/seen_ids.py",  # what the session has had, wherever it goes next
)
SOURCES = str(Path(metromq.__file__).parent) + os.sep
ASIDE = ("lab/sim/sim_client.py",)  # whatever this calls is the client's business
TICKS = ("federation/host/host.py", ("tick", "rest_s"))


class Passed:
    """Notes the files whose functions are called, as a profiler."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self._aside = 0  # calls that do not count, one inside the other

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(SOURCES):
            return
        file, name = frame.f_code.co_filename.removeprefix(SOURCES).replace(os.sep, "/"), frame.f_code.co_name
        if file in ASIDE or (file == TICKS[0] and name in TICKS[1]):
            self._aside += 1 if event == "call" else -1
        elif event == "call" and not self._aside and not file.startswith("lab/"):
            self.files[file] = None


def way_of_a_message(routing: str) -> tuple[str, ...]:
    city = SimCity(grid_city(routing, count=3))
    city.start()
    here, there, _ = city.city.names
    publisher, subscriber = city.connect("p", here, keeps=True), city.connect("s", there, keeps=True)
    subscriber.subscribe("1/2/0/0/t", 1)
    city.run(3.0)
    for payload in ("first", "second", "third"):
        publisher.publish("1/2/0/0/t", payload, 1)
        city.run(1.0)
    publisher.publish("1/2/0/0/t", "counted", 1)
    passed = Passed()
    sys.setprofile(passed)
    try:
        city.clock.run_until(lambda: len(subscriber.received) == 4, 1.0)
    finally:
        sys.setprofile(None)
    assert subscriber.received[-1].payload == "counted"
    return tuple(passed.files)


@plain_only
@pytest.mark.parametrize("routing", ["geographic", "flood-subscriptions", "flood-publications", "central"])
def test_no_file_joins_the_way_of_a_message(routing: str) -> None:
    way = set(way_of_a_message(routing))
    assert way - set(WAY) == set(), "these are new on the way"
    assert set(WAY) - way == set(), "these are on the way no longer: good, take them off the list"
