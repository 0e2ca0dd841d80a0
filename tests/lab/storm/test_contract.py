"""The judge by itself: each allowance holds for what it was made for, and a breach just outside of it is found."""

import pytest

from metromq.lab.storm.contract import WATCHER, judge
from metromq.lab.storm.seen import FOREVER, Delivered, Published, Seen, SeenConnection, Subscribed, Wish

LAG_S = 0.01


def city(routing: str = "flood-subscriptions") -> Seen:
    """A publisher `p` at b0, and `s`, whose session is at b0 and subscribed to everything at QoS 2."""
    seen = Seen(routing=routing, lag_s=LAG_S)
    for client in ("p", "s"):
        connect(seen, client, "b0", 0.0)
    seen.subscriptions.append(Subscribed("s", "#", 2, 1.0, 1.01))
    return seen


def connect(seen: Seen, client: str, broker: str, at: float, present: bool = True, apart: bool = False) -> None:
    seen.connections.append(
        SeenConnection(client, broker, True, None, at, at + 0.01, FOREVER, present=present, apart=apart)
    )


def publish(seen: Seen, payload: str, at: float, qos: int = 2, topic: str = "plain/d") -> None:
    seen.published.append(Published(len(seen.published), "p", "b0", topic, payload, qos, False, at, at + 0.01))


def deliver(seen: Seen, client: str, payload: str, *times: float, qos: int = 2) -> None:
    seen.delivered += [Delivered(client, at, "plain/d", payload, qos, False) for at in times]
    seen.delivered.sort(key=lambda one: one.at)


def rules(seen: Seen) -> set[str]:
    return {breach.split(":")[0] for breach in judge(seen)}


@pytest.mark.parametrize(
    ("qos", "broker", "expected"),
    [(0, "b1", set()), (0, "b0", {"twice"}), (2, "b1", {"twice"})],
    ids=["QoS 0 after a move", "QoS 0 back at its broker", "QoS 2 after a move"],
)
def test_qos_0_may_come_twice_to_a_client_that_moves(qos: int, broker: str, expected: set[str]) -> None:
    seen = city()
    publish(seen, "m", 5.0)
    connect(seen, "s", broker, 6.0)
    deliver(seen, "s", "m", 5.1, 7.0, qos=qos)
    assert rules(seen) == expected


@pytest.mark.parametrize(
    ("fault", "at", "qos", "expected"),
    [
        ("power", 5.045, 0, set()),
        ("tear", 5.045, 0, set()),
        ("kill", 5.045, 0, set()),
        ("pause", 5.045, 0, {"twice"}),
        ("kill", 5.035, 0, {"twice"}),
        ("kill", 5.065, 0, {"twice"}),
        ("kill", 6.495, 0, {"twice"}),
        ("kill", 5.045, 2, {"twice"}),
    ],
    ids=["power cut", "torn record", "kill", "freeze", "before", "later", "when it came again", "QoS 2"],
)
def test_qos_0_may_come_twice_if_a_crash_undid_the_message(fault: str, at: float, qos: int, expected: set[str]) -> None:
    seen = city()
    publish(seen, "m", 5.0)
    seen.faults.append((at, f"  {at:.3f}  {fault} #0"))
    deliver(seen, "s", "m", 5.05, 6.5, qos=qos)
    assert rules(seen) == expected


def test_what_was_published_at_qos_0_is_not_sent_again_after_a_crash() -> None:
    seen = city()
    publish(seen, "m", 5.0, qos=0)
    seen.faults.append((5.045, "  5.045  kill #0"))
    deliver(seen, "s", "m", 5.05, 6.5, qos=0)
    assert rules(seen) == {"twice"}


def test_each_repeat_at_qos_0_needs_a_crash() -> None:
    seen = city()
    publish(seen, "m", 5.0)
    seen.faults.append((5.045, "  5.045  kill #0"))
    deliver(seen, "s", "m", 5.05, 6.5, 7.0, qos=0)
    assert rules(seen) == {"twice"}


