"""Outbox and inbox: nothing lost, nothing twice, in order, whatever breaks in between."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.links.batch import CHECK, SYNC, LinkMessage
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, DROP, REMEMBERED_CHECKED, SHARE, Inbox
from metromq.federation.links.outbox import Outbox
from metromq.federation.stages import FINAL, HANDOVER, OWNER
from metromq.protocol.session.message import Message


def entry(number: int, stage: int = FINAL, flags: int = 0, sequence: int | None = None, qos: int = 2) -> LinkMessage:
    message = Message("a", b"", qos, origin="origin", origin_offset=number)
    return LinkMessage(message, stage, number if sequence is None else sequence, flags)


@given(st.lists(st.sampled_from(["add", "send", "receive", "ack", "break", "crash"]), max_size=60))
@settings(deadline=None, max_examples=300)
def test_a_link_delivers_in_order_exactly_once(events: list[str]) -> None:
    outbox, inbox = Outbox(), Inbox()
    wire: list[list[LinkMessage]] = []
    acks = added = 0
    delivered: list[int] = []

    def receive() -> None:
        for item in wire.pop(0):
            if inbox.accept("sender", item, "me") & DELIVER:
                delivered.append(item.message.origin_offset)

    for event in (*events, "break", "send", "receive", "ack", *["send", "receive", "ack"] * 40):
        if event == "add":
            outbox.add(entry(added))
            added += 1
        elif event == "send" and (batch := outbox.next_batch()):
            wire.append(batch)
        elif event == "receive" and wire:
            receive()
            acks += 1
        elif event == "ack" and acks:
            outbox.acknowledged()
            acks -= 1
        elif event == "break":
            wire.clear()
            acks = 0
            outbox.lost()
            outbox.resume(inbox.cursor("sender"))
        elif event == "crash":  # the receiver's journal had the messages, but not yet the cursor behind them
            wire.clear()
            acks = 0
            inbox = Inbox()
            inbox.restore_cursor("sender", 1, delivered[-3] if len(delivered) > 2 else -1)
            for number in delivered:
                inbox.received("origin", number, DELIVER)
            outbox.lost()
            outbox.resume(inbox.cursor("sender"))
    assert delivered == list(range(added))
    assert len(outbox) == 0


def test_a_message_that_took_another_way_is_recognised() -> None:
    inbox = Inbox()
    assert inbox.accept("owner", entry(5), "me") == DELIVER
    assert inbox.accept("heir", entry(5, FINAL, CHECK, 1), "me") == DROP
    assert inbox.accept("heir", entry(6, FINAL, CHECK, 2), "me") == DELIVER
    assert inbox.accept("owner", entry(6), "me") == DROP, "the copy without a mark comes last, and long after"


def test_distributing_and_delivering_are_remembered_apart() -> None:
    inbox = Inbox()
    assert inbox.accept("b1", entry(5), "me") == DELIVER
    assert inbox.accept("b2", entry(5, HANDOVER, CHECK, 1), "me") == DISTRIBUTE
    assert inbox.accept("b3", entry(5, OWNER, CHECK, 1), "me") == DROP
    served = entry(7, HANDOVER)
    served.served, served.shares = ("me",), ("$share/g/a",)
    assert inbox.accept("b1", served, "me") == DISTRIBUTE | SHARE


def test_qos_0_and_retained_copies_are_not_remembered() -> None:
    inbox = Inbox()
    for _ in range(2):
        assert inbox.accept("b1", entry(-1, qos=0), "me") == DELIVER
    assert inbox.accept("b1", entry(3, FINAL, SYNC, 1), "me") == DELIVER
    assert inbox.accept("b1", entry(3, FINAL, 0, 2), "me") == DELIVER


def test_a_new_journal_starts_its_numbers_again() -> None:
    inbox = Inbox()
    inbox.journal_of("b1", 77)
    assert inbox.accept("b1", entry(9), "me") == DELIVER
    assert inbox.accept("b1", entry(4), "me") == DROP
    assert not inbox.journal_of("b1", 77)
    assert inbox.journal_of("b1", 78)
    assert inbox.accept("b1", entry(4), "me") == DELIVER
    assert inbox.cursor("b1") == 4


def test_the_memory_of_marked_copies_is_bounded_and_survives_a_snapshot() -> None:
    inbox = Inbox()
    for number in range(REMEMBERED_CHECKED + 10):
        assert inbox.accept("sender", entry(number, flags=CHECK), "me") == DELIVER
    again = Inbox()
    again.load(inbox.dump())
    for box in (inbox, again):
        late = REMEMBERED_CHECKED + 100
        assert box.accept("other", entry(10, sequence=late), "me") == DROP
        assert box.accept("other", entry(9, sequence=late + 1), "me") == DELIVER  # older than the memory
        assert len(box.dump()) <= 8 * (REMEMBERED_CHECKED + 1) + 100
