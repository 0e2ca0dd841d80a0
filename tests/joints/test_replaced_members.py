"""Members of a shared group are replaced all the time, under load: what one leaves reaches another.

A city of three live brokers with paho clients; nothing is known but what clients sent and got.
"""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from metromq.federation.city import grid_city
from tests.clients.paho_client import DEADLINE_S, Paho, properties, unique
from tests.scenarios.city import LiveCity, live_city

KEPT = properties("CONNECT", SessionExpiryInterval=3600)
SHARED, TOPIC = "$share/workers/1/#", "1/2/jobs"
MEMBERS = 3  # at a time
REPLACED = 45
UNDER_WAY = 40  # of each publisher: so many are always on their way


class Load(threading.Thread):
    """Publishes at one broker until it is told to stop; `sent` was acknowledged."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__()
        self.sent: list[str] = []
        self._stopped = threading.Event()
        self._name = name
        self._client = Paho(5, unique(name))
        code, _, _ = self._client.connect(port)
        assert code == 0

    def run(self) -> None:
        under_way: list[tuple[Any, str]] = []
        number = 0
        while not self._stopped.is_set():
            payload = f"{self._name} {number} at {1 + number % 2}"
            under_way.append((self._client.paho.publish(TOPIC, payload, 1 + number % 2), payload))
            number += 1
            self._stopped.wait(0.002)  # no queue shall grow to its limit
            if len(under_way) >= UNDER_WAY:
                self._confirm(*under_way.pop(0))
        for info, payload in under_way:
            self._confirm(info, payload)
        self._client.close()

    def _confirm(self, info: Any, payload: str) -> None:
        info.wait_for_publish(DEADLINE_S)
        assert info.is_published()
        self.sent.append(payload)

    def stop(self) -> None:
        self._stopped.set()
        self.join(DEADLINE_S)


class Group:
    def __init__(self, live: LiveCity) -> None:
        self.live = live
        self.members: list[tuple[Paho, str, bool]] = []
        self.got: Counter[str] = Counter()

    def join(self, number: int) -> None:
        """At one broker after the other; every second one's session outlives its connection."""
        names = list(self.live.ports)
        keeps = number % 2 == 1
        name = unique("member")
        member = Paho(5, name)
        code, _, _ = member.connect(self.live.ports[names[number % 3]], properties=KEPT if keeps else None)
        assert code == 0
        assert member.subscribe(SHARED, 2) == [2]
        self.members.append((member, name, keeps))

    def end(self, number: int) -> None:
        """The oldest says goodbye, or is torn away; a session that is kept ends by a clean start, here or elsewhere."""
        member, name, keeps = self.members.pop(0)
        if number % 3 and not keeps:
            member.close()
        else:
            member.kill()
        self._count(member)
        if keeps:
            anew = Paho(5, name)
            code, session_present, _ = anew.connect(self.live.ports[list(self.live.ports)[(number // 2) % 3]])
            assert (code, session_present) == (0, False)
            anew.close()

    def _count(self, member: Paho) -> None:
        while not member.messages.empty():
            self.got[member.messages.get().payload.decode()] += 1

    def wait_for(self, payloads: list[str]) -> list[str]:
        """What has not come to anybody in a long time."""
        for _ in range(int(DEADLINE_S * 10)):
            for member, _, _ in self.members:
                self._count(member)
            missing = [payload for payload in payloads if not self.got[payload]]
            if not missing:
                break
            threading.Event().wait(0.1)
        return missing


@pytest.mark.parametrize("routing", ["geographic", "central"])
def test_members_are_replaced_under_load(tmp_path: Path, routing: str) -> None:
    city = grid_city(routing, l_b=1, l_c=0, count=3)
    with live_city(city, tmp_path) as live:
        group = Group(live)
        for number in range(MEMBERS):
            group.join(number)
        live.settle()
        loads = [Load(port, name) for name, port in live.ports.items()]
        for load in loads:
            load.start()
        for number in range(MEMBERS, MEMBERS + REPLACED):
            group.join(number)
            threading.Event().wait(0.1)  # the others have heard of it; a group that nobody knows of gets nothing
            group.end(number)
        for load in loads:
            load.stop()
        sent = [payload for load in loads for payload in load.sent]
        missing = group.wait_for([payload for payload in sent if payload.endswith("at 1")])
        assert missing == [], f"{len(missing)} of {len(sent)} that were acknowledged came to nobody"
        twice = [payload for payload, count in group.got.items() if count > 1 and payload.endswith("at 2")]
        assert twice == [], "at QoS 2 nobody else may get what was sent to one [MQTT-4.8.2-5]"
        for member, _, _ in group.members:
            member.close()
        print(f"{len(sent)} sent, {sum(group.got.values()) - len(group.got)} of QoS 1 came twice")
