"""A link on a real hub: nothing lost, nothing twice, in order, whatever breaks in between."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.hop import Hop
from metromq.federation.hybrid_clock import HybridClock
from metromq.federation.links.batch import LinkMessage, decode_batch
from metromq.federation.links.frames import BATCH_TOPIC, CONTROL_TOPIC
from metromq.federation.links.inbox import DELIVER, Inbox
from metromq.federation.links.link import HARD_BYTES, MAX_BATCH_BYTES, MAX_BATCH_MESSAGES, SOFT_BYTES, Link
from metromq.federation.links.routing_slip import slip_of
from metromq.federation.links.transport import Transport, TransportEvents
from metromq.federation.stages import FINAL
from metromq.lab.sim.disk import Disk, DiskLog
from metromq.protocol.session.federation import Federation, LinkCopy
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_recovery import Snapshot, recover
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import Message

PEER = "peer"


class HandTransport(Transport):
    """Carries what the test lets it carry."""

    def __init__(self) -> None:
        self.wire: list[tuple[str, int, bytes]] = []  # kind, token, parcel
        self.events: TransportEvents | None = None
        self._token = 0

    def open(self, peer: str, events: TransportEvents) -> None:
        self.events = events

    def close(self, peer: str) -> None:
        self.break_off()

    def send(self, kind: str, parcel: bytes, must_store: bool) -> int:
        self._token += 1
        self.wire.append((kind, self._token, parcel))
        return self._token if must_store else 0

    def reset(self, peer: str, problem: str) -> None:
        self.break_off()

    def tick(self, now: float) -> None:
        """Nothing happens by itself."""

    def break_off(self) -> None:
        self.wire.clear()
        if self.events is not None:
            self.events.lost("broken off")

    def heal(self) -> None:
        assert self.events is not None
        self.events.opened(self)


class Sender(Federation):
    """A broker whose messages all go to one peer."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.hub = Hub(HubSettings(), DiskLog(disk), "me")
        self.hub.at(1.0, 1_000_000)
        self.hub.federate(self)
        recover(self.hub, disk.state, disk.after_state())
        self.transport = HandTransport()
        self.clock = HybridClock()
        self.link = Link(self.hub, self.hub.links.backlog(PEER), self.transport, self, self.clock)
        self.link.open()
        self.ups = 0

    def copies(self, message: Message) -> list[LinkCopy]:
        return [LinkCopy(self.hub.links.backlog(PEER), slip_of(Hop(PEER, FINAL)))]

    def link_up(self, link: Link) -> None:
        self.ups += 1
        self.hub.links.resume(link.backlog)

    def link_settled(self) -> None:
        pass

    def reads_time(self, peer: str) -> bool:
        return True

    def link_down(self, link: Link, problem: str) -> None:
        assert problem

    def publish(self, number: int) -> None:
        self.hub.publishing.publish(Message("a", str(number).encode(), 2), None)

    def commit(self) -> None:
        self.disk.write()
        self.hub.commits.committed(self.hub.commits.position)
        self.link.flush()


class Pair:
    """The sender and what its peer remembers and has delivered."""

    def __init__(self) -> None:
        self.sender = Sender(Disk("0a"))
        self.sender.transport.heal()
        self.inbox = Inbox()
        self.acks: list[int] = []
        self.delivered: list[int] = []
        self.published = 0
        self.certain = 0  # of those published, so many are on disk

    def do(self, event: str) -> None:
        transport = self.sender.transport
        if event == "publish":
            self.sender.publish(self.published)
            self.published += 1
        elif event == "commit":
            self.sender.commit()
            self.certain = self.published
        elif event == "receive" and transport.wire:
            self._receive()
        elif event == "ack" and self.acks:
            assert transport.events is not None
            transport.events.settled(self.acks.pop(0), True)
            self.sender.link.flush()
        elif event == "refuse" and self.acks:
            assert transport.events is not None
            transport.events.settled(self.acks.pop(0), False)
            self._again()
        elif event == "snapshot":
            self.do("commit")
            self.sender.disk.keep_state(b"".join(Snapshot(self.sender.hub).pieces()))
        elif event == "break":
            transport.break_off()
            self._again()
        elif event == "sender crashes":
            self.sender.disk.crash()
            self.sender = Sender(self.sender.disk)
            self.published = self.certain
            self._again()
        elif event == "receiver crashes":  # its journal had the messages, but not yet the cursor behind them
            self.inbox = Inbox()
            self.inbox.restore_cursor("me", 1, self.delivered[-3] if len(self.delivered) > 2 else -1)
            for number in self.delivered:
                self.inbox.received("me", number, DELIVER)
            self.do("break")

    def _again(self) -> None:
        self.acks.clear()
        self.sender.transport.heal()
        self.sender.link.flush()

    def _receive(self) -> None:
        kind, token, parcel = self.sender.transport.wire.pop(0)
        assert kind == BATCH_TOPIC
        entries: list[LinkMessage] = decode_batch(parcel, 1_000_000)
        for entry in entries:
            if self.inbox.accept("me", entry, PEER) & DELIVER:
                self.delivered.append(entry.message.origin_offset)
                assert int(entry.message.payload) == entry.message.origin_offset
        self.acks.append(token)


