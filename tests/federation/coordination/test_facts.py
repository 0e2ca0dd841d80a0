"""The book: one rule to merge by, and the same book whatever way facts came."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.federation.city import grid_city
from metromq.federation.coordination.facts import AREA, BROKER, CLUSTER, FILTER, Book, Change, Fact
from metromq.federation.coordination.succession import TopicTable
from metromq.federation.routing.geographic import AreaSuccession

FIRST = (Fact(AREA, "0/0", "a", 0), Fact(AREA, "0/1", "b", 0))
FACTS = st.lists(
    st.builds(
        Fact,
        st.sampled_from([AREA, FILTER, CLUSTER, BROKER]),
        st.sampled_from(["0/0", "0/1", "9/9", "a", "d"]),
        st.sampled_from(["", "a", "b", "c"]),
        st.integers(0, 3),
        st.sampled_from(["", "x", "y"]),
    ),
    max_size=12,
)


def book() -> Book:
    return Book(("a", "b", "c"), FIRST, {AREA})


@given(FACTS, st.randoms())
@settings(deadline=None, max_examples=300)
def test_facts_merge_to_the_same_book_in_any_order(facts: list[Fact], random: Random) -> None:
    one, other = book(), book()
    one.merge(facts)
    shuffled = facts * 2
    random.shuffle(shuffled)
    for fact in shuffled:
        other.merge([fact])
    assert one.digest() == other.digest()
    assert set(one.facts()) == set(other.facts())
    assert one.members == other.members
    gone = {"a", "c"} | {fact.owner for fact in one.facts()} - set(one.members)
    left = {fact for fact in one.facts() if fact.kind != BROKER and fact.owner and fact.owner in gone}
    assert set(one.orphans({"a", "c"})) == set(other.orphans({"a", "c"})) == left
    assert set(one.said()) == set(one.facts()) - set(FIRST)
    for kind, key in {(fact.kind, fact.key) for fact in (*FIRST, *facts)}:
        known = [fact for fact in (*FIRST, *facts) if (fact.kind, fact.key) == (kind, key)]
        if kind == AREA and key not in ("0/0", "0/1"):
            assert one.get(kind, key).epoch == -1, "a city has no areas but its own"
        else:
            assert one.get(kind, key) == max(known, key=lambda fact: fact.version)


OTHER_FIRST = (Fact(AREA, "0/0", "a", 0), Fact(AREA, "0/1", "c", 0), Fact(AREA, "0/2", "c", 0))


@given(FACTS, st.sampled_from([FIRST, OTHER_FIRST, ()]))
@settings(deadline=None, max_examples=300)
def test_with_another_description_what_is_known_stays(facts: list[Fact], first: tuple[Fact, ...]) -> None:
    own = book()
    own.merge(facts)
    before = {(fact.kind, fact.key): fact for fact in own.facts()}
    own.found(("a", "c", "d"), first)
    areas = {(AREA, fact.key): before.get((AREA, fact.key), fact) for fact in first}
    expected = {place: fact for place, fact in before.items() if place[0] != AREA} | areas
    assert {(fact.kind, fact.key): fact for fact in own.facts()} == expected
    again = Book(("a", "c", "d"), first, {AREA})
    again.merge(expected.values())
    if set(again.facts()) == set(own.facts()):  # unless a first fact is newer than what was known
        assert own.digest() == again.digest()
    assert own.members == again.members
    assert set(own.orphans(())) == {
        fact for fact in own.facts() if fact.kind != BROKER and fact.owner and fact.owner not in own.members
    }


def test_equal_digests_are_equal_books() -> None:
    one, other = book(), book()
    one.merge([Fact(FILTER, "a", "b", 1)])
    other.merge([Fact(CLUSTER, "a", "b", 1)])
    assert one.digest() != other.digest() != book().digest()


def test_a_fact_that_was_withdrawn_stays_withdrawn() -> None:
    own = book()
    own.merge([Fact(FILTER, "bus/#", "b", 4)])
    (change,) = own.merge([own.next(FILTER, "bus/#", "")])
    assert change == Change(Fact(FILTER, "bus/#", "b", 4), Fact(FILTER, "bus/#", "", 5))
    assert own.merge([Fact(FILTER, "bus/#", "c", 4)]) == ()
    assert own.owner(FILTER, "bus/#") == ""


def test_members_are_the_founders_and_who_joined_without_who_left() -> None:
    own = book()
    own.merge([own.next(BROKER, "e", "e", "10.0.0.5:1883"), own.next(BROKER, "d", "d")])
    assert list(own.members) == ["a", "b", "c", "d", "e"]
    own.merge([own.next(BROKER, "b", "")])
    assert list(own.members) == ["a", "c", "d", "e"]
    assert own.knows_broker("b")
    assert not own.knows_broker("mallory")
    own.merge([own.next(BROKER, "b", "b")])
    assert list(own.members) == ["a", "b", "c", "d", "e"]


def test_the_responsible_broker_is_at_home_where_the_home_broker_left_for_good() -> None:
    succession = AreaSuccession(grid_city())
    own = Book(grid_city().names, succession.first(), {AREA})
    table = TopicTable(own, succession)
    own.merge([own.next(AREA, "1/2", "b13")])
    assert (table.owner("1/2"), table.home("1/2")) == ("b13", "b12")
    own.merge([own.next(BROKER, "b12", "")])
    assert (table.owner("1/2"), table.home("1/2")) == ("b13", "b13")
