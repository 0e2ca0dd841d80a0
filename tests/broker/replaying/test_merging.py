"""Old messages of a city: by time, each once, whichever brokers are away, and from when on."""

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from metromq.broker.replaying.merging import BrokerAway, Merge
from metromq.protocol.replay import OWN, FetchAnswer, FetchRequest, hold
from metromq.protocol.session import KIND_LINK, Message, Selection, records

NAMES = ("b1", "b2", "b3")


class City:
    """Journals in memory: every message at its origin, and at the brokers that it went to."""

    def __init__(self) -> None:
        self.journals: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.published: list[tuple[int, str, int, bytes]] = []  # time, origin, offset, payload
        self.answers: dict[str, int] = {}  # a broker that is killed gives so many more

    def publish(self, origin: str, time_us: int, goes_to: set[str]) -> None:
        payload = f"{origin} {len(self.published)}".encode()
        offset = len(self.journals[origin])
        self._write(origin, Message("a/b", payload, 1, time_us=time_us))
        for peer in goes_to - {origin}:
            self._write(
                peer, Message("a/b", payload, 1, time_us=time_us, kind=KIND_LINK, origin=origin, origin_offset=offset)
            )
        self.published.append((time_us, origin, offset, payload))

    def _write(self, broker: str, message: Message) -> None:
        self.journals[broker].append(records.encode_message(message, []))

    def asker(self, broker: str) -> Callable[[FetchRequest], object]:
        async def ask(request: FetchRequest) -> FetchAnswer:
            left = self.answers.get(broker, 1 << 30)
            if left == 0:
                raise BrokerAway(f"{broker} is away")
            self.answers[broker] = left - 1
            return self.answer(broker, request)

        return ask

    def answer(self, broker: str, request: FetchRequest) -> FetchAnswer:
        answer = FetchAnswer(broker, f"journal of {broker}")
        journal = self.journals[broker]
        answer.end = len(journal)
        answer.next = max(request.start, 0)
        if request.max_bytes:
            to = min(request.to, len(journal), answer.next + 3)
            chosen = Selection(request.topic_filter, request.origin, request.since_us)
            hold(answer, chosen.of([(offset, journal[offset]) for offset in range(answer.next, to)]))
            answer.next = to
        return answer


async def replay(city: City, merge: Merge, more: Callable[[], None]) -> list[bytes]:
    await merge.open()
    got = [item.message.payload async for item in merge.messages()]
    more()
    await merge.reach({"b1": len(city.journals["b1"])})
    return got + [item.message.payload async for item in merge.messages()]


steps = st.tuples(st.sampled_from(NAMES), st.sets(st.sampled_from(NAMES)))


@settings(deadline=None, max_examples=200)
@given(st.lists(steps, max_size=30), st.lists(steps, max_size=10), st.integers(0, 25))
def test_each_once_and_by_time(first: list[tuple[str, set[str]]], then: list[tuple[str, set[str]]], since: int) -> None:
    city = City()
    for number, (origin, goes_to) in enumerate(first):
        city.publish(origin, number, goes_to)

    def more() -> None:
        for number, (origin, goes_to) in enumerate(then):
            city.publish(origin, 100 + number, goes_to)

    merge = Merge("b1", {name: city.asker(name) for name in NAMES}, "a/#", since)  # type: ignore[misc]
    got = asyncio.run(replay(city, merge, more))
    assert got == [payload for time_us, _, _, payload in city.published if time_us >= since]
    assert merge.limits() == {name: len(city.journals[name]) for name in NAMES}
    assert merge.notices == []


@settings(deadline=None, max_examples=200)
@given(st.lists(steps, max_size=30), st.integers(0, 12))
def test_a_broker_that_goes_away_is_replaced_by_copies(first: list[tuple[str, set[str]]], answers: int) -> None:
    city = City()
    for number, (origin, goes_to) in enumerate(first):
        city.publish(origin, number, goes_to)
    city.answers["b2"] = answers
    merge = Merge("b1", {name: city.asker(name) for name in NAMES}, "a/#", 0)  # type: ignore[misc]
    got = asyncio.run(replay(city, merge, lambda: None))
    assert len(got) == len(set(got))
    is_away = "b2" in merge.away
    travelled = {
        payload
        for number, (origin, goes_to) in enumerate(first)
        for time_us, _, _, payload in city.published[number : number + 1]
        if origin != "b2" or goes_to - {"b2"}
    }
    assert travelled <= set(got)
    assert is_away == any("b2 is away; messages of b2 come" in notice for notice in merge.notices)
    if is_away:
        complete = {
            payload for _, origin, offset, payload in city.published if origin == "b2" and offset < merge.away["b2"]
        }
        assert complete <= set(got)


def test_own_is_what_clients_of_the_broker_published() -> None:
    city = City()
    city.publish("b1", 0, {"b2"})
    assert len(city.answer("b1", FetchRequest(0, 9, origin=OWN)).bodies_list()) == 1
    assert city.answer("b2", FetchRequest(0, 9, origin=OWN)).bodies_list() == []
    assert len(city.answer("b2", FetchRequest(0, 9, origin="b1")).bodies_list()) == 1