@pytest.mark.parametrize(
    ("moved", "broker", "qos", "expected"),
    [(4.995, "b1", 0, set()), (4.9, "b1", 0, {"order"}), (5.2, "b1", 0, {"order"}), (4.995, "b0", 0, {"order"})],
    ids=["as it was sent", "before", "later", "back at its broker"],
)
def test_what_a_client_at_qos_0_missed_in_a_move_may_come_late(
    moved: float, broker: str, qos: int, expected: set[str]
) -> None:
    seen = city()
    publish(seen, "one", 5.0)
    publish(seen, "two", 6.0)
    connect(seen, "s", broker, moved)
    deliver(seen, "s", "two", 6.1, qos=qos)
    deliver(seen, "s", "one", 7.0, qos=qos)
    assert rules(seen) == expected


def test_qos_0_comes_once_to_a_client_that_stays() -> None:
    seen = city()
    publish(seen, "m", 5.0, qos=1)
    deliver(seen, "s", "m", 5.1, 7.0, qos=0)
    assert rules(seen) == {"twice"}


@pytest.mark.parametrize(("times", "expected"), [((5.1, 7.0), set()), ((5.1, 7.0, 8.0), {"twice"})])
@pytest.mark.parametrize("present", [True, False])
def test_who_begins_anew_may_get_a_message_once_more(
    times: tuple[float, ...], expected: set[str], present: bool
) -> None:
    seen = city()
    publish(seen, "m", 5.0)
    connect(seen, "s", "b1", 6.0, present=present, apart=present)
    deliver(seen, "s", "m", *times)
    assert rules(seen) == expected


def test_who_goes_on_with_its_session_gets_a_message_once() -> None:
    seen = city()
    publish(seen, "m", 5.0)
    connect(seen, "s", "b1", 4.0, present=False)  # before, not between
    deliver(seen, "s", "m", 5.1, 7.0)
    assert rules(seen) == {"twice"}


@pytest.mark.parametrize(
    ("forgotten", "present", "apart", "is_kept"),
    [("m", False, True, True), ("other", False, True, False), ("m", True, True, False), ("m", False, False, False)],
    ids=["cut off", "it never came", "not anew", "within reach"],
)
@pytest.mark.parametrize("to", ["b0", "b2"])
@pytest.mark.parametrize(("topic_filter", "rule"), [("#", "lost"), ("$share/g/#", "shared lost")])
def test_what_a_client_forgot_when_it_began_anew_is_released_by_its_old_broker_that_is_cut_off(
    forgotten: str, present: bool, apart: bool, is_kept: bool, to: str, topic_filter: str, rule: str
) -> None:
    seen = city()
    seen.subscriptions[0].topic_filter = topic_filter
    publish(seen, "m", 5.0)
    connect(seen, "s", "b1", 6.0, present=present)
    connect(seen, "s", to, 7.0, apart=apart)
    seen.forgotten.add(("s", forgotten))
    assert rules(seen) == (set() if is_kept else {rule})


@pytest.mark.parametrize(("after_s", "expected"), [(0.5 * LAG_S, set()), (2 * LAG_S, {"lost"})])
def test_a_subscription_counts_after_the_lag(after_s: float, expected: set[str]) -> None:
    seen = city()
    publish(seen, "m", 1.01 + after_s)
    assert rules(seen) == expected


@pytest.mark.parametrize(
    ("healed", "sent", "expected"),
    [(FOREVER, 2.5, set()), (FOREVER, 3.5, {"lost"}), (0.4, 1.5, {"lost"})],
    ids=["while a link is slow", "later than two slow links", "after they are quick again"],
)
def test_slow_links_lengthen_the_lag_while_they_are_slow(healed: float, sent: float, expected: set[str]) -> None:
    seen = city()
    seen.slowed(0.0, 1.0 if healed == FOREVER else 0.3)
    if healed < FOREVER:
        seen.healed(healed)
    publish(seen, "m", sent)
    assert rules(seen) == expected


@pytest.mark.parametrize(("first", "expected"), [(0.5, set()), (1.5, {"order"})])
def test_only_messages_from_before_the_subscription_have_no_place(first: float, expected: set[str]) -> None:
    seen = city()
    publish(seen, "early", first)
    publish(seen, "late", 3.0)
    deliver(seen, "s", "late", 3.1)
    deliver(seen, "s", "early", 4.0)
    assert rules(seen) == expected


