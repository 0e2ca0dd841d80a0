"""paho-mqtt 2 over 3.1.1 and 5.0 against a broker process."""

import pytest

from tests.clients.conftest import Served
from tests.clients.paho_client import V5, V311, Paho, client, properties, unique

VERSIONS = [V311, V5]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_qos(broker: Served, version: int) -> None:
    topic = unique("t")
    with client(broker.tcp, version) as subscriber, client(broker.tcp, version) as publisher:
        assert subscriber.subscribe(f"{topic}/#", 2) == [2]
        for qos in (0, 1, 2):
            for number in range(20):
                publisher.publish(f"{topic}/{qos}", b"%d" % number, qos)
        messages = subscriber.take(60)
        for qos in (0, 1, 2):
            got = [message.payload for message in messages if message.qos == qos]
            assert got == [b"%d" % number for number in range(20)]
        assert subscriber.nothing_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_large_messages(broker: Served, version: int) -> None:
    topic = unique("t")
    payload = bytes(range(256)) * 3000
    with client(broker.tcp, version) as one:
        one.subscribe(topic, 1)
        for qos in (0, 1, 2):
            one.publish(topic, payload, qos)
        assert [message.payload == payload for message in one.take(3)] == [True] * 3


@pytest.mark.parametrize("version", VERSIONS)
def test_retained(broker: Served, version: int) -> None:
    topic = unique("t")
    with client(broker.tcp, version) as one:
        one.publish(topic, b"kept", 1, retain=True)
        one.subscribe(topic, 1)
        (message,) = one.take(1)
        assert (message.payload, message.retain) == (b"kept", True)
        one.publish(topic, b"", 1, retain=True)
        (message,) = one.take(1)
        assert (message.payload, message.retain) == (b"", False)
        with client(broker.tcp, version) as late:
            late.subscribe(topic, 1)
            assert late.nothing_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_will(broker: Served, version: int) -> None:
    topic = unique("will")
    with client(broker.tcp, version) as watcher:
        watcher.subscribe(f"{topic}/#", 2)
        polite, lost = Paho(version), Paho(version)
        polite.paho.will_set(f"{topic}/polite", b"no", 1)
        lost.paho.will_set(f"{topic}/lost", b"yes", 2)
        for one in (polite, lost):
            assert one.connect(broker.tcp)[0] == 0
        polite.close()
        lost.kill()
        (message,) = watcher.take(1)
        assert (message.topic, message.payload, message.qos) == (f"{topic}/lost", b"yes", 2)
        assert watcher.nothing_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_waits_for_its_client(broker: Served, version: int) -> None:
    topic, name = unique("t"), unique("s")
    lasting = {"properties": properties("CONNECT", SessionExpiryInterval=600)} if version == V5 else {}
    first = Paho(version, name, clean=False)
    assert first.connect(broker.tcp, **lasting)[:2] == (0, False)
    first.subscribe(topic, 2)
    first.close()
    with client(broker.tcp, version) as publisher:
        for number in range(300):
            publisher.publish(topic, b"%d" % number, 1 + number % 2)
    second = Paho(version, name, clean=False)
    assert second.connect(broker.tcp, **lasting)[:2] == (0, True)
    got = [message.payload for message in second.take(300)]
    assert sorted(got, key=int) == [b"%d" % number for number in range(300)]
    for parity in (0, 1):
        assert [int(one) for one in got if int(one) % 2 == parity] == list(range(parity, 300, 2))
    second.close()
    clean = Paho(version, name, clean=True)
    assert clean.connect(broker.tcp)[:2] == (0, False)
    clean.close()


def test_properties(broker: Served) -> None:
    topic = unique("t")
    sent = properties(
        "PUBLISH",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=100,
        ContentType="text/plain",
        ResponseTopic="reply",
        CorrelationData=b"\x00\x01",
        UserProperty=[("b", "1"), ("a", "2"), ("b", "3")],
    )
    with client(broker.tcp) as one:
        one.subscribe(topic, 1, properties=properties("SUBSCRIBE", SubscriptionIdentifier=7))
        one.publish(topic, b"x", 1, properties=sent)
        (message,) = one.take(1)
        got = message.properties
        assert got.PayloadFormatIndicator == 1
        assert got.MessageExpiryInterval in (99, 100)
        assert (got.ContentType, got.ResponseTopic, got.CorrelationData) == ("text/plain", "reply", b"\x00\x01")
        assert got.UserProperty == [("b", "1"), ("a", "2"), ("b", "3")]
        assert got.SubscriptionIdentifier == [7]


