"""Signals to a broker process: SIGHUP reads the files again, SIGTERM drains, kill -9 loses nothing confirmed."""

import shutil
import signal

from tests.certificates import make_certificates
from tests.clients.conftest import Served
from tests.clients.paho_client import V5, V311, Paho, client, properties, unique


def _enters(broker: Served, name: str, password: str) -> bool:
    one = Paho(V5)
    one.paho.username_pw_set(name, password)
    code = one.connect(broker.guarded)[0]
    one.close()
    return code == 0


def test_sighup_reads_passwords_rights_and_certificates_again(own_broker: Served) -> None:
    broker = own_broker
    assert _enters(broker, "ann", "wonderland")
    assert not _enters(broker, "bob", "builder")
    with client(broker.tcp) as reader, client(broker.tcp) as writer:
        reader.subscribe("open/#", 1)
        for _ in range(3):  # the last ones on the short way
            writer.publish("open/t", b"before", 1)
            writer.publish("open/t", b"before", 0)
        reader.take(6)
        broker.write_passwords(bob="builder")
        (broker.directory / "acl").write_text("topic read #\ntopic readwrite mark\n")
        fresh = broker.directory / "fresh"
        fresh.mkdir()
        renewed = make_certificates(fresh)
        shutil.copy(renewed.server.cert, broker.certificates.server.cert)
        shutil.copy(renewed.server.key, broker.certificates.server.key)
        broker.send(signal.SIGHUP)
        broker.wait_for("reloaded")
        writer.publish("open/t", b"after", 1)
        writer.publish("open/t", b"after", 0)
        reader.subscribe("mark", 1)
        writer.publish("mark", b"", 1)
        assert reader.take(1)[0].topic == "mark"
    assert not _enters(broker, "ann", "wonderland")
    assert _enters(broker, "bob", "builder")
    bob = Paho(V5).tls(renewed)
    bob.paho.username_pw_set("bob", "builder")
    assert bob.connect(broker.tls)[0] == 0
    bob.close()


def test_sighup_with_a_broken_file_leaves_the_old_one_in_force(own_broker: Served) -> None:
    (own_broker.directory / "passwords").write_text("no colon here\n")
    own_broker.send(signal.SIGHUP)
    assert "passwords" in own_broker.wait_for("reload failed.*").group(0)
    assert _enters(own_broker, "ann", "wonderland")


def test_sigterm_drains(own_broker: Served) -> None:
    """Clients are told, the process ends well, and the next one knows everything."""
    broker = own_broker
    topic = unique("t")
    new, old = Paho(V5), Paho(V311)
    for one in (new, old):
        one.paho.reconnect_delay_set(60, 60)
        assert one.connect(broker.tcp)[0] == 0
    lasting = Paho(V5, "lasting", clean=False)
    lasting.connect(broker.tcp, properties=properties("CONNECT", SessionExpiryInterval=600))
    lasting.subscribe(topic, 1)
    lasting.close()
    new.publish(topic, b"x", 1)
    assert broker.end(signal.SIGTERM) == 0
    assert new.disconnects.get(timeout=30).value == 0x8B
    old.disconnects.get(timeout=30)
    for one in (new, old):
        one.close()
    assert any("stopped" in line for line in broker.log)
    broker.start()
    again = Paho(V5, "lasting", clean=False)
    assert again.connect(broker.tcp)[:2] == (0, True)
    assert [message.payload for message in again.take(1)] == [b"x"]
    again.close()


def test_kill_9_loses_nothing_confirmed(own_broker: Served) -> None:
    broker = own_broker
    topic = unique("t")
    lasting = Paho(V5, "lasting", clean=False)
    lasting.connect(broker.tcp, properties=properties("CONNECT", SessionExpiryInterval=600))
    lasting.subscribe(topic, 2)
    lasting.close()
    with client(broker.tcp) as writer:
        for number in range(50):
            writer.publish(topic, b"%d" % number, 1 + number % 2, retain=number == 49)
        writer.paho.reconnect_delay_set(60, 60)
        broker.end(signal.SIGKILL)
    broker.start()
    again = Paho(V5, "lasting", clean=False)
    assert again.connect(broker.tcp)[:2] == (0, True)
    assert sorted(int(message.payload) for message in again.take(50)) == list(range(50))
    assert again.nothing_more()
    again.close()
    with client(broker.tcp) as reader:
        reader.subscribe(topic)
        assert [message.payload for message in reader.take(1)] == [b"49"]
