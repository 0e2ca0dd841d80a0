"""One client of a proxy, without I/O: its packets in, packets for the central and the edge brokers out, and back.

The client's connection to the central broker is its own: CONNECT, will, keepalive and goodbye go there as they are. A
way to an edge broker is opened when the first packet for it comes, with a session of its own beside the central one.
When the edge broker is lost, a session that is kept goes on at the central broker, under the same name: the city adds
to it what waits at the edge broker, and brings nothing twice.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metromq.errors import ProtocolViolation
from metromq.gateway.effects import CloseClient, CloseWay, Effect, OpenWay, ToClient, ToWay
from metromq.gateway.packet_ids import MOST_IN_FLIGHT, PacketIds
from metromq.gateway.runs import NOT_RETAIN, QOS0_PUBLISH, is_begun, run_end, same_way
from metromq.gateway.table import CENTRAL, DelegationTable
from metromq.protocol import reasons
from metromq.protocol.wire import (
    MQTT5,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connack,
    Framer,
    Packet,
    Properties,
    Publish,
    Subscription,
    decode,
    encode,
    packets,
)

MAX_PACKET_BYTES: Final = 268_435_460  # the most that MQTT allows: brokers have their own limits
EDGE_SUFFIX: Final = "@"  # between the client's identifier and the edge broker's name, in its session there


@dataclass(slots=True)
class _Way:
    """To one broker. What is for an edge broker waits until it has let the session in."""

    name: str
    framer: Framer = field(default_factory=lambda: Framer(MAX_PACKET_BYTES))
    is_open: bool = False
    is_resumed: bool = False  # the broker had the session already, with subscriptions that we have not seen
    is_stand_in: bool = False  # it leads to the central broker, as the edge broker is lost
    is_anew: bool = False  # nothing older of the session may be left
    is_leaving: bool = False  # entered with a clean session, to leave none
    rest: bytes = b""  # the beginning of a packet
    waiting: list[bytes] = field(default_factory=list)
    subscriptions: dict[str, tuple[Subscription, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Join:
    """A SUBSCRIBE or UNSUBSCRIBE that was split: the answer to the client is whole when all parts are there."""

    packet_id: int
    codes: list[list[int]]
    missing: int
    unsubscribes: bool = False
    ways: dict[str, set[str]] = field(default_factory=dict)  # where each filter is subscribed


@dataclass(slots=True)
class _Part:
    """What one broker was asked of it; without a join it was the proxy that asked."""

    join: _Join | None
    places: list[int]
    packet: packets.Subscribe | packets.Unsubscribe


class ProxyCore:
    """It has many methods because each kind of packet has a handler, in both directions."""

    def __init__(self, table: DelegationTable, ids: Callable[[str], PacketIds]) -> None:
        self.table = table
        self._ids_of = ids
        self._ids = PacketIds()
        self._version = MQTT311
        self._connect: packets.Connect | None = None
        self._client_id = ""
        self._framer = Framer(MAX_PACKET_BYTES)
        self._rest = b""  # the beginning of a packet
        self._ways: dict[str, _Way] = {}
        self._is_over = False
        self._is_in = False
        self._aliases: dict[int, str] = {}
        self._sent: dict[int, tuple[str, Publish]] = {}  # by the client, QoS 1 and 2, not yet acknowledged
        self._released: dict[int, str] = {}  # QoS 2: PUBREC has come over this way
        self._orphans: dict[
            int, set[str]
        ] = {}  # QoS 2: PUBREL went over these ways, as nobody knows over which to send
        self._parts: dict[tuple[str, int], _Part] = {}  # of SUBSCRIBEs, by way and number
        self._window = MOST_IN_FLIGHT
        self._held: deque[tuple[str, Publish]] = deque()  # beyond the client's receive maximum
        self._unmet: set[str] = set()  # edge brokers that could not be reached
        self._from_client: dict[type, Callable[[Any], list[Effect]]] = {
            Publish: self._publishes,
            Ack: self._acknowledges,
            packets.Subscribe: self._subscribes,
            packets.Unsubscribe: self._unsubscribes,
            packets.Disconnect: self._leaves,
        }
        self._from_way: dict[type, Callable[[_Way, Any], list[Effect]]] = {
            Publish: self._delivers,
            Ack: self._answers,
            packets.Suback: self._part_answered,
            packets.Unsuback: self._part_answered,
            packets.Disconnect: self._sends_away,
        }

    # From the client.

    def from_client(self, data: bytes) -> list[Effect]:
        effects: list[Effect] = []
        if self._connect is not None and self._framer.is_empty and not self._is_over:
            data = self._rest + data if self._rest else data
            end = self._pass_on(data, effects)
            data, self._rest = (b"", data[end:]) if is_begun(data, end) else (data[end:], b"")
        self._framer.feed(data)
        while not self._is_over and (found := self._framer.next()) is not None:
            if self._connect is None:
                effects += self._connects(decode(*found, MQTT5))
                continue
            way = self._straight(*found)
            if way is not None:
                effects.append(ToWay(way, _whole(*found)))
                continue
            packet = decode(*found, self._version)
            handler = self._from_client.get(type(packet))
            effects += handler(packet) if handler else [self._central(packet)]
        return effects

    def _pass_on(self, data: bytes, effects: list[Effect]) -> int:
        """QoS 0 messages at the beginning go on as they are, many at once; where the first other packet begins."""
        stop = run_end(data, 0)
        at = 0
        ways = self.table.known
        while at < stop:
            end, way, name = same_way(data, at, stop, ways, self._version == MQTT5)
            if end == at:
                if not name:
                    return at
                self.table.of_name(name)
                continue
            way = self._reachable(way)
            known = self._ways.get(way)
            if known is None or not known.is_open:
                return at
            effects.append(ToWay(way, data[at:end]))
            at = end
        return at

    def _straight(self, first: int, body: bytes) -> str | None:
        """Where a QoS 0 PUBLISH goes that can go as it is: without properties, over a way that is open."""
        if first & NOT_RETAIN != QOS0_PUBLISH or len(body) < 3:
            return None
        end = 2 + (body[0] << 8 | body[1])
        if self._version == MQTT5 and body[end : end + 1] != b"\0":
            return None
        way = self._reachable(self.table.of_name(body[2:end]))
        known = self._ways.get(way)
        return way if known is not None and known.is_open else None

    def _connects(self, packet: Packet) -> list[Effect]:
        if not isinstance(packet, packets.Connect):
            raise ProtocolViolation("the first packet must be CONNECT [MQTT-3.1.0-1]")
        self._connect, self._version, self._client_id = packet, packet.version, packet.client_id
        self._window = packet.properties.receive_maximum or MOST_IN_FLIGHT
        way = self._ways[CENTRAL] = _Way(CENTRAL)
        way.is_open = True
        return [OpenWay(CENTRAL), ToWay(CENTRAL, encode(packet, self._version))]

    def _central(self, packet: Packet) -> Effect:
        return ToWay(CENTRAL, encode(packet, self._version))

    def _publishes(self, packet: Publish) -> list[Effect]:
        if packet.topic_alias:
            if packet.topic:
                self._aliases[packet.topic_alias] = packet.topic
            packet.topic = self._aliases.get(packet.topic_alias, packet.topic)
            packet.topic_alias = 0  # brokers that are told apart must not rely on what another one was told
        way = self._reachable(self.table.of_topic(packet.topic))
        if packet.qos:
            known = self._sent.get(packet.packet_id)
            way = known[0] if known is not None and packet.dup else way
            self._sent[packet.packet_id] = way, packet
        return self._to(way, packet)

    def _reachable(self, way: str) -> str:
        return CENTRAL if way in self._unmet else way

    def _acknowledges(self, ack: Ack) -> list[Effect]:
        if ack.kind == PUBREL:
            if ack.packet_id not in self._released and ack.packet_id not in self._sent:
                return self._release_everywhere(ack)
            way = self._released.get(ack.packet_id, self._sent.get(ack.packet_id, (CENTRAL, None))[0])
            return self._to(way, ack)
        owner = self._ids.owner(ack.packet_id)
        if ack.kind in (PUBACK, PUBCOMP) or ack.reason_code >= reasons.UNSPECIFIED_ERROR:
            self._ids.done(ack.packet_id)
        if owner is None:
            return []  # of a broker that is gone
        effects = self._to(owner[0], Ack(ack.kind, owner[1], ack.reason_code, ack.properties))
        while self._held and len(self._ids) < self._window:
            effects += self._deliver(*self._held.popleft())
        return effects

    def _release_everywhere(self, ack: Ack) -> list[Effect]:
        """A proxy before us sent the message: whoever has it must not take the identifier's next one for a repeat."""
        self._orphans[ack.packet_id] = set(self._ways)
        return [effect for name in list(self._ways) for effect in self._to(name, ack)]

    def _subscribes(self, packet: packets.Subscribe) -> list[Effect]:
        places: dict[str, list[int]] = {}
        join = _Join(packet.packet_id, [[] for _ in packet.subscriptions], 0)
        for place, one in enumerate(packet.subscriptions):
            for way in map(self._at, self.table.of_filter(one.filter)):
                places.setdefault(way, []).append(place)
                join.ways.setdefault(one.filter, set()).add(way)
        join.missing = len(places)
        effects: list[Effect] = []
        for way, own in places.items():
            part = replace(packet, subscriptions=[packet.subscriptions[place] for place in own])
            self._parts[way, packet.packet_id] = _Part(join, own, part)
            effects += self._to(way, part)
            for one in part.subscriptions:
                self._ways[way].subscriptions[one.filter] = one, packet.identifier
                self._ids.left.get(way, set()).discard(one.filter)
        return effects

    def _at(self, way: str) -> str:
        """Where a subscription is made that belongs there."""
        return way if way in self._ways else self._reachable(way)

    def _unsubscribes(self, packet: packets.Unsubscribe) -> list[Effect]:
        """At every broker where it may be: the table may have been another one when it was subscribed."""
        join = _Join(packet.packet_id, [[] for _ in packet.filters], len(self._ways), True)
        effects: list[Effect] = []
        for name, way in list(self._ways.items()):
            self._parts[name, packet.packet_id] = _Part(join, list(range(len(packet.filters))), packet)
            effects += self._to(name, packet)
            self._has_left(way, packet.filters)
        return effects

    def _has_left(self, way: _Way, filters: list[str]) -> None:
        for one in filters:
            way.subscriptions.pop(one, None)
        if way.is_stand_in:  # what the edge broker has of it comes back with it
            self._ids.left.setdefault(way.name, set()).update(filters)

    def _leaves(self, packet: packets.Disconnect) -> list[Effect]:
        self._is_over = True
        # Who says one thing and goodbye does not wait until it is let in elsewhere: the central broker passes it on.
        effects = [effect for way in self._ways.values() for effect in _at_once(way)]
        effects.append(self._central(packet))
        for name, way in self._ways.items():
            if name != CENTRAL and way.is_open:
                effects.append(ToWay(name, encode(packet, self._version)))
        return [*effects, *(CloseWay(name) for name in self._ways), CloseClient()]

    def client_lost(self) -> list[Effect]:
        """Its network connection is gone: brokers see the same."""
        self._is_over = True
        return [CloseWay(name) for name in self._ways]

    # Ways.

    def _to(self, name: str, packet: Packet) -> list[Effect]:
        effects: list[Effect] = []
        if name not in self._ways:
            effects += self._open(name) if self._is_in else []
            self._ways.setdefault(name, _Way(name))  # the client need not wait for its CONNACK, edge brokers do
        way, data = self._ways[name], encode(packet, self._version)
        if not way.is_open:
            way.waiting.append(data)
            return effects
        return [*effects, ToWay(name, data)]

    def _open(self, name: str) -> list[Effect]:
        assert self._connect is not None
        way = self._ways.setdefault(name, _Way(name))
        way.is_anew = self._connect.clean_start
        return self._enter(way)

    def _enter(self, way: _Way) -> list[Effect]:
        assert self._connect is not None
        asked = self._connect.properties
        properties = Properties(session_expiry_s=asked.session_expiry_s, receive_maximum=asked.receive_maximum)
        connect = replace(
            self._connect,
            # One without a name has none anywhere: another nameless one must not take its session.
            client_id=f"{self._client_id}{EDGE_SUFFIX}{way.name}" if self._client_id else "",
            will=None,
            clean_start=way.is_anew,
            keepalive_s=0,  # the client's own silence is the central broker's business
            properties=properties,
        )
        return [OpenWay(way.name, way.is_stand_in), ToWay(way.name, encode(connect, self._version))]

    def from_way(self, name: str, data: bytes, is_stuck: bool = False) -> list[Effect]:
        """`is_stuck`: the client does not read what it is sent, and gets no more QoS 0 messages for now."""
        way = self._ways.get(name)
        if way is None:
            return []
        effects: list[Effect] = []
        if way.framer.is_empty and way.is_open:
            data = way.rest + data if way.rest else data
            end = run_end(data, 0)
            if end and not is_stuck:
                effects.append(ToClient(data[:end]))
            data, way.rest = (b"", data[end:]) if is_begun(data, end) else (data[end:], b"")
        way.framer.feed(data)
        while name in self._ways and (found := way.framer.next()) is not None:
            if found[0] & NOT_RETAIN == QOS0_PUBLISH:
                effects += [] if is_stuck else [ToClient(_whole(*found))]
                continue
            packet = decode(*found, self._version, server=False)
            if isinstance(packet, Connack):
                effects += self._let_in(way, packet)
                continue
            handler = self._from_way.get(type(packet))
            if handler is not None:
                effects += handler(way, packet)
            elif name == CENTRAL:
                effects.append(ToClient(encode(packet, self._version)))
        return effects

    def _let_in(self, way: _Way, connack: Connack) -> list[Effect]:
        if way.name != CENTRAL:
            return self._edge_lets_in(way, connack)
        self._client_id = connack.properties.assigned_client_id or self._client_id
        if self._client_id:
            self._ids = self._ids_of(self._client_id)
        effects: list[Effect] = [ToClient(encode(connack, self._version))]
        self._is_in = not connack.reason_code
        assert self._connect is not None
        if not connack.session_present:
            self._ids.clear()
        way.is_resumed = connack.session_present
        asked = [name for name in self._ways if name != CENTRAL] if self._is_in else []
        for edge in dict.fromkeys((*asked, *self._to_visit(self._connect, connack))):
            effects += self._open(edge)
        return effects

    def _edge_lets_in(self, way: _Way, connack: Connack) -> list[Effect]:
        if connack.reason_code:
            return self.way_lost(way.name)
        assert self._connect is not None
        if way.is_leaving:
            return self._has_entered_to_leave(way)
        way.is_open, waiting, way.waiting = True, way.waiting, []
        is_expected = way.is_stand_in and not self._connect.clean_start  # by and by: what is at the edge broker
        way.is_resumed = connack.session_present or is_expected
        if not connack.session_present:  # it begins anew, and its first delivery has the first identifier
            self._ids.forget(way.name)
            waiting = [data for data in waiting if data[0] >> 4 not in (PUBACK, PUBREC, PUBCOMP)]
        if not waiting and not way.is_resumed and way.name not in self.table.edges:
            return self._not_needed(way.name)
        effects: list[Effect] = [ToWay(way.name, b"".join(waiting))] if waiting else []
        left = sorted(self._ids.left.pop(way.name, ())) if not way.is_stand_in else []
        return [*self._leave(way, left), *effects] if left and way.is_resumed else effects

    def _to_visit(self, connect: packets.Connect, connack: Connack) -> tuple[str, ...]:
        """What waits at edge brokers must come without being asked for, also where filters have been. And of a session
        that begins anew, and will be kept, nothing older may be left there: it would come back with it."""
        if connack.reason_code:
            return ()
        if connect.clean_start:
            return self.table.all_edges if connect.properties.session_expiry_s else ()
        return self.table.all_edges if connack.session_present else self.table.edges

    def _not_needed(self, name: str) -> list[Effect]:
        """The client has never been there: nothing of it stays. In 3.1.1 only a clean session ends by itself."""
        if self._version != MQTT5:
            way = self._ways[name] = _Way(name, is_anew=True, is_leaving=True)
            return [CloseWay(name), *self._enter(way)]
        del self._ways[name]
        goodbye = packets.Disconnect(properties=Properties(session_expiry_s=0))
        return [ToWay(name, encode(goodbye, self._version)), CloseWay(name)]

    def _has_entered_to_leave(self, way: _Way) -> list[Effect]:
        del self._ways[way.name]
        effects: list[Effect] = [ToWay(way.name, encode(packets.Disconnect(), self._version)), CloseWay(way.name)]
        if not way.waiting:
            return effects
        back = self._ways[way.name] = _Way(way.name)  # it is needed after all
        back.waiting, back.subscriptions = way.waiting, way.subscriptions
        return [*effects, *self._enter(back)]

    def way_lost(self, name: str) -> list[Effect]:
        """An edge broker is gone: its topics are the central broker's. Without that one the client must come again."""
        way = self._ways.pop(name, None)
        if way is None:
            return []
        if way.is_leaving and not way.waiting:
            return [CloseWay(name)]
        if name == CENTRAL or self._is_over or (way.is_stand_in and way.is_open):
            self._is_over = True
            return [CloseWay(name), *(CloseWay(other) for other in self._ways), CloseClient()]
        self._unmet.add(name)
        effects: list[Effect] = [CloseWay(name)]
        effects += self._stand_in(way) if self._may_be_kept(way) else self._ask_central_instead(way)
        effects += _at_once(way)
        for packet_id in list(self._orphans):
            effects += self._orphan_released(packet_id, name)
        for packet_id, (owner, packet) in list(self._sent.items()):
            if owner == name and packet_id not in self._released:
                self._sent[packet_id] = CENTRAL, packet
                effects.append(self._central(packet))
        return effects

    def _may_be_kept(self, way: _Way) -> bool:
        """Whether the session may be there when the edge broker is back: else there is nothing to add to it."""
        assert self._connect is not None
        is_kept = not self._connect.clean_start or bool(self._connect.properties.session_expiry_s)
        return is_kept and bool(self._client_id) and not way.is_stand_in and not self.table.is_foreign

    def _stand_in(self, way: _Way) -> list[Effect]:
        """The session goes on at the central broker; what is subscribed or was asked for is asked for there."""
        name = way.name
        made = self._ways[name] = _Way(name, is_stand_in=True, is_anew=way.is_anew and not way.is_open)
        made.subscriptions = way.subscriptions
        asked = [part.packet for (owner, _), part in self._parts.items() if owner == name]
        again = {
            one.filter for packet in asked if isinstance(packet, packets.Subscribe) for one in packet.subscriptions
        }
        for packet in asked:
            if isinstance(packet, packets.Unsubscribe):
                self._has_left(made, packet.filters)
        known = [made.subscriptions[text] for text in made.subscriptions if text not in again]
        known_first = [self._asked_again(name, *subscription) for subscription in known]
        made.waiting = [encode(packet, self._version) for packet in (*known_first, *asked)]
        return self._enter(made)

    def _asked_again(self, name: str, one: Subscription, identifier: int) -> packets.Subscribe:
        """By the proxy: what is retained its client has had."""
        packet = packets.Subscribe(self._own_id(), [replace(one, retain_handling=2)], identifier)
        self._parts[name, packet.packet_id] = _Part(None, [0], packet)
        return packet

    def _ask_central_instead(self, way: _Way) -> list[Effect]:
        """Subscriptions, those that wait for an answer too: that answer is the central broker's then."""
        self._ids.forget(way.name)
        effects: list[Effect] = []
        subscribed = self._ways[CENTRAL].subscriptions
        for packet_id in [number for owner, number in self._parts if owner == way.name]:
            part = self._parts.pop((way.name, packet_id))
            packet, join = part.packet, part.join
            if isinstance(packet, packets.Unsubscribe):
                codes = [reasons.SUCCESS] * len(part.places)
                effects += self._joined(join, part.places, codes) if join is not None else []
                continue
            for one in packet.subscriptions:
                subscribed[one.filter] = way.subscriptions.pop(one.filter)
                if join is not None:
                    join.ways[one.filter] = join.ways[one.filter] - {way.name} | {CENTRAL}
            part.packet = replace(packet, packet_id=self._own_id())
            self._parts[CENTRAL, part.packet.packet_id] = part
            effects.append(self._central(part.packet))
        for text, subscription in way.subscriptions.items():
            subscribed[text] = subscription
            effects.append(self._central(self._asked_again(CENTRAL, *subscription)))
        return effects

    def _own_id(self) -> int:
        """One that neither the client nor we use towards the central broker now."""
        used = self._sent.keys() | self._released.keys() | {number for _, number in self._parts}
        return next(number for number in range(MOST_IN_FLIGHT, 0, -1) if number not in used)

    # From brokers.

    def _delivers(self, way: _Way, packet: Publish) -> list[Effect]:
        if not packet.qos:
            return [ToClient(encode(packet, self._version))]
        if len(self._ids) >= self._window and not self._ids.knows(way.name, packet.packet_id):
            self._held.append((way.name, packet))
            return []
        return self._deliver(way.name, packet)

    def _deliver(self, name: str, packet: Publish) -> list[Effect]:
        packet.packet_id = self._ids.of(name, packet.packet_id)
        return [ToClient(encode(packet, self._version))]

    def _answers(self, way: _Way, ack: Ack) -> list[Effect]:
        if ack.kind == PUBREL:
            mine = self._ids.of(way.name, ack.packet_id)
            return [ToClient(encode(Ack(PUBREL, mine, ack.reason_code, ack.properties), self._version))]
        if ack.kind == PUBCOMP and ack.packet_id in self._orphans:
            return self._orphan_released(ack.packet_id, way.name)
        if ack.kind == PUBREC and ack.reason_code < reasons.UNSPECIFIED_ERROR:
            self._released[ack.packet_id] = way.name
        else:
            self._sent.pop(ack.packet_id, None)
            self._released.pop(ack.packet_id, None)
        return [ToClient(encode(ack, self._version))]

    def _orphan_released(self, packet_id: int, name: str) -> list[Effect]:
        ways = self._orphans[packet_id]
        ways.discard(name)
        if ways:
            return []
        del self._orphans[packet_id]
        return [ToClient(encode(Ack(PUBCOMP, packet_id), self._version))]

    def _part_answered(self, way: _Way, packet: packets.Suback | packets.Unsuback) -> list[Effect]:
        part = self._parts.pop((way.name, packet.packet_id), None)
        if part is None or part.join is None:
            return []
        return self._joined(part.join, part.places, packet.reason_codes or [reasons.SUCCESS] * len(part.places))

    def _joined(self, join: _Join, places: list[int], codes: list[int]) -> list[Effect]:
        for place, code in zip(places, codes, strict=False):
            join.codes[place].append(code)
        join.missing -= 1
        if join.missing:
            return []
        if join.unsubscribes:  # it was there if any broker had it
            codes = [min(found) for found in join.codes] if self._version == MQTT5 else []
            return [ToClient(encode(packets.Unsuback(join.packet_id, codes), self._version))]
        codes = [_granted(found) for found in join.codes]
        suback = ToClient(encode(packets.Suback(join.packet_id, codes), self._version))
        return [suback, *self._leave_elsewhere(join.ways)]

    def _leave_elsewhere(self, ways: dict[str, set[str]]) -> list[Effect]:
        """Who subscribes again means the same subscription: brokers that had it by an older table would send copies."""
        effects: list[Effect] = []
        for name, way in list(self._ways.items()):
            left = [one for one in ways if name not in ways[one] and (way.is_resumed or one in way.subscriptions)]
            effects += self._leave(way, left) if left else []
        return effects

    def _leave(self, way: _Way, filters: list[str]) -> list[Effect]:
        self._has_left(way, filters)
        packet = packets.Unsubscribe(self._own_id(), filters)
        self._parts[way.name, packet.packet_id] = _Part(None, [], packet)
        return self._to(way.name, packet)

    def _sends_away(self, way: _Way, packet: packets.Disconnect) -> list[Effect]:
        if way.name != CENTRAL:
            return self.way_lost(way.name)
        self._is_over = True
        closing = [CloseWay(name) for name in self._ways]
        return [ToClient(encode(packet, self._version)), *closing, CloseClient()]


def _at_once(way: _Way) -> list[Effect]:
    """QoS 0 messages that wait for a broker: the central one gets them instead."""
    return [ToWay(CENTRAL, data) for data in way.waiting if data[0] & NOT_RETAIN == QOS0_PUBLISH]


def _whole(first: int, body: bytes) -> bytes:
    """The packet as it came."""
    length, head = len(body), bytearray((first,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


def _granted(codes: list[int]) -> int:
    """A filter that one broker refuses is refused; else the least QoS is what the client can rely on."""
    refused = [code for code in codes if code >= reasons.UNSPECIFIED_ERROR]
    return refused[0] if refused else min(codes)
