"""A client identifier is no key: with another user's identifier nobody gets anything, at any broker, at any time.

Real brokers, one or three, with password and ACL files; real clients. The tests know only what clients sent and got.
"""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.paho_client import V5, V311, unique
from tests.joints.guarded import OPEN, PASSWORDS, Town, Visitor, town, write_passwords
from tests.peers import require

NOT_VALID = 0x85  # which paho also makes of return code 2 of MQTT 3.1.1
VERSIONS = (V311, V5)
THIEVES = ("bob", None)


@pytest.fixture(scope="module", params=[1, 3], ids=["one broker", "a city"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("owners"), request.param) as running:
        yield running


def attack(place: Town, client_id: str) -> None:
    """Everybody who is not the owner tries every way in; all are told the same, and none gets a message."""
    for name in place.names:
        for version in VERSIONS:
            for user in THIEVES:
                for clean in (False, True):
                    thief = Visitor(version, client_id, user, clean).enter(place.port(name))
                    said = f"{user} at {name}, version {version}, clean {clean}"
                    assert thief.code == NOT_VALID, said
                    assert thief.waiting() == [], said
                    thief.leave()


def attack_with_mosquitto(place: Town, client_id: str, topic: str) -> None:
    for name in place.names:
        for version, lasting in (("mqttv311", []), ("mqttv5", ["-x", "600"])):
            command = [require("mosquitto_sub"), "-h", "127.0.0.1", "-p", str(place.port(name)), "-i", client_id, "-c"]
            command += ["-V", version, *lasting, "-u", "bob", "-P", PASSWORDS["bob"], "-t", topic, "-q", "1", "-W", "3"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.stdout == "", done
            assert done.returncode != 0, done
            said = done.stderr.lower()
            assert "identifier" in said, done


def publish(place: Town, topic: str, *payloads: str) -> None:
    for payload in payloads:
        command = [require("mosquitto_pub"), "-h", "127.0.0.1", "-p", str(place.port(place.names[0])), "-q", "1"]
        command += ["-u", "pub", "-P", PASSWORDS["pub"], "-t", topic, "-m", payload]
        subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize("version", VERSIONS)
def test_another_users_identifier_opens_nothing(place: Town, version: int) -> None:
    me, topic = unique("client"), unique("private")
    watcher = Visitor(V5, unique("watch"), "watch", True).enter(place.port(place.names[0]))
    watcher.paho.subscribe(f"will/{me}", 1)
    owner = Visitor(version, me, "ann").enter(place.port(place.names[0]), f"will/{me}")
    assert owner.code == 0
    owner.paho.subscribe(topic, 1)

    attack(place, me)
    attack_with_mosquitto(place, me, topic)
    publish(place, topic, "while she is here")
    assert owner.got(1) == ["while she is here"]
    assert owner.is_connected()
    owner.leave()

    publish(place, topic, "one", "two")
    attack(place, me)
    attack_with_mosquitto(place, me, topic)
    for name in place.names:
        place.kill(name)
    attack(place, me)
    publish(place, topic, "three")

    owner = Visitor(version, me, "ann").enter(place.port(place.names[-1]))  # the same user may move
    attack(place, me)  # also at once, while the old broker still holds what it sends after
    assert (owner.code, owner.present) == (0, True)
    assert owner.got(3) == ["one", "two", "three"]
    publish(place, topic, "four")
    assert owner.got(1) == ["four"]
    assert owner.is_connected()
    owner.leave()
    assert watcher.waiting() == [], "the will stays where it is"
    watcher.leave()


def test_a_session_of_nobody_is_nobodys(place: Town) -> None:
    me, topic = unique("client"), unique("private")
    owner = Visitor(V5, me, None).enter(place.port(place.names[0]))
    owner.paho.subscribe(topic, 1)
    owner.leave()
    publish(place, topic, "one")
    for name in place.names:
        thief = Visitor(V5, me, "bob").enter(place.port(name))
        assert (thief.code, thief.waiting()) == (NOT_VALID, [])
        thief.leave()
    owner = Visitor(V5, me, None).enter(place.port(place.names[-1]))
    assert owner.got(1) == ["one"]
    owner.leave()


def test_a_race_is_won_by_the_owner(place: Town) -> None:
    """Thieves knock at every broker all the time while the owner comes and goes and moves."""
    me, topic = unique("client"), unique("private")
    owner = Visitor(V5, me, "ann").enter(place.port(place.names[0]))
    owner.paho.subscribe(topic, 1)
    owner.leave()
    stop = threading.Event()
    codes: list[int] = []
    got: list[str] = []

    def knock(name: str) -> None:
        while not stop.is_set():
            thief = Visitor(V5, me, "bob", len(codes) % 2 == 0).enter(place.port(name))
            codes.append(thief.code)
            got.extend(thief.waiting())
            thief.leave()

    knocking = [threading.Thread(target=knock, args=(name,)) for name in place.names]
    for thread in knocking:
        thread.start()
    try:
        for number in range(6):
            publish(place, topic, f"m{number}")
            owner = Visitor(V5, me, "ann").enter(place.port(place.names[number % len(place.names)]))
            assert (owner.code, owner.present) == (0, True)
            while owner.got(1) != [f"m{number}"]:
                pass  # QoS 1 may repeat what she had at another broker
            owner.leave()
    finally:
        stop.set()
        for thread in knocking:
            thread.join()
    assert set(codes) == {NOT_VALID}
    assert got == []


def test_rights_that_are_taken_away(place: Town) -> None:
    me, other, secret, open_topic = unique("client"), unique("other"), unique("secret"), unique("open")
    first, last = place.names[0], place.names[-1]
    here = Visitor(V5, other, "ann").enter(place.port(last))
    away = Visitor(V5, me, "ann").enter(place.port(first))
    bob = Visitor(V5, unique("bob"), "bob").enter(place.port(first))
    for visitor in (here, away):
        visitor.paho.subscribe(secret, 1)
        visitor.paho.subscribe(open_topic, 1)
    away.leave()
    publish(place, secret, "s1")
    publish(place, open_topic, "o1")
    assert here.got(2) == ["s1", "o1"]
    try:
        (place.directory / "acl").write_text(OPEN + f"user ann\ntopic deny {secret}\n")
        write_passwords(place.directory, {name: password for name, password in PASSWORDS.items() if name != "bob"})
        place.reload()
        assert bob.paho.disconnects.get(timeout=30).value == 0x87
        publish(place, secret, "s2")
        publish(place, open_topic, "o2")
        assert here.got(1) == ["o2"]
        away = Visitor(V5, me, "ann").enter(place.port(last))
        assert away.got(2) == ["o1", "o2"]
        publish(place, open_topic, "o3")
        assert (here.got(1), away.got(1)) == (["o3"], ["o3"])
        assert here.is_connected()
    finally:
        (place.directory / "acl").write_text(OPEN)
        write_passwords(place.directory, PASSWORDS)
        place.reload()
    for visitor in (here, away, bob):
        visitor.leave()


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_newcomer_may_be_given_a_session_of_their_own(tmp_path: Path, brokers: int) -> None:
    """`foreign_client_id = "new-session"`: the old session ends with its queue, and is never the newcomer's."""
    with town(tmp_path, brokers, "new-session") as place:
        me, topic = unique("client"), unique("private")
        owner = Visitor(V5, me, "ann").enter(place.port(place.names[0]))
        owner.paho.subscribe(topic, 1)
        owner.leave()
        publish(place, topic, "one")
        newcomer = Visitor(V5, me, "bob").enter(place.port(place.names[-1]))
        assert (newcomer.code, newcomer.present) == (0, False)
        publish(place, topic, "two")
        newcomer.paho.subscribe(f"{topic}/bob", 1)
        publish(place, f"{topic}/bob", "for bob")
        assert newcomer.got(1) == ["for bob"]
        newcomer.leave()
        for name in place.names:
            place.kill(name)
        owner = Visitor(V5, me, "ann").enter(place.port(place.names[0]))
        assert (owner.code, owner.present) == (0, False)
        publish(place, f"{topic}/bob", "for nobody")
        assert owner.paho.nothing_more()
        owner.leave()
