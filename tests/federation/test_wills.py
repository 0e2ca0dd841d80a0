"""Wills of a lost broker's clients: fired once, in time, by another broker, unless the client is alive elsewhere."""

import pytest

from metromq.client import Will
from metromq.federation import grid_city
from metromq.federation.effects import FireWill, Keep, Send
from metromq.federation.host.last_wills import HOLD_S, WILL_SUFFIX, number_of_will
from metromq.federation.links.batch import CHECK, LinkMessage
from metromq.federation.links.frames import WillDropped, WillsFired, WillTold
from metromq.federation.stages import FINAL
from metromq.federation.wills import GRACE_US
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.wire import Properties
from tests.builds import plain_only
from tests.federation.host.one_host import OneHost, from_peer

ROUTINGS = ("geographic", "flood-subscriptions", "flood-publications", "central")
GRACE_S = GRACE_US / 1e6
SOON_S = GRACE_S + 2.0  # and what it takes to miss a broker
TOPIC = "1/2/alarm"


class Story:
    """A watcher at the first broker, and a client with a will at another, the last unless told otherwise."""

    def __init__(self, routing: str = "geographic", count: int = 3) -> None:
        self.city = SimCity(grid_city(routing, count=count, hello_interval_ms=200))
        self.names = self.city.city.names
        self.lost = self.names[-1]
        self.city.start()
        self.city.connect("watch", self.names[0], keeps=True)
        self.city.client("watch").subscribe("1/2/#", 2)
        self.city.run(1.0)

    def connect(self, qos: int = 1, delay_s: int = 0, keeps: bool = False, name: str = "cat") -> None:
        will = Will(TOPIC, name.encode(), qos, False, Properties(will_delay_s=delay_s))
        client = self.city.client(name)
        client.connect(self.lost, keeps, will)
        self.city.clock.run_until(lambda: client.is_open, 10.0)
        self.city.run(1.0)

    def fired(self, watcher: str = "watch") -> list[str]:
        return [delivery.payload for delivery in self.city.received(watcher)]

    def kill(self, name: str = "") -> None:
        self.city.brokers[name or self.lost].kill()

    def start(self, name: str = "") -> None:
        self.city.brokers[name or self.lost].start()

    def keeper(self, client: str = "cat") -> str:
        """The broker that keeps the will of a client."""
        host = self.city.brokers[self.lost].host
        assert host is not None
        return host.node.directory.heir_of(client, self.lost)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_will_of_a_lost_brokers_client_fires_once(routing: str, qos: int, keeps: bool) -> None:
    story = Story(routing)
    story.connect(qos, 0, keeps)
    story.kill()
    story.city.run(GRACE_S)
    assert story.fired() == [], "its client may come back elsewhere"
    story.city.run(2.0 if routing != "central" else 4.0)
    assert story.fired() == ["cat"]
    story.start()
    story.city.run(30.0)
    assert story.fired() == ["cat"], "its broker is back and must not fire it again"


def test_a_client_that_is_alive_elsewhere_leaves_no_will() -> None:
    story = Story(count=4)
    story.connect(1, 0, True)
    story.kill()
    story.city.run(0.3)
    story.city.connect("cat", story.names[1], keeps=True)
    story.city.run(60.0)
    assert story.fired() == []
    story.start()
    story.city.run(60.0)
    assert story.fired() == []


def test_a_client_that_came_back_elsewhere_and_said_goodbye_leaves_no_will() -> None:
    story = Story(count=4)
    story.connect()
    story.kill()
    story.city.run(2.0)
    story.city.connect("cat", story.names[1])
    story.city.client("cat").disconnect()
    story.city.run(60.0)
    assert story.fired() == []


def test_a_client_that_said_goodbye_leaves_no_will() -> None:
    story = Story()
    story.connect(1, 0, True)
    story.city.client("cat").disconnect()
    story.city.run(0.1)
    story.kill()
    story.city.run(60.0)
    story.start()
    story.city.run(60.0)
    assert story.fired() == []


@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_goodbye_that_nobody_could_be_told_counts(fault: str) -> None:
    """The keeper is out of reach when the client goes, and back before the broker is lost."""
    story = Story()
    story.connect()
    keeper = story.keeper()
    if fault == "kill":
        story.kill(keeper)
    else:
        story.city.network.cut(keeper, story.lost)
    story.city.run(0.3)
    story.city.client("cat").disconnect()
    story.city.run(0.1)
    story.city.network.heal()
    if fault == "kill":
        story.start(keeper)
    story.city.run(5.0)
    story.kill()
    story.city.run(60.0)
    assert story.fired() == []


def test_the_delay_counts_from_the_end_of_the_broker() -> None:
    story = Story()
    story.connect(1, 30, True)
    story.kill()
    story.city.run(30.0)
    assert story.fired() == []
    story.city.run(3.0)
    assert story.fired() == ["cat"]


def test_a_delay_that_was_counting_goes_on() -> None:
    story = Story()
    story.connect(1, 30, True)
    story.city.client("cat").vanish()
    story.city.run(15.0)
    story.kill()
    story.city.run(13.0)
    assert story.fired() == []
    story.city.run(3.0)
    assert story.fired() == ["cat"]
    story.start()
    story.city.run(60.0)
    assert story.fired() == ["cat"]


def test_the_delay_is_no_longer_than_the_session() -> None:
    story = Story()
    story.connect(1, 3000, False)
    story.kill()
    story.city.run(SOON_S)
    assert story.fired() == ["cat"]


