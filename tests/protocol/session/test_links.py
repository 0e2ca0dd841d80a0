"""Backlogs of links: recorded as what they are, and still read from journals in which they were sessions."""

import json
from pathlib import Path
from typing import final

import pytest

from metromq.protocol.session import records
from metromq.protocol.session.federation import Federation, LinkCopy
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_recovery import Snapshot, recover
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import KIND_LINK, Message
from metromq.protocol.session.records import Target, decode_message, encode_message
from metromq.protocol.session.session import Session
from metromq.protocol.wire.packets import Connect, Publish
from tests.spec.world import ListLog, World

# Written by the release before LINK_OPENED: a reader that is away, a link to b10 that has acknowledged the first of
# three messages, and a message from b20 that was taken for uses 3; the snapshot was made before the third message.
OLD = json.loads((Path(__file__).parent / "links_as_sessions.json").read_text())
OLD_RECORDS = [(kind, offset, bytes.fromhex(body)) for kind, offset, body in OLD["records"]]


@final
class Peered(Federation):
    """A peer that gets a copy of everything that is published here."""

    def __init__(self) -> None:
        self.hub: Hub | None = None
        self.seen: list[tuple[str, int, int]] = []

    def copies(self, message: Message) -> list[LinkCopy]:
        assert self.hub is not None
        return [] if message.origin else [LinkCopy(self.hub.links.backlog("b10"), b"slip")]

    def replayed(self, message: Message, uses: int, holders: list[Session], copies: list[LinkCopy]) -> None:
        if message.origin:
            self.seen.append((message.origin, message.origin_offset, uses))


def recovered(log: ListLog, state: bytes | None, start: int = 0) -> tuple[Hub, Peered]:
    hub, city = Hub(HubSettings(), log), Peered()
    city.hub = hub
    hub.at(1.0, 1_900_000_000_000_000)
    hub.federate(city)
    recover(hub, state, iter(log.records[start:]))
    return hub, city


def waiting(hub: Hub) -> list[tuple[bytes, bytes]]:
    return [(hub.backlogs.load(entry).payload, entry.note) for entry in hub.links.backlog("b10").queue]


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_journals_in_which_links_were_sessions_are_read(with_snapshot: bool) -> None:
    start = OLD["snapshot_records"] if with_snapshot else 0
    state = bytes.fromhex(OLD["snapshot"]) if with_snapshot else None
    log = ListLog(OLD_RECORDS)
    hub, city = recovered(log, state, start)
    assert set(hub.sessions.by_client_id) == {"reader"}
    assert set(hub.links.by_peer) == {"b10"}
    assert waiting(hub) == [(b"second", b"slip"), (b"third", b"slip")]
    reader = hub.sessions.by_client_id["reader"]
    payloads = [hub.backlogs.load(entry).payload for entry in reader.backlog.queue]
    assert payloads == [b"first", b"second", b"from afar", b"third"]
    assert city.seen == ([] if with_snapshot else [("b20", 77, 3)])
    assert len(log.records) == len(OLD_RECORDS)  # the link is known: nothing was written for it


def test_a_snapshot_of_what_came_from_an_old_journal_is_read_again() -> None:
    log = ListLog(OLD_RECORDS)
    hub, _ = recovered(log, None)
    again, _ = recovered(log, b"".join(Snapshot(hub).pieces()), len(log.records))
    assert waiting(again) == [(b"second", b"slip"), (b"third", b"slip")]
    assert again.links.backlog("b10").number == hub.links.backlog("b10").number
    assert again.backlogs.next_number == hub.backlogs.next_number


def test_a_link_is_recorded_as_a_link() -> None:
    log = ListLog()
    hub, _ = recovered(log, None)
    hub.links.backlog("b10")
    hub.publishing.publish(Message("a", b"1", 1), None)
    assert [kind for kind, _, _ in log.records] == [records.LINK_OPENED, records.MESSAGE]
    log.flush()
    again, _ = recovered(ListLog(log.records), None)
    assert waiting(again) == [(b"1", b"slip")]
    assert not again.sessions.by_client_id


def test_what_a_link_brought_was_taken_for_is_a_field_of_its_own() -> None:
    message = Message("a", b"payload", 1, kind=KIND_LINK, origin="b20", origin_offset=5)
    record = decode_message(encode_message(message, [Target(3, 1)], uses=7))
    assert (record.uses, record.packet_id, record.message.payload) == (7, 0, b"payload")
    older = decode_message(encode_message(message, [Target(3, 1)], 0, 7))
    assert (older.uses, older.packet_id, older.message.payload) == (7, 0, b"payload")
    own = decode_message(encode_message(Message("a", b"payload", 2), [], 4, 7))
    assert (own.uses, own.packet_id, own.publisher_session) == (0, 7, 4)


def test_a_session_that_moved_here_is_served_after_a_snapshot_and_a_restart() -> None:
    """What came with it is the newest message: a snapshot must know that it is stored."""
    world = World()
    session = world.hub.sessions.adopt("mover", "", 1)
    world.hub.sessions.record(session)
    world.hub.sessions.queue_again(session, Message("a", b"moved", 1), 1, (), 0)
    world.take_snapshot()
    world.crash()
    client = world.client()
    client.send(Connect("mover", clean_start=False))
    assert [packet.payload for packet in client.take() if isinstance(packet, Publish)] == [b"moved"]