def test_connack_properties(broker: Served) -> None:
    one = Paho(V5)
    _, _, told = one.connect(broker.tcp)
    one.close()
    assert told.ReceiveMaximum == 1000
    assert told.TopicAliasMaximum == 64
    assert told.MaximumPacketSize == 1 << 20


def test_shared_subscriptions(broker: Served) -> None:
    topic, group = unique("t"), unique("g")
    with client(broker.tcp) as a, client(broker.tcp, V311) as b, client(broker.tcp) as publisher:
        for member in (a, b):
            assert member.subscribe(f"$share/{group}/{topic}", 1) == [1]
        for number in range(40):
            publisher.publish(topic, b"%d" % number, 1)
        got: list[list[bytes]] = []
        for member in (a, b):
            mark = unique("mark")
            member.subscribe(mark, 1)
            publisher.publish(mark, b"", 1)
            got.append([])
            while (message := member.take(1)[0]).topic != mark:
                got[-1].append(message.payload)
        assert sorted(got[0] + got[1], key=int) == [b"%d" % number for number in range(40)]
        assert got[0]
        assert got[1]


def test_no_local_and_retain_options(broker: Served) -> None:
    topic = unique("t")
    with client(broker.tcp) as one, client(broker.tcp) as other:
        one.subscribe(topic, 1, noLocal=True)
        other.subscribe(topic, 1, retainAsPublished=True)
        one.publish(topic, b"x", 1, retain=True)
        (message,) = other.take(1)
        assert message.retain
        one.subscribe(topic, 1, noLocal=True, retainHandling=2)
        assert one.nothing_more()


@pytest.mark.parametrize("version", VERSIONS)
def test_passwords_and_rights(broker: Served, version: int) -> None:
    refused = {V311: 0x86, V5: 0x86}[version]
    for name, password, expected in (("ann", "wonderland", 0), ("ann", "wrong", refused), ("bob", "x", refused)):
        one = Paho(version)
        one.paho.username_pw_set(name, password)
        assert one.connect(broker.guarded)[0] == expected
        one.close()
    nobody = Paho(version)
    assert nobody.connect(broker.guarded)[0] in (0x86, 0x87)
    nobody.close()
    secret = "secret/" + unique("t")
    ann = Paho(version)
    ann.paho.username_pw_set("ann", "wonderland")
    assert ann.connect(broker.tcp)[0] == 0
    ann.subscribe(secret, 1)
    with client(broker.tcp, version) as stranger:
        stranger.subscribe(secret, 1)
        stranger.publish(secret, b"forged", 1)
        ann.publish(secret, b"true", 1)
        assert [message.payload for message in ann.take(1)] == [b"true"]
        assert stranger.nothing_more()
    ann.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_tls(broker: Served, version: int) -> None:
    topic = unique("t")
    one = Paho(version).tls(broker.certificates)
    one.paho.username_pw_set("ann", "wonderland")
    assert one.connect(broker.tls)[0] == 0
    one.subscribe(topic, 2)
    for qos in (0, 1, 2):
        one.publish(topic, b"x" * 100_000, qos)
    assert [len(message.payload) for message in one.take(3)] == [100_000] * 3
    one.close()


def test_client_certificates(broker: Served) -> None:
    """The certificate's name is the user, whose rights count; without a certificate nobody gets in."""
    secret = "secret/" + unique("t")
    one = Paho(V5).tls(broker.certificates, own=True)
    assert one.connect(broker.mutual)[0] == 0
    one.subscribe(secret, 1)
    one.publish(secret, b"x", 1)
    assert [message.payload for message in one.take(1)] == [b"x"]
    one.close()
    assert _is_refused(Paho(V5).tls(broker.certificates), broker.mutual)


def _is_refused(stranger: Paho, port: int) -> bool:
    """Whether the connection breaks before a CONNACK; with TLS 1.3 the client learns of it only when it reads."""
    try:
        stranger.paho.connect("127.0.0.1", port)
        while stranger.paho.loop(1) == 0:
            if not stranger.connects.empty():
                return False
    except OSError:
        pass
    return not stranger.paho.is_connected()


def test_takeover_tells_the_older_client(broker: Served) -> None:
    name = unique("s")
    first, second = Paho(V5, name), Paho(V5, name)
    first.paho.reconnect_delay_set(60, 60)
    assert first.connect(broker.tcp)[0] == 0
    assert second.connect(broker.tcp)[0] == 0
    assert first.disconnects.get(timeout=30).value == 0x8E
    first.close()
    second.close()


def test_sys_topics(broker: Served) -> None:
    with client(broker.tcp, V311) as one:
        one.subscribe("$SYS/broker/version")
        (message,) = one.take(1)
        assert message.payload.startswith(b"metromq version")
        assert message.retain