@pytest.mark.parametrize(
    ("begun", "over", "expected"),
    [(2.5, 3.05, set()), (1.0, 1.9, {"order"}), (4.5, 5.0, {"order"})],
    ids=["while it was under way", "before it was sent", "after it came"],
)
def test_what_is_under_way_when_the_routing_changes_may_be_overtaken(
    begun: float, over: float, expected: set[str]
) -> None:
    seen = city()
    publish(seen, "early", 2.0)
    publish(seen, "late", 3.0)
    deliver(seen, "s", "late", 3.1)
    deliver(seen, "s", "early", 4.0)
    seen.reroutes_from(begun)
    seen.rerouted(over)
    assert rules(seen) == expected


def group(routing: str, topic: str, *takers: str) -> Seen:
    seen = city(routing)
    for client in ("g", "h", "i"):
        connect(seen, client, "b1", 0.0)
        seen.subscriptions.append(Subscribed(client, "$share/g/#", 2, 1.0, 1.01))
    publish(seen, "m", 5.0, topic=topic)
    deliver(seen, "s", "m", 5.1)
    for number, taker in enumerate(takers):
        deliver(seen, taker, "m", 5.2 + number)
    return seen


def broken(seen: Seen, at: float, what: str = "hold #0 #1") -> Seen:
    seen.faults.append((at, f"{at:8.3f}  {what}"))
    return seen


def healed(seen: Seen, at: float) -> Seen:
    seen.mends.append((at, f"{at:8.3f}  heal"))
    return seen


def overtaken(sent: float, broker: str = "b1", fault: str = "kill #0") -> Seen:
    """`s` is let in at 5.01; of two messages the first comes later, when what broke at 4.99 is mended."""
    seen = city()
    connect(seen, "s", broker, 5.0)
    publish(seen, "one", sent)
    publish(seen, "two", sent + 0.001)
    if fault:
        broken(seen, 4.99, fault)
    deliver(seen, "s", "two", 6.1)
    deliver(seen, "s", "one", 9.0)
    return seen


def slowed(seen: Seen, by_s: float) -> Seen:
    seen.slowed(0.0, by_s)
    return seen


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (overtaken(5.005), set()),
        (overtaken(5.01 + 0.5 * LAG_S), set()),
        (overtaken(5.01 + 2 * LAG_S), {"order"}),
        (slowed(overtaken(5.01 + 2 * LAG_S), LAG_S), set()),
        (overtaken(5.005, fault=""), {"order"}),
        (overtaken(5.01 + 0.5 * LAG_S, fault=""), {"order"}),
        (overtaken(5.005, "b0"), {"order"}),
        (overtaken(5.01 + 0.5 * LAG_S, "b0"), {"order"}),
    ],
    ids=[
        "before it is let in",
        "before its publisher's broker has heard of that",
        "later",
        "that hears of it later by a slow link",
        "nothing is broken",
        "nothing is broken, within the lag",
        "it stays",
        "it stays, within the lag",
    ],
)
def test_what_goes_to_the_broker_that_a_client_has_left_may_be_overtaken_while_that_is_away(
    seen: Seen, expected: set[str]
) -> None:
    assert rules(seen) == expected