def test_a_broker_that_is_back_in_time_fires_itself() -> None:
    story = Story()
    story.connect()
    story.kill()
    story.city.run(3.0)
    story.start()
    story.city.run(HOLD_S - 0.5)
    assert story.fired() == [], "it listens first"
    story.city.run(30.0)
    assert story.fired() == ["cat"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_note_that_a_will_was_fired_outlives_its_writer(qos: int) -> None:
    story = Story(count=4)
    story.connect(qos)
    keeper = story.keeper()
    story.kill()
    story.city.run(SOON_S + 1.0)
    before = story.fired()
    if keeper != story.names[0]:
        assert before == ["cat"]
        story.kill(keeper)
        story.city.run(3.0)
        story.start(keeper)
    story.city.run(5.0)
    story.start()
    story.city.run(30.0)
    assert story.fired() == before


@pytest.mark.parametrize("name", ["cat", "dog", "cow", "pig"])
def test_a_will_is_not_lost_with_its_keeper(name: str) -> None:
    """The keeper is lost first: another is told. Lost together with the broker: the broker fires when it is back."""
    story = Story(count=5)
    story.connect(name=name)
    keeper = story.keeper(name)
    if keeper == story.names[0]:
        pytest.skip("the watcher is there")
    story.kill(keeper)
    story.city.run(3.0)
    story.kill()
    story.city.run(SOON_S)
    assert story.fired() == [name]
    story.start()
    story.start(keeper)
    story.city.run(30.0)
    assert story.fired() == [name]


def test_a_will_whose_keeper_is_lost_with_the_broker_fires_when_the_broker_is_back() -> None:
    story = Story(count=5)
    story.connect(2)
    story.kill(story.keeper())
    story.kill()
    story.city.run(20.0)
    story.start()
    story.city.run(20.0)
    assert story.fired() in (["cat"], [])
    story.city.connect("watch", story.names[0], keeps=True)
    story.city.run(5.0)
    assert story.fired() == ["cat"] or story.keeper() == story.names[0]


def test_a_broker_that_was_cut_off_ends_clients_whose_wills_were_fired() -> None:
    """Both sides of a split believe the other dead. The will fires; its client is told, and may begin anew."""
    story = Story()
    story.connect(1, 0, True)
    story.city.network.split([story.lost], story.names)
    story.city.run(SOON_S + 2.0)
    assert story.fired() == ["cat"]
    assert story.city.client("cat").is_open
    story.city.network.heal()
    story.city.run(10.0)
    assert not story.city.client("cat").is_open
    story.city.connect("cat", story.lost, keeps=True)
    story.city.run(30.0)
    assert story.fired() == ["cat"]


def will_of(broker: str, time_us: int) -> WillTold:
    return WillTold(broker, "cat", time_us, 0, -1, TOPIC, b"cat", 2, False, -1, b"")


def test_a_will_that_came_from_elsewhere_is_not_fired_here_too() -> None:
    """Two brokers took themselves for its keeper: here its message has come, and then its time."""
    one = OneHost()
    one.subscribe("watch", "1/2/#")
    copy = from_peer(TOPIC, b"cat", "b2" + WILL_SUFFIX, number_of_will("cat", 7))
    one.batch("b1", [LinkMessage(copy, FINAL, 1, CHECK)])
    for time_us in (7, 8):  # the second is the will of a later CONNECT
        one.broker.run(lambda: one.host.run([FireWill(will_of("b2", time_us))]))  # noqa: B023
    assert one.got("watch") == ["cat", "cat"]


def test_a_broker_is_told_of_its_wills_until_it_has_heard_of_them() -> None:
    one = OneHost()
    wills = one.host.node.wills
    wills.told(will_of("b2", 7), 0)
    wills.living(("b0", "b1", "b3"), 0)
    assert FireWill(will_of("b2", 7)) in wills.tick(GRACE_US)
    told = Send("b2", WillsFired((("cat", 7),)))
    assert told in wills.met("b2", GRACE_US)
    assert wills.taken_back("b2", WillDropped("cat", 6)) == []
    assert told in wills.met("b2", GRACE_US)
    assert wills.taken_back("b2", WillDropped("cat", 7)) == [Keep("b2", WillsFired(()))]
    assert told not in wills.met("b2", GRACE_US)


def test_a_subscriber_at_the_lost_broker_gets_the_will_too() -> None:
    story = Story()
    story.city.connect("owl", story.lost, keeps=True)
    story.city.client("owl").subscribe("1/2/#", 2)
    story.connect(2)
    story.kill()
    story.city.run(SOON_S + 2.0)
    story.start()
    story.city.connect("owl", story.lost, keeps=True)
    story.city.run(30.0)
    assert story.fired("owl") == ["cat"]
    assert story.fired() == ["cat"]


@plain_only
def test_wills_of_many_clients_fire_and_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metromq.federation.wills.MOST_BYTES", 2000)
    story = Story(count=2)
    for number in range(20):
        story.connect(name=f"c{number}")
    keeper = story.city.brokers[story.names[0]].host
    assert keeper is not None
    assert keeper.node.wills.refused > 0
    story.kill()
    story.city.run(SOON_S)
    kept = len(story.fired())
    assert 0 < kept < 20
    story.start()
    story.city.run(30.0)
    assert sorted(story.fired()) == sorted(f"c{number}" for number in range(20)), "the rest fires when it is back"
