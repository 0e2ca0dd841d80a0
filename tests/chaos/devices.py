"""Clients of a live storm: paho's, of either version, each behind a relay; they tell in a queue what they see."""

import socket
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from metromq.lab.storm.seen import Wish
from metromq.protocol.wire import MQTT5

KEPT_S = 3600
INFLIGHT = 100


class Event(NamedTuple):
    """What a client saw: `open`, `end`, `message` or `answer`."""

    at: float
    kind: str
    client: str
    value: Any


class Device:
    """A client identifier and, as long as its session lasts on its side, one paho client."""

    def __init__(self, name: str, version: int, now: Callable[[], float], events: "SimpleQueue[Event]") -> None:
        self.name = name
        self.is_open = False
        self._version = version
        self._now = now
        self._events = events
        self._client: Client | None = None
        self._keeps = False

    def dial(self, port: int, keeps: bool, will: Wish | None) -> None:
        if self._client is None or not (keeps and self._keeps):
            self._client = self._new_client(keeps)
        self._keeps = keeps
        client = self._client
        client.will_clear()
        if will is not None:
            client.will_set(will.topic, will.payload, 2, properties=self._will_properties(will))
        if self._version == MQTT5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = KEPT_S if keeps else 0
            client.connect("127.0.0.1", port, clean_start=not keeps, properties=properties)
        else:
            client.connect("127.0.0.1", port)
        client.loop_start()

    def _new_client(self, keeps: bool) -> Client:
        is_newer = self._version == MQTT5
        client = Client(
            CallbackAPIVersion.VERSION2,
            self.name,
            clean_session=None if is_newer else not keeps,
            protocol=MQTTProtocolVersion.MQTTv5 if is_newer else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        client.max_inflight_messages_set(INFLIGHT)
        client.on_connect = self._on_connect
        client.on_disconnect = lambda *_: self._tell("end", None)
        client.on_message = self._on_message
        client.on_publish = lambda _, __, mid, code, ___: self._tell("answer", (mid, code.value))
        client.on_subscribe = lambda _, __, mid, codes, ___: self._tell("answer", (mid, codes[0].value))
        return client

    def _will_properties(self, will: Wish) -> Properties | None:
        if self._version != MQTT5:
            return None
        properties = Properties(PacketTypes.WILLMESSAGE)
        properties.WillDelayInterval = int(will.delay_s)
        return properties

    def hang_up(self, goodbye: bool) -> None:
        """With DISCONNECT or without; returns when nothing more can come."""
        if self._client is None:
            return
        sock = self._client.socket()
        if goodbye:
            self._client.disconnect()
        elif sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the other side was faster
        self._client.loop_stop()
        sock = self._client.socket()
        if sock is not None:
            sock.close()
        self.is_open = False

    def subscribe(self, topic_filter: str, qos: int) -> int:
        mid: int | None = self._paho().subscribe(topic_filter, qos)[1]
        assert mid is not None
        return mid

    def unsubscribe(self, topic_filter: str) -> None:
        self._paho().unsubscribe(topic_filter)

    def publish(self, topic: str, payload: str, qos: int, retain: bool) -> int:
        sent = self._paho().publish(topic, payload, qos, retain)
        mid: int = sent.mid
        return mid if qos else 0

    def _paho(self) -> Client:
        assert self._client is not None, f"{self.name} is not connected"
        return self._client

    # What paho's thread tells.

    def _tell(self, kind: str, value: Any) -> None:
        self._events.put(Event(self._now(), kind, self.name, value))

    def _on_connect(self, _: Client, __: Any, flags: Any, code: ReasonCode, ___: Any) -> None:
        if not code.is_failure:
            self._tell("open", bool(flags.session_present))

    def _on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        self._tell("message", (message.topic, bytes(message.payload).decode(), message.qos, message.retain))