def called_again(broker: str = "b1", let_in: bool = False, fault: str = "pause #1", sent: float = 6.0) -> Seen:
    """As `overtaken`, of a client that calls at 5.0 and once more at 7.0, without a broker of before in between."""
    seen = city()
    connect(seen, "s", broker, 5.0)
    if not let_in:
        seen.connections[-1].opened = FOREVER
    connect(seen, "s", broker, 7.0)
    publish(seen, "one", sent)
    publish(seen, "two", sent + 0.001)
    if fault:
        broken(seen, 4.99, fault)
    deliver(seen, "s", "two", 7.05 + max(0.0, sent - 7.0))
    deliver(seen, "s", "one", 9.0)
    return seen


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (called_again(), set()),
        (called_again(sent=7.01 + 0.5 * LAG_S), set()),
        (called_again(sent=7.01 + 2 * LAG_S), {"order"}),
        (called_again(let_in=True), {"order"}),
        (called_again(fault=""), {"order"}),
        (called_again("b0"), {"order"}),
    ],
    ids=[
        "the broker did not answer at first",
        "within the lag",
        "later",
        "it was let in at once",
        "nothing is broken",
        "it is where it was",
    ],
)
def test_who_calls_the_same_broker_again_until_it_is_let_in_is_moving_still(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def test_a_stand_in_that_cannot_know_may_choose_once_more() -> None:
    assert rules(broken(group("geographic", "0/0/0/0/a", "g", "h"), 4.9)) == set()


def left(qos: int = 2, keeps: bool = False, sent: float = 5.0, ended: float = 5.005, asked: int = 2) -> Seen:
    """A message that nobody of a group got; `h` stays, the session of `g` has ended."""
    seen = city()
    connect(seen, "h", "b1", 0.0)
    seen.connections.append(SeenConnection("g", "b1", keeps, None, 0.0, 0.01, ended))
    for client, wanted in (("g", asked), ("h", 2)):
        seen.subscriptions.append(Subscribed(client, "$share/g/#", wanted, 1.0, 1.01))
    publish(seen, "m", sent, qos)
    deliver(seen, "s", "m", sent + 0.1)
    return seen


def then(seen: Seen, keeps: bool, opened: float, asked: float = 6.0) -> Seen:
    seen.connections.append(SeenConnection("g", "b0", keeps, None, asked, opened, FOREVER))
    return seen


def dies(seen: Seen, at: float, broker: str = "b1") -> Seen:
    seen.deaths.append((at, broker))
    return broken(seen, at, "kill #1")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (left(), set()),
        (left(1), {"shared lost"}),
        (left(asked=1), {"shared lost"}),
        (left(sent=4.9), {"shared lost"}),
        (left(sent=5.1), {"shared lost"}),
        (healed(broken(left(sent=4.0), 4.5), 4.6), set()),
        (left(ended=FOREVER), {"shared lost"}),
        (then(left(keeps=True), False, 6.01), set()),
        (then(left(1, keeps=True), False, 6.01), {"shared lost"}),
        (then(left(sent=5.5, keeps=True), False, 6.01), {"shared lost"}),
        (then(left(1, keeps=True), False, FOREVER), set()),
        (dies(left(1, ended=5.005), 5.005), set()),
        (dies(left(1, ended=5.005), 5.005, "b2"), {"shared lost"}),
        (dies(left(1, sent=4.5, ended=5.005), 5.005), {"shared lost"}),
        (then(dies(left(1, keeps=True), 5.005), False, 6.01), {"shared lost"}),
    ],
    ids=[
        "sent at QoS 2",
        "at QoS 1",
        "asked for at QoS 1",
        "long confirmed",
        "after its end",
        "held up until its end",
        "it did not end",
        "a clean start",
        "a clean start at QoS 1",
        "while it was away",
        "a clean start that nobody took",
        "it ends with its broker",
        "another broker dies",
        "before that",
        "with its broker dies what lasts",
    ],
)
def test_what_a_member_leaves_goes_to_another(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def test_an_owner_may_be_lost_in_the_moment_in_which_it_has_chosen() -> None:
    assert rules(broken(group("delegation", "plain/d", "g", "h"), 5.005, "split #1")) == set()


def held_then_lost(lost: str, healed_at: float = 9.0) -> Seen:
    """Nothing that #1 says reaches #0 when it chooses; later another thing breaks."""
    seen = broken(group("delegation", "plain/d", "g", "h"), 4.9, "hold #1 #0")
    return broken(healed(seen, healed_at), 6.0, lost)


def test_an_owner_may_be_lost_before_what_it_said_comes() -> None:
    assert rules(held_then_lost("split #1")) == set()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (broken(group("delegation", "plain/d", "g", "h"), 4.9, "split #1"), {"shared twice"}),
        (broken(group("delegation", "plain/d", "g", "h"), 4.9, "pause #1"), {"shared twice"}),
        (broken(group("delegation", "plain/d", "g", "h"), 5.02, "split #1"), {"shared twice"}),
        (broken(group("delegation", "plain/d", "g", "h"), 5.005, "slow #1 #0 0.3"), {"shared twice"}),
        (broken(group("delegation", "plain/d", "g", "h"), 4.9, "hold #1 #0"), {"shared twice"}),
        (held_then_lost("split #2"), {"shared twice"}),
        (held_then_lost("split #1", healed_at=5.5), {"shared twice"}),
        (broken(group("delegation", "plain/d", "g", "g"), 5.005, "split #1"), {"shared twice", "twice"}),
        (broken(group("delegation", "plain/d", "g", "h", "i"), 5.005, "split #1"), {"shared twice"}),
    ],
    ids=["before", "stood still", "after", "slow", "held", "another", "mended", "the same member", "three members"],
)
def test_an_owner_that_was_lost_before_it_could_choose_is_no_excuse(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (group("geographic", "0/0/0/0/a", "g", "h"), {"shared twice"}),
        (broken(group("geographic", "0/0/0/0/a", "g", "h"), 6.0), {"shared twice"}),
        (broken(group("geographic", "plain/d", "g", "h"), 4.9), {"shared twice"}),
        (broken(group("flood-subscriptions", "0/0/0/0/a", "g", "h"), 4.9), {"shared twice"}),
        (broken(group("geographic", "0/0/0/0/a", "g", "g"), 4.9), {"shared twice", "twice"}),
        (broken(group("geographic", "0/0/0/0/a", "g", "h", "i"), 4.9), {"shared twice"}),
    ],
    ids=["in calm", "broken later", "no area", "no owners", "the same member", "three members"],
)
def test_otherwise_a_group_gets_a_message_once(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def willed(delay_s: float, ended: float, back: float, broker: str = "b1", fired: bool = True) -> Seen:
    """`c` leaves a will at b0 and is back at `back`; its connection was over at `ended`."""
    seen = city()
    connect(seen, WATCHER, "b0", 0.0)
    connect(seen, "c", "b0", 20.0)
    seen.connections[-1].will = Wish("will/c", "w", delay_s)
    seen.connections[-1].ended = ended
    connect(seen, "c", broker, back)
    if fired:
        deliver(seen, WATCHER, "w", ended + delay_s + 0.1)
    return seen


def unanswered(seen: Seen, at: float) -> Seen:
    """The last CONNECT was not answered; another one was, later."""
    seen.connections[-1].asked, seen.connections[-1].opened = at, FOREVER
    connect(seen, "c", "b1", 120.0)
    return seen


def came_while_it_stood_still(since: float, before: str = "b1", at: float = 10.0) -> Seen:
    """`c` leaves a will at b0, which stood still since a time; it had connected to another broker before."""
    seen = city()
    connect(seen, WATCHER, "b0", 0.0)
    connect(seen, "c", before, at)
    connect(seen, "c", "b0", 20.0)
    seen.connections[-1].will = Wish("will/c", "w", 5.0)
    seen.connections[-1].ended, seen.connections[-1].still_since = 21.0, since
    return seen


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (came_while_it_stood_still(5.0), set()),
        (came_while_it_stood_still(15.0), {"will"}),
        (came_while_it_stood_still(FOREVER), {"will"}),
        (came_while_it_stood_still(5.0, "b0"), {"will"}),
    ],
    ids=["since before", "since it was elsewhere", "it did not stand still", "it was nowhere else"],
)
def test_a_connect_may_be_taken_for_older_than_a_standstill(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (willed(0.0, 30.0, 30.0), {"will"}),
        (willed(0.0, 30.0, 30.0, "b0"), set()),
        (willed(0.0, 30.0, 31.0), set()),
        (willed(5.0, 30.0, 33.0), {"will"}),
        (willed(5.0, 30.0, 33.0, "b0"), {"will"}),
        (willed(5.0, 30.0, 34.985), set()),
        (willed(5.0, 30.0, 36.0), set()),
        (broken(willed(5.0, 30.0, 33.0), 25.0), set()),
        (willed(0.0, 30.0, 70.0, fired=False), {"will"}),
        (unanswered(willed(5.0, 30.0, 33.0, fired=False), 33.0), set()),
        (unanswered(willed(5.0, 30.0, 33.0, fired=False), 70.0), {"will"}),
    ],
    ids=[
        "went on at another broker",
        "taken over at its broker",
        "lost, and back elsewhere",
        "back elsewhere in time",
        "back in time",
        "back when it was too late to tell",
        "back too late",
        "something was broken",
        "lost, and nobody fires it",
        "perhaps back in time",
        "perhaps back too late",
    ],
)
def test_a_will_fires_when_its_client_is_lost_and_not_when_it_moves(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def began_anew(broker: str, at: float, apart: bool = False) -> Seen:
    """The client `s` begins anew and then goes on, with a filter that its clean start voided."""
    seen = city()
    seen.connections.append(SeenConnection("s", "b1", False, None, 3.0, 3.01, 4.0))
    connect(seen, "s", broker, 4.0, present=False, apart=apart)
    seen.subscriptions[-1].ended = 3.0
    publish(seen, "m", 5.0)
    deliver(seen, "s", "m", at)
    return seen


def asked_again(since: float) -> Seen:
    seen = began_anew("b0", 5.1)
    seen.subscriptions.append(Subscribed("s", "plain/#", 2, since, since + 0.01))
    return seen


def died(broker: str, apart: bool) -> Seen:
    seen = began_anew("b0", 5.1)
    seen.connections[-2].apart = apart
    seen.deaths.append((3.5, broker))
    return seen


def began_anew_where_all_stood_still(since: float) -> Seen:
    seen = began_anew("b0", 5.1)
    seen.connections[-2].still_since = since
    return seen


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (began_anew("b0", 5.1), {"clean start"}),
        (began_anew("b1", 3.5), {"clean start"}),
        (began_anew("b0", 2.5), set()),
        (began_anew("b0", 5.1, apart=True), set()),
        (asked_again(4.5), set()),
        (asked_again(5.5), {"clean start"}),
        (died("b1", apart=True), set()),
        (died("b1", apart=False), {"clean start"}),
        (died("b0", apart=True), {"clean start"}),
        (began_anew_where_all_stood_still(0.0), set()),
        (began_anew_where_all_stood_still(2.0), {"clean start"}),
    ],
    ids=[
        "it comes by the session of before",
        "at once",
        "it came before",
        "it may have gone on with the session of before",
        "asked for again",
        "asked for later",
        "its broker could tell nobody and died",
        "its broker could tell and died",
        "another broker died",
        "its broker stood still since before the client was elsewhere",
        "its broker stood still later than that",
    ],
)
def test_a_clean_start_voids_what_was_before(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def two_values(apart_s: float, fault: str) -> Seen:
    """`b` is set after `a` was acknowledged, so much later; newcomers get `a`."""
    seen = city()
    seen.faults, seen.mends = [(1.0, f"1.0 {fault} #0 #1")], [(2.0, "2.0 heal")]
    for payload, at in (("a", 20.0), ("b", 20.01 + apart_s)):
        sent = Published(len(seen.published), "p", "b0", "plain/d", payload, 1, True, at, at + 0.01)
        seen.published.append(sent)
        deliver(seen, "s", payload, at + 0.02)
    seen.probes = {"b0": {"plain/d": "a"}, "b1": {"plain/d": "a"}}
    return seen


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (two_values(0.5 * LAG_S, "slow"), set()),
        (two_values(0.5 * LAG_S, "hold"), set()),
        (two_values(2 * LAG_S, "slow"), {"retained"}),
        (two_values(0.5 * LAG_S, "cut"), {"retained"}),
    ],
    ids=["after a slow link", "after one that was held up", "much later", "clocks were compared rightly"],
)
def test_the_later_of_two_values_stays(seen: Seen, expected: set[str]) -> None:
    assert rules(seen) == expected


def test_a_will_may_fire_while_its_broker_has_long_been_out_of_reach() -> None:
    """The split is older than what the judge takes for calm, and lasts."""
    for mended, expected in (((60.0, "60.0 heal"), set()), ((9.0, "9.0 heal"), {"will"})):
        seen = city()
        seen.faults, seen.mends = [(1.0, "1.0 split #0")], [mended]
        seen.connections.append(SeenConnection("w", "b1", True, Wish("will/w", "bye", 5.0), 30.0, 30.01, 40.0))
        connect(seen, "w", "b0", 42.0)
        connect(seen, WATCHER, "b1", 0.0)
        deliver(seen, WATCHER, "bye", 45.0)
        assert rules(seen) == expected