EVENTS = ("publish", "commit", "receive", "ack", "refuse", "snapshot", "break", "sender crashes", "receiver crashes")


@given(st.lists(st.sampled_from(EVENTS), max_size=60))
@settings(deadline=None, max_examples=300)
def test_a_link_delivers_in_order_exactly_once(events: list[str]) -> None:
    pair = Pair()
    for event in (*events, "commit", "break", *["receive", "ack"] * 70):
        pair.do(event)
    assert pair.delivered == list(range(pair.published))
    assert pair.sender.link.backlog.unsettled() == 0
    assert pair.sender.link.unacknowledged == 0


def test_a_batch_is_bounded_and_frames_keep_their_place() -> None:
    sender = Sender(Disk("0a"))
    sender.transport.heal()
    for number in range(MAX_BATCH_MESSAGES + 1):
        sender.publish(number)
    sender.disk.write()
    sender.hub.commits.committed(sender.hub.commits.position)
    sender.link.send_frame(b"frame")
    kinds = [kind for kind, _, _ in sender.transport.wire]
    assert kinds == [BATCH_TOPIC, BATCH_TOPIC, CONTROL_TOPIC]
    assert len(decode_batch(sender.transport.wire[0][2], 0)) == MAX_BATCH_MESSAGES


def test_a_choked_network_is_given_nothing_until_it_has_room() -> None:
    sender = Sender(Disk("0a"))
    sender.transport.heal()
    assert sender.transport.events is not None
    sender.transport.events.may_send(False)
    sender.publish(0)
    sender.commit()
    assert sender.transport.wire == []
    sender.transport.events.may_send(True)
    assert [kind for kind, _, _ in sender.transport.wire] == [BATCH_TOPIC]


LONG = 65_000


def choked(topic_bytes: int = LONG, between: bytes = b"") -> Sender:
    """A thousand messages of QoS 0 whose bytes are all in their topics, for a network that takes nothing; `between` is
    a packet that goes as it came, behind each."""
    sender = Sender(Disk("0a"))
    sender.transport.heal()
    assert sender.transport.events is not None
    sender.transport.events.may_send(False)
    output = sender.link.backlog.output
    assert output is not None
    for number in range(1_000):
        sender.hub.publishing.publish(Message(f"{number}/".ljust(topic_bytes, "x"), b""), None)
        if between:
            output.forward_run(between, 1, False, "", slip_of(Hop(PEER, FINAL)))
    sender.link.flush()
    return sender


def held_bytes(sender: Sender) -> int:
    entries = [entry.message.topic for entry in (*sender.link.fleeting, *sender.link.durable)]
    runs = sum(len(data) for data, _ in sender.link.runs)
    return sum(map(len, entries)) + runs + sum(len(parcel) for _, _, parcel in sender.transport.wire)


def test_topics_count_for_what_may_wait() -> None:
    """8,190 topics of 65 kB made a broker 300 MB larger: what waited for a slow link counted without its topics."""
    sender = choked()
    output = sender.link.backlog.output
    assert output is not None
    assert HARD_BYTES - 2 * LONG < held_bytes(sender) < HARD_BYTES + 2 * LONG
    assert output.dropped == 1_000 - len(sender.link.fleeting)
    assert sender.hub.delivery.take_slow() is output, "whoever publishes so fast is slowed down"
    assert output.waiting_bytes > SOFT_BYTES


def test_what_a_choked_network_is_given_so_that_nothing_is_overtaken_counts_too() -> None:
    sender = choked(between=b"\x30\x05\x00\x01axx")
    assert len(sender.transport.wire) > 100, "runs and messages in turn"
    assert held_bytes(sender) < HARD_BYTES + 2 * LONG
    assert sender.transport.events is not None
    sender.transport.wire.clear()
    sender.transport.events.may_send(True)
    output = sender.link.backlog.output
    assert output is not None
    assert (output.waiting_bytes, held_bytes(sender)) == (0, sum(len(parcel) for _, _, parcel in sender.transport.wire))


def test_a_network_that_chokes_again_is_not_given_the_rest() -> None:
    sender = choked()
    events, send = sender.transport.events, sender.transport.send
    assert events is not None

    def chokes(kind: str, parcel: bytes, must_store: bool) -> int:
        events.may_send(False)
        return send(kind, parcel, must_store)

    sender.transport.send = chokes  # type: ignore[method-assign]
    waited = len(sender.link.fleeting)
    events.may_send(True)
    assert sum(len(parcel) for _, _, parcel in sender.transport.wire) < MAX_BATCH_BYTES + 2 * LONG
    assert len(sender.link.fleeting) == waited - MAX_BATCH_BYTES // LONG


def test_of_messages_that_the_journal_keeps_few_are_under_way_when_their_topics_are_long() -> None:
    sender = Sender(Disk("0a"))
    sender.transport.heal()
    for number in range(200):
        sender.hub.publishing.publish(Message(f"{number}/".ljust(LONG, "x"), b"", 1), None)
        sender.commit()
    assert SOFT_BYTES - 2 * LONG < held_bytes(sender) < SOFT_BYTES + 4 * LONG
