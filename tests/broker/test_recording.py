"""What a broker counts for the lake: every message in the window of its own time."""

import pytest

from metromq.broker.recording import Telemetry
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.session.message import Message
from metromq.telemetry.windows import TOPIC, TelemetryRow

SECOND_US = 1_000_000


@pytest.fixture
def hub() -> Hub:
    made = Hub(HubSettings(), None, "b1")
    made.at(0.0, 100 * SECOND_US)
    return made


def publish(hub: Hub, second: float, topic: str, payload: bytes = b"1234") -> None:
    hub.at(second, int(second * SECOND_US))
    message = Message(topic, payload, 0)
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
