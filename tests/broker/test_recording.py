"""What a broker counts for the lake: every message in the window of its own time."""

import pytest

from metromq.broker.recording import Telemetry
from metromq.federation.city import grid_city
from metromq.lab.sim.sim_city import SimCity
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import KIND_LINK, Message
from metromq.protocol.wire.packets import Subscription
from metromq.telemetry.windows import CLOCK, TOPIC, TOPIC_FROM, TelemetryRow

SECOND_US = 1_000_000


@pytest.fixture
def hub() -> Hub:
    made = Hub(HubSettings(), None, "b1")
    made.at(0.0, 100 * SECOND_US)
    return made


def publish(hub: Hub, second: float, topic: str, qos: int = 0) -> None:
    hub.at(second, int(second * SECOND_US))
    message = Message(topic, b"1234", qos)
    message.time_us = hub.clock.wall_us
    message.publisher = "p"
    hub.publishing.publish(message, None)


def test_a_message_counts_in_the_window_of_its_time(hub: Hub) -> None:
    telemetry = Telemetry(hub, "north", 10.0, None)
    publish(hub, 101, "a")
    publish(hub, 109.9, "a")
    publish(hub, 110.01, "a")  # before anybody looked
    (ended,) = telemetry.take()
    assert (ended.start_us, [row.publications for row in ended.rows]) == (100 * SECOND_US, [2])
    publish(hub, 111, "b")
    publish(hub, 135, "a")
    first = telemetry.take()
    assert [window.start_us for window in first] == [110 * SECOND_US]
    (last,) = telemetry.take(force=True)
    assert last.start_us == 130 * SECOND_US
    assert last.rows == (TelemetryRow(TOPIC, "a", publications=1, published_bytes=4, publishers=1),)
    assert telemetry.take() == []
    assert {(row.name, row.publications) for row in first[0].rows} == {("a", 1), ("b", 1)}


def test_windows_have_names_of_their_own(hub: Hub) -> None:
    telemetry = Telemetry(hub, "north", 10.0, None)
    publish(hub, 101, "a")
    stopped = telemetry.take(force=True)
    publish(hub, 102, "a")
    again = telemetry.take(force=True)
    assert [window.start_us for window in stopped + again] == [100 * SECOND_US] * 2
    assert stopped[0].sequence < again[0].sequence
    publish(hub, 125, "b")
    hub.at(130.0, 130 * SECOND_US)
    assert [window.start_us for window in telemetry.take()] == [120 * SECOND_US]  # the windows between are empty


def test_a_subscription_that_is_granted_again_is_no_further_subscriber(hub: Hub) -> None:
    telemetry = Telemetry(hub, "north", 10.0, None)
    session = hub.sessions.adopt("c", "", 0)
    for _ in range(3):
        hub.subscriptions.subscribe(session, Subscription("a", 1), 0)
    (window,) = telemetry.take(force=True)
    assert window.rows == (TelemetryRow(TOPIC, "a", subscribers=1, opened=1),)


def test_deliveries_count_by_the_broker_of_the_publisher(hub: Hub) -> None:
    telemetry = Telemetry(hub, "north", 10.0, None)
    session = hub.sessions.adopt("c", "", 0)
    hub.subscriptions.subscribe(session, Subscription("a", 1), 0)
    publish(hub, 101, "a", 1)
    for offset in range(2):
        came = Message("a", b"1234", 1, origin="b2", origin_offset=offset)
        came.kind = KIND_LINK
        hub.publishing.publish_from_peer(came, 0, True)
    (window,) = telemetry.take(force=True)
    (whole,) = [row for row in window.rows if row.subject == TOPIC]
    assert (whole.publications, whole.deliveries_local) == (1, 3)
    origins = {row.detail: row.deliveries_local for row in window.rows if row.subject == TOPIC_FROM}
    assert origins == {"b1": 1, "b2": 2}


def test_what_is_not_for_a_client_of_this_broker_is_no_delivery(hub: Hub) -> None:
    """QoS 0 for someone who is not connected; anything for a session that has left: its new broker counts it."""
    telemetry = Telemetry(hub, "north", 10.0, None)
    session = hub.sessions.adopt("c", "", 0)
    hub.subscriptions.subscribe(session, Subscription("a", 1), 0)
    publish(hub, 101, "a")
    session.departed_to = "b2"
    publish(hub, 102, "a", 1)
    (window,) = telemetry.take(force=True)
    (whole,) = [row for row in window.rows if row.subject == TOPIC]
    assert (whole.publications, whole.deliveries_local, whole.delivered_bytes) == (2, 0, 0)


def test_a_window_says_how_far_the_clocks_of_peers_are_ahead() -> None:
    """The lake needs it to know how long messages took from a broker with a wrong clock."""
    city = SimCity(grid_city("flood-publications", count=2, hello_interval_ms=200))
    own, wrong = (city.brokers[name] for name in city.city.names)
    wrong.skew_us = 600_000_000
    city.start()
    city.run(2.0)
    assert own.hub is not None
    telemetry = Telemetry(own.hub, "north", 1.0, own.host)
    assert not telemetry.take(force=True), "clocks alone are no news"
    city.connect("pub", own.name).publish("a", "x", 1, False)
    city.run(1.0)
    rows = [row for window in telemetry.take(force=True) for row in window.rows if row.subject == CLOCK]
    assert rows
    assert {row.name for row in rows} == {wrong.name}
    assert all(abs(int(row.detail) - 600_000_000) < 10_000 for row in rows)
