"""The rhythm of the broker, on a clock of the test's own."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from metromq.broker.stream import StreamWriter
from metromq.broker.vigil import LOST_S, MOST_OUSTED, Vigil
from metromq.broker.write_cycle import WriteCycle
from metromq.protocol.session.access import Access
from metromq.protocol.session.hub import Hub
from metromq.protocol.session.hub_settings import HubSettings
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Connect, Publish, Subscribe, Subscription


class Loop(asyncio.AbstractEventLoop):
    """What `Turns` needs of a loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[..., object]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.soon.append(callback)

    def turn(self) -> bool:
        """One turn of the loop; False: it would sleep now."""
        ready, self.soon = self.soon, []
        for callback in ready:
            callback()
        return bool(self.soon)


def cycle_and_loop(busy_poll_s: float, adaptive: bool = False) -> tuple[WriteCycle, Loop]:
    loop = Loop()  # type: ignore[abstract]
    made = WriteCycle(Hub(HubSettings(), None, "b"), loop, 1 << 20, Vigil(busy_poll_s, adaptive), loop.time)
    made.now()
    return made, loop


def test_without_busy_polling_it_sleeps_after_a_turn() -> None:
    made, loop = cycle_and_loop(0.0)
    made.worked()
    made.worked()
    assert len(loop.soon) == 1
    assert not loop.turn()


def test_busy_polling_ends_when_nothing_comes() -> None:
    made, loop = cycle_and_loop(0.003)
    made.worked()
    for _ in range(5):
        assert loop.turn()
    loop.now += 0.002
    made.now()  # a message
    made.worked()
    assert loop.turn()
    assert len(loop.soon) == 1  # one poll, however many messages
    loop.now += 0.002
    assert loop.turn()
    loop.now += 0.002
    assert not loop.turn()
    made.now()
    made.worked()
    assert loop.turn()


def messages(
    made: WriteCycle, loop: Loop, count: int, every_s: float, look_s: float = 0.0001, work_s: float = 0.00002
) -> int:
    """Plays messages at a steady pace, with looks at the network while the broker is awake; how many looks."""
    looks = 0
    for _ in range(count):
        until = loop.now + every_s
        made.now()
        made.worked()
        loop.now += work_s
        while loop.turn() and loop.now < until:
            looks += 1
            loop.now += look_s
        loop.now = max(loop.now, until)
    return looks


def test_it_stays_awake_while_messages_come_often() -> None:
    made, loop = cycle_and_loop(0.0, adaptive=True)
    messages(made, loop, 200, 0.001)
    assert messages(made, loop, 100, 0.001) > 800  # nearly all of the time
    messages(made, loop, 100, 0.001, work_s=0.0005)
    assert messages(made, loop, 100, 0.001, work_s=0.0005) == 0  # busy: it hardly sleeps anyway
    messages(made, loop, 30, 0.01)
    assert messages(made, loop, 100, 0.01) == 0  # asleep
    loop.turn()
    assert not loop.turn()


def test_it_sleeps_when_others_want_the_core() -> None:
    made, loop = cycle_and_loop(0.0, adaptive=True)
    messages(made, loop, 200, 0.001)
    assert messages(made, loop, 500, 0.001, look_s=2 * LOST_S) < 900
    assert messages(made, loop, 400, 0.001) == 0  # it rests,
    messages(made, loop, 600, 0.001)
    assert messages(made, loop, 100, 0.001) > 800  # and tries again after a second


def test_somebody_who_had_the_core_once_is_no_reason_to_rest() -> None:
    made, loop = cycle_and_loop(0.0, adaptive=True)
    messages(made, loop, 200, 0.001)
    for _ in range(4):  # kernel threads, each half second
        messages(made, loop, 1, 0.006, look_s=0.006)
        assert messages(made, loop, 494, 0.001) > 4000


def test_others_are_noticed_although_messages_came_meanwhile() -> None:
    made, loop = cycle_and_loop(0.0, adaptive=True)
    messages(made, loop, 200, 0.001)
    for _ in range(20):  # ten messages wait whenever it has the core again
        messages(made, loop, 9, 0.0)
        messages(made, loop, 1, 0.01, look_s=0.01)
    assert messages(made, loop, 400, 0.001) == 0  # it rests


def test_a_client_that_the_broker_wakes_on_its_own_core_is_a_rival() -> None:
    """It takes little time, and so no look comes late; but it waits for the broker each time."""

    def ousted() -> int:
        return int(loop.now * often)

    often = 2 * MOST_OUSTED
    loop = Loop()  # type: ignore[abstract]
    made = WriteCycle(Hub(HubSettings(), None, "b"), loop, 1 << 20, Vigil(0.0, True, ousted), loop.time)
    messages(made, loop, 1000, 0.001)
    assert messages(made, loop, 200, 0.001) == 0  # it rests,
    often = MOST_OUSTED // 2  # as kernel threads do
    loop.now += 10
    messages(made, loop, 1000, 0.001)
    assert messages(made, loop, 100, 0.001) > 800


def test_it_rests_when_it_is_told_to() -> None:
    made, loop = cycle_and_loop(0.0, adaptive=True)
    messages(made, loop, 200, 0.001)
    made.vigil.rest(loop.now + 0.5)
    made.vigil.rest(loop.now + 0.1)  # which is no order to wake up
    assert messages(made, loop, 499, 0.001) <= 1  # the look that was due
    messages(made, loop, 2, 0.001)
    assert messages(made, loop, 100, 0.001) > 800


class Transport:
    """What `StreamWriter` needs of a transport."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def get_extra_info(self, name: str) -> object:
        return self._end if name == "socket" else None

    def abort(self) -> None:
        raise AssertionError("nobody is turned away here")


def test_a_lone_message_counts_as_a_sign_of_life() -> None:
    made, loop = cycle_and_loop(0.0)
    near, far = socket.socketpair()
    with near, far:
        writer = StreamWriter(made, Access(), True, False)
        writer.connection_made(cast(asyncio.Transport, Transport(near)))
        message = encode(Publish("t", b"x"), MQTT311)
        for data in (
            encode(Connect("c", MQTT311, keepalive_s=10), MQTT311),
            encode(Subscribe(1, [Subscription("t")]), MQTT311),
            message,  # the route is known from now on
            message,
        ):
            loop.now += 5
            writer.data_received(data)
            assert writer.connection.heard_at == loop.now
            loop.turn()
        assert far.recv(100).endswith(message + message)
