"""paho-mqtt 2 as the tests use it: blocking calls with deadlines, everything that came in queues."""

import secrets
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.certificates import Certificates

DEADLINE_S = 30.0
V311, V5 = paho.MQTTv311, paho.MQTTv5


def unique(name: str) -> str:
    """A topic or identifier that no other test uses: the broker lives through the whole session."""
    return f"{name}-{secrets.token_hex(4)}"


def properties(packet: str, **values: object) -> Any:
    made = Properties(getattr(PacketTypes, packet))
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Paho:
    """One client; `messages`, `connects` and `disconnects` hold what came."""

    def __init__(self, version: int, client_id: str = "", clean: bool = True, transport: str = "tcp") -> None:
        self.version = version
        self.messages: Queue[Any] = Queue()
        self.connects: Queue[Any] = Queue()
        self.disconnects: Queue[Any] = Queue()
        self.subscribed: Queue[list[int]] = Queue()
        self.clean = clean
        session = {} if version == V5 else {"clean_session": clean}
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id or unique("paho"),
            protocol=version,
            transport=transport,
            **session,
        )
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = self._connected
        self.paho.on_disconnect = lambda client, data, flags, reason, properties: self.disconnects.put(reason)
        self.paho.on_subscribe = lambda client, data, mid, codes, properties: self.subscribed.put(
            [code.value for code in codes]
        )

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.connects.put((reason.value, flags.session_present, properties))
        if reason.is_failure:
            client.disconnect()

    def tls(self, certificates: Certificates, own: bool = False) -> "Paho":
        context = ssl.create_default_context(cafile=str(certificates.ca))
        if own:
            context.load_cert_chain(certificates.client.cert, certificates.client.key)
        self.paho.tls_set_context(context)
        return self

    def connect(self, port: int, **options: Any) -> tuple[int, bool, Any]:
        """The reason code, whether there was a session, and the properties of CONNACK."""
        if self.version == V5:
            options["clean_start"] = self.clean
        self.paho.connect("127.0.0.1", port, **options)
        self.paho.loop_start()
        answer: tuple[int, bool, Any] = self.connects.get(timeout=DEADLINE_S)
        return answer

    def subscribe(self, topic: str, qos: int = 0, **options: Any) -> list[int]:
        if self.version == V5:
            wanted = SubscribeOptions(qos, **{name: value for name, value in options.items() if name != "properties"})
            self.paho.subscribe(topic, options=wanted, properties=options.get("properties"))
        else:
            self.paho.subscribe(topic, qos)
        return self.subscribed.get(timeout=DEADLINE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, **options: Any) -> None:
        """Until the whole exchange is done, also if the connection is lost and made again meanwhile."""
        info = self.paho.publish(topic, payload, qos, retain, **options)
        if qos and info.rc == paho.MQTT_ERR_NO_CONN:  # paho keeps it, and raises whatever it is asked about it
            end = time.monotonic() + DEADLINE_S
            while not info._published and time.monotonic() < end:
                time.sleep(0.01)
            assert info._published
        else:
            info.wait_for_publish(DEADLINE_S)
            assert info.is_published()

    def take(self, count: int) -> list[Any]:
        return [self.messages.get(timeout=DEADLINE_S) for _ in range(count)]

    def nothing_more(self) -> bool:
        """Whether no message is waiting once the broker has answered a last round trip."""
        topic = unique("last")
        self.subscribe(topic, 1)
        self.publish(topic, b"", 1)
        last = self.messages.get(timeout=DEADLINE_S)
        try:
            self.messages.get_nowait()
        except Empty:
            return bool(last.topic == topic)
        return False

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def kill(self) -> None:
        """Ends the connection without DISCONNECT."""
        self.paho.loop_stop()
        self.paho._sock_close()


@contextmanager
def client(port: int, version: int = V5, client_id: str = "", clean: bool = True, **options: Any) -> Iterator[Paho]:
    """A connected client."""
    made = Paho(version, client_id, clean)
    code, _, _ = made.connect(port, **options)
    assert code == 0
    try:
        yield made
    finally:
        made.close()
