"""The inbox: what came before is recognised, whichever way it took."""

from metromq.federation.links.batch import CHECK, PASSED, SYNC, LinkMessage
from metromq.federation.links.inbox import DELIVER, DISTRIBUTE, DROP, REMEMBERED_CHECKED, SHARE, Inbox, recorded
from metromq.federation.stages import FINAL, HANDOVER, OWNER
from metromq.protocol.session.message import Message


def entry(number: int, stage: int = FINAL, flags: int = 0, sequence: int | None = None, qos: int = 2) -> LinkMessage:
    message = Message("a", b"", qos, origin="origin", origin_offset=number)
    return LinkMessage(message, stage, number if sequence is None else sequence, flags)


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


def shared(number: int, flags: int, sequence: int, *shares: str) -> LinkMessage:
    made = entry(number, FINAL, flags, sequence)
    made.served, made.shares = ("me",), shares
    return made


def test_shared_subscriptions_are_remembered_one_by_one() -> None:
    inbox = Inbox()
    assert inbox.accept("b1", shared(5, 0, 1, "$share/g/a"), "me") == SHARE
    both = shared(5, CHECK, 1, "$share/g/a", "$share/h/a")
    assert inbox.accept("b2", both, "me") == SHARE
    assert both.shares == ("$share/h/a",)
    inbox.shared("origin", 6, ["$share/g/a"])
    assert inbox.accept("b1", shared(6, CHECK, 2, "$share/g/a"), "me") == DROP
    assert inbox.has_shared("origin", 6, "$share/g/a")


def test_a_restart_remembers_that_a_copy_was_marked() -> None:
    """Of a message that a stand-in distributed: the copy of the owner that returns has no mark."""
    inbox = Inbox()
    marked = shared(5, CHECK, 1, "$share/g/a")
    uses = inbox.accept("heir", marked, "me")
    again = Inbox()
    again.received("origin", 5, recorded(uses, marked), ["$share/g/a"])
    for box in (inbox, again):
        assert box.accept("owner", shared(5, 0, 1, "$share/g/a"), "me") == DROP
    plain = entry(7, FINAL, CHECK, 2)
    again.received("origin", 7, recorded(inbox.accept("heir", plain, "me"), plain))
    assert again.accept("owner", entry(7, sequence=2), "me") == DROP
    unmarked = Inbox()
    unmarked.received("origin", 5, recorded(SHARE, shared(5, 0, 1)), ["$share/g/a"])
    assert unmarked.accept("owner", shared(5, 0, 1, "$share/g/a"), "me") == SHARE  # its memory may be of any age


def test_what_members_pass_on_comes_back_once_per_pass() -> None:
    inbox = Inbox()
    inbox.shared("origin", 5, ["$share/g/a"])
    first = shared(5, CHECK | PASSED, 1, "$share/g/a")
    first.limit = 14
    uses = inbox.accept("b1", first, "me")
    assert uses & SHARE
    again = Inbox()
    again.received("origin", 5, uses)
    for limit, expected in ((14, 0), (12, SHARE)):
        repeat = shared(5, CHECK | PASSED, limit, "$share/g/a")
        repeat.sequence, repeat.limit = 20 - limit, limit
        assert again.accept("b1", repeat, "me") & SHARE == expected


def test_what_was_passed_to_a_member_here_is_known_as_chosen() -> None:
    inbox = Inbox()
    passed = shared(5, CHECK | PASSED, 1, "$share/g/a")
    passed.limit = 14
    inbox.accept("b1", passed, "me")
    assert inbox.has_shared("origin", 5, "$share/g/a")
    assert not inbox.has_shared("origin", 6, "$share/g/a")


def test_after_a_restart_only_the_groups_that_were_served_are_taken_for_served() -> None:
    inbox = Inbox()
    inbox.received("origin", 5, SHARE, ["$share/g/a"])
    both = shared(5, CHECK, 1, "$share/g/a", "$share/h/a")
    assert inbox.accept("b1", both, "me") == SHARE
    assert both.shares == ("$share/h/a",)
    inbox.received("origin", 6, SHARE)  # its members have gone: nobody knows which groups they were of
    assert inbox.accept("b1", shared(6, CHECK, 2, "$share/h/a"), "me") == DROP


def test_others_that_have_chosen_may_have_chosen_us() -> None:
    inbox = Inbox()
    inbox.shared_elsewhere("origin", 5, ["$share/g/a"])
    assert inbox.has_shared("origin", 5, "$share/g/a")
    assert inbox.accept("b1", shared(5, CHECK, 1, "$share/g/a"), "me") == SHARE


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


def test_what_is_added_between_look_ups_is_found() -> None:
    inbox = Inbox()
    for number in range(5):
        inbox.shared("origin", number, ["$share/g/a"])
        for _ in range(3):
            assert [inbox.has_shared("origin", other, "$share/g/a") for other in (number, number + 1)] == [True, False]


def test_a_group_whose_member_has_gone_is_open_until_another_is_chosen() -> None:
    inbox = Inbox()
    inbox.shared("origin", 5, ["$share/g/a"])
    inbox.not_shared("origin", 5, ["$share/g/a"])
    assert not inbox.has_shared("origin", 5, "$share/g/a")
    inbox.shared("origin", 5, ["$share/g/a"], True)
    assert inbox.has_shared("origin", 5, "$share/g/a")
