"""Hypothesis strategies for every packet, in the form that a given version can carry."""

from hypothesis import strategies as st

from metromq.protocol import reasons
from metromq.protocol.wire.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    MQTT5,
    MQTT31,
    MQTT311,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from metromq.protocol.wire.properties import BINARY, BYTE, FLAG, PAIR, RULES, STRING, U16, U32, VARINT, encode_raw

PACKET_IDS = st.integers(1, 65535)
QOS = st.integers(0, 2)
U32S = st.integers(0, 0xFFFFFFFF)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20)
BLOBS = st.binary(max_size=20)
LEVELS = st.sampled_from(["a", "b", "", "+", "$x", "ä"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool) | st.sampled_from(
    ["#", "a/#", "$share/g/+"]
)
VERSIONS = st.sampled_from([MQTT31, MQTT311, MQTT5])

_VALUES: dict[int, st.SearchStrategy[object]] = {
    BYTE: st.integers(0, 1),
    FLAG: st.booleans(),
    U16: st.integers(1, 0xFFFF),
    U32: st.integers(1, 0xFFFFFFFF),
    STRING: TOPICS,
    BINARY: BLOBS,
    PAIR: st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(tuple),
    VARINT: st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple),
}


@st.composite
def properties(draw: st.DrawFn, packet: int, leave_out: frozenset[str] = frozenset()) -> Properties:
    """Some of the properties that a packet of this type may carry."""
    result = Properties()
    for rule in RULES.values():
        if rule.packets & (1 << packet) and rule.name not in leave_out and draw(st.booleans()):
            setattr(result, rule.name, draw(_VALUES[rule.kind]))
    return result


def unchanged() -> st.SearchStrategy[bytes]:
    return st.builds(
        Properties,
        payload_format=st.none() | st.integers(0, 1),
        content_type=st.none() | TEXTS,
        response_topic=st.none() | TOPICS,
        correlation_data=st.none() | BLOBS,
        user=st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple),
    ).map(encode_raw)


@st.composite
def publishes(draw: st.DrawFn, version: int, server: bool) -> Publish:
    qos = draw(QOS)
    packet = Publish(draw(TOPICS), draw(BLOBS), qos, draw(st.booleans()))
    if qos:
        packet.dup = draw(st.booleans())
        packet.packet_id = draw(PACKET_IDS)
    if version == MQTT5:
        packet.properties = draw(unchanged())
        packet.expiry_s = draw(st.just(-1) | U32S)
        packet.topic_alias = draw(st.integers(0, 65535))
        if packet.topic_alias and draw(st.booleans()):
            packet.topic = ""
        if not server:
            packet.identifiers = tuple(draw(st.lists(st.integers(1, 268_435_455), max_size=3)))
    return packet


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    five = version == MQTT5
    username = draw(st.none() | TEXTS)
    password = draw(st.none() | BLOBS) if five or username is not None else None
    will: Will | None = None
    if draw(st.booleans()):
        will = Will(draw(TOPICS), draw(BLOBS), draw(QOS), draw(st.booleans()))
        if five:
            will.delay_s, will.expiry_s, will.properties = draw(U32S), draw(st.just(-1) | U32S), draw(unchanged())
    found = draw(properties(CONNECT)) if five else Properties()
    if found.auth_method is None:
        found.auth_data = None
    client_id = draw(TEXTS if five else TOPICS)
    keepalive_s = draw(st.integers(0, 65535))
    return Connect(client_id, version, draw(st.booleans()), keepalive_s, username, password, will, found)


@st.composite
def acks(draw: st.DrawFn, version: int) -> Ack:
    kind = draw(st.sampled_from([PUBACK, PUBREC, PUBREL, PUBCOMP]))
    ack = Ack(kind, draw(PACKET_IDS))
    if version == MQTT5:
        known = reasons.IN_PUBACK if kind in (PUBACK, PUBREC) else reasons.IN_PUBREL
        ack.reason_code = draw(st.sampled_from(sorted(known)))
        ack.properties = draw(st.none() | properties(kind))
    return ack


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    subscriptions = draw(st.lists(st.builds(Subscription, FILTERS, QOS), min_size=1, max_size=4))
    if version != MQTT5:
        return Subscribe(draw(PACKET_IDS), subscriptions)
    for subscription in subscriptions:
        subscription.no_local = draw(st.booleans()) and not subscription.filter.startswith("$share/")
        subscription.retain_as_published = draw(st.booleans())
        subscription.retain_handling = draw(QOS)
    found = draw(properties(SUBSCRIBE, frozenset({"subscription_identifiers"})))
    return Subscribe(draw(PACKET_IDS), subscriptions, draw(st.integers(0, 268_435_455)), found)


def _codes(known: frozenset[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=4)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Connack:
    if version != MQTT5:
        reason = draw(st.sampled_from([0, 0x84, 0x85, 0x86, 0x87, 0x88]))
        return Connack(version == MQTT311 and reason == 0 and draw(st.booleans()), reason)
    reason = draw(st.sampled_from(sorted(reasons.IN_CONNACK)))
    return Connack(reason == 0 and draw(st.booleans()), reason, draw(properties(CONNACK)))


@st.composite
def auths(draw: st.DrawFn, server: bool) -> Auth:
    known = reasons.IN_AUTH_OF_CLIENT if server else reasons.IN_AUTH_OF_SERVER
    found = draw(properties(AUTH))
    found.auth_method = draw(TEXTS)
    return Auth(draw(st.sampled_from(sorted(known))), found)


def _disconnects(server: bool) -> st.SearchStrategy[Disconnect]:
    known = reasons.IN_DISCONNECT_OF_CLIENT if server else reasons.IN_DISCONNECT_OF_SERVER
    forbidden = frozenset({"server_reference" if server else "session_expiry_s"})
    return st.builds(
        Disconnect, st.sampled_from(sorted(known)), st.none() | properties(DISCONNECT, leave_out=forbidden)
    )


def packets(version: int, server: bool) -> st.SearchStrategy[Packet]:
    """Every packet that a client (`server`: we are the server) or a server may send in the version."""
    five = version == MQTT5
    choices: list[st.SearchStrategy[Packet]] = [publishes(version, server), acks(version)]
    if server:
        found = properties(UNSUBSCRIBE) if five else st.builds(Properties)
        choices += [connects(version), subscribes(version), st.just(Pingreq())]
        choices.append(st.builds(Unsubscribe, PACKET_IDS, st.lists(FILTERS, min_size=1, max_size=4), found))
        choices.append(_disconnects(True) if five else st.just(Disconnect()))
    else:
        choices += [connacks(version), st.just(Pingresp())]
        if five:
            choices.append(st.builds(Suback, PACKET_IDS, _codes(reasons.IN_SUBACK), properties(SUBACK)))
            choices.append(st.builds(Unsuback, PACKET_IDS, _codes(reasons.IN_UNSUBACK), properties(UNSUBACK)))
            choices.append(_disconnects(False))
        else:
            choices.append(st.builds(Suback, PACKET_IDS, _codes(frozenset({0, 1, 2, 0x80}))))
            choices.append(st.builds(Unsuback, PACKET_IDS))
    if five:
        choices.append(auths(server))
    return st.one_of(choices)
