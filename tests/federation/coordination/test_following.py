"""Who follows the description of a large city: sets add up in any order, and nobody is counted who has not said so."""

from hypothesis import given
from hypothesis import strategies as st

from metromq.federation.coordination.facts import CITY, Fact, weight
from metromq.federation.coordination.following import Following

NAMES = tuple(f"b{number}" for number in range(40))
SETS = st.lists(st.sets(st.integers(0, len(NAMES) - 1)), max_size=8)


def described(epoch: int, value: str = "a city") -> Fact:
    return Fact(CITY, CITY, "b0", epoch, value)


def following(epoch: int, *followers: str) -> Following:
    found = Following()
    found.begin(described(epoch), NAMES)
    for name in followers:
        found.add(name)
    return found


@given(SETS)
def test_sets_add_up_as_python_sets_do(heard: list[set[int]]) -> None:
    one, other = following(3), following(3)
    for places in heard:
        one.hear(one.mark, sum(1 << place for place in places))
    for places in reversed(heard):
        other.hear(other.mark, sum(1 << place for place in places))
    known = set().union(*heard)
    assert {name for name in NAMES if one.has(name)} == {NAMES[place] for place in known}
    assert one.bits == other.bits
    assert one.digest() == other.digest()
    assert (one.digest() == 0) == (len(known) == len(NAMES))
    assert one.is_news == bool(known)


def test_sets_of_another_description_and_members_that_it_does_not_have_say_nothing() -> None:
    one = following(3)
    one.hear(weight(described(3, "another city")), 0b111)
    one.hear(one.mark, 1 << len(NAMES))
    one.add("a stranger")
    assert (one.bits, one.is_news) == (0, False)
    fresh = Following()
    fresh.hear(0, 0b1)
    assert (fresh.bits, fresh.digest()) == (0, 0), "at the start there is only the city's file"


def test_what_was_followed_before_is_known_through_further_changes() -> None:
    one = following(1, *NAMES)
    one.begin(described(2), (*NAMES, "newcomer"))
    assert {one.followed(name) for name in NAMES} == {1}
    assert one.followed("newcomer") == 0
    one.add("b1")
    one.begin(described(3), (*NAMES, "newcomer"))
    one.add("b2")
    assert [one.followed(name) for name in ("b0", "b1", "b2", "newcomer", "a stranger")] == [1, 2, 3, 0, 0]
