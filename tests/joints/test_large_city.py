"""A live city that is too large for a link between every two brokers: clients of paho notice nothing of that."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from metromq.control import CityOptions, RunningCity
from metromq.federation import UP, City, CityStatus, grid_city
from tests.clients.paho_client import Paho, client, properties, unique
from tests.peers import play

CITY = grid_city(l_b=3, l_c=2, count=18)
KEPT = properties("CONNECT", SessionExpiryInterval=3600)


def with_city(path: Path, story: Callable[[City, CityStatus], Awaitable[None]]) -> None:
    async def run() -> None:
        running = RunningCity(CITY, path, (), CityOptions("memory"), print)
        try:
            await running.start(lambda keeper: None)
            await story(running.city, await running.joined(lambda up, wanted: None))
        finally:
            await running.stop()

    play(run())


def strangers(status: CityStatus) -> tuple[str, str]:
    """Two brokers without a link between them."""
    linked = {broker.name: {link.peer for link in broker.links} for broker in status.brokers}
    return next((one, other) for one in linked for other in linked if one != other and other not in linked[one])


def test_messages_and_sessions_go_between_brokers_that_keep_no_link(tmp_path: Path) -> None:
    async def story(city: City, status: CityStatus) -> None:
        assert {broker.state for broker in status.brokers} == {UP}
        assert max(len(broker.links) for broker in status.brokers) <= 10
        one, other = strangers(status)
        area = city.by_name[other].area.split()[0]
        topic = f"{area}/{unique('t')}"
        with client(city.by_name[one].port) as writer:
            reader = Paho(5, unique("roamer"), clean=False)
            assert reader.connect(city.by_name[other].port, properties=KEPT)[0] == 0
            reader.subscribe(topic, 2)
            for number in range(20):
                writer.publish(topic, str(number).encode(), 1 + number % 2)
            assert sorted(int(item.payload) for item in reader.take(20)) == list(range(20))
            reader.kill()
            writer.publish(topic, b"20", 2)
            assert reader.connect(city.by_name[one].port, properties=KEPT)[0] == 0, "its session follows it"
            assert [item.payload for item in reader.take(1)] == [b"20"]
            reader.close()

    with_city(tmp_path, story)
