"""The same password and ACL files give the same decisions in Mosquitto, in MetroMQ and in the pure rules."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from metromq.broker.auth import load_passwords, parse_acl
from metromq.cli.passwd import command as passwd
from metromq.client import Client, ConnectRefused, MqttError
from metromq.config import Auth, Config, Listener
from tests.peers import Server, metromq, mosquitto, play, require

USERS = {"alice": "secret", "bob smith": "b ob", "a+b": "x", "o:k": "never", "probe": "p"}
ACL = """\
topic read news/#
topic deny news/secret
topic read end
user alice
topic readwrite home/+/light
topic deny home/cellar/light
topic write only/write
topic read end
topic $x/y
user bob smith
topic #
user a+b
topic read end
topic own
user probe
topic #
topic $x/#
pattern write sensor/%u/data
pattern read device/%c/#
pattern deny device/%c/key
pattern readwrite mix/p%c/%u
pattern read end
"""
TOPICS = [
    "news",
    "news/today",
    "news/secret",
    "home/kitchen/light",
    "home/cellar/light",
    "home/light",
    "only/write",
    "own",
    "sensor/alice/data",
    "sensor/a+b/data",
    "sensor/bob smith/data",
    "device/c1",
    "device/c1/x",
    "device/c1/key",
    "device/c2/x",
    "mix/pc1/alice",
    "mix/pc1/bob smith",
    "$x/y",
]
CLIENTS = [(None, "c1"), ("alice", "c1"), ("bob smith", "c1"), ("a+b", "c1"), ("alice", "c+")]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A password file made half by mosquitto_passwd and half by `metromq passwd`, and an ACL file."""
    directory = tmp_path_factory.mktemp("auth")
    file = directory / "passwords"
    program = require("mosquitto_passwd")
    subprocess.run([program, "-c", "-b", str(file), "alice", USERS["alice"]], check=True)
    subprocess.run([program, "-H", "sha512", "-b", str(file), "bob smith", USERS["bob smith"]], check=True)
    for name, options in (("a+b", []), ("probe", ["-H", "sha512"])):
        done = CliRunner().invoke(passwd, [*options, "-b", str(file), name, USERS[name]])
        assert done.exit_code == 0, done.output
    (directory / "acl").write_text(ACL)
    for path in directory.iterdir():
        path.chmod(0o644)  # mosquitto gives up root's rights before it reads them
    directory.chmod(0o755)
    return directory


@pytest.fixture(scope="module", params=["mosquitto", "metromq"])
def server(request: pytest.FixtureRequest, files: Path) -> Iterator[Server]:
    passwords, acl = files / "passwords", files / "acl"
    if request.param == "mosquitto":
        lines = ("listener {0} 127.0.0.1", "allow_anonymous true", f"password_file {passwords}", f"acl_file {acl}")
        with mosquitto(files, 1, *lines) as running:
            yield running
    else:
        auth = Auth(password_file=passwords, acl_file=acl, allow_anonymous=True)
        listeners = (Listener(port=0),)
        with metromq(Config(durability="memory", auth=auth, listeners=listeners, data_dir=files / "data")) as running:
            yield running


@pytest.mark.parametrize("name", [*USERS, "stranger"])
@pytest.mark.parametrize("right", [True, False])
def test_passwords(server: Server, files: Path, name: str, right: bool) -> None:
    password = USERS.get(name, "x") if right else "wrong"
    expected = load_passwords(files / "passwords").check(name, password.encode())
    assert expected is (right and name in USERS and name != "o:k")

    async def enter() -> int | None:
        try:
            async with Client("127.0.0.1", server.port, username=name, password=password):
                return 0
        except ConnectRefused as error:
            return error.reason_code

    assert play(enter()) in ((0,) if expected else (0x86, 0x87))


def client_of(server: Server, user: str | None, client_id: str) -> Client:
    password = USERS[user] if user else None
    return Client("127.0.0.1", server.port, identifier=client_id, username=user, password=password)


@pytest.mark.parametrize(("user", "client_id"), CLIENTS)
def test_publishing(server: Server, user: str | None, client_id: str) -> None:
    acl = parse_acl(ACL, "acl")

    async def answers() -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        async with client_of(server, user, client_id) as client:
            for topic in TOPICS:
                if "+" not in topic:  # no topic name has wildcards
                    try:
                        await client.publish(topic, "x", qos=1)
                        found[topic] = 0
                    except MqttError as error:
                        found[topic] = error.reason_code
        return found

    assert play(answers()) == {
        topic: 0 if acl.may_publish(user, client_id, topic) else 0x87 for topic in TOPICS if "+" not in topic
    }


@pytest.mark.parametrize(("user", "client_id"), CLIENTS)
def test_reading(server: Server, user: str | None, client_id: str) -> None:
    acl = parse_acl(ACL, "acl")
    topics = [topic for topic in TOPICS if "+" not in topic]

    async def seen() -> list[str]:
        async with client_of(server, user, client_id) as reader, client_of(server, "probe", "probe") as probe:
            await reader.subscribe(["#", "$x/#"], qos=1)
            for topic in [*topics, "end"]:
                await probe.publish(topic, "x", qos=1)
            found: list[str] = []
            async for message in reader.messages:
                if message.topic == "end":
                    break
                found.append(message.topic)
            return found

    assert play(seen()) == [topic for topic in topics if acl.may_read(user, client_id, topic)]


@pytest.mark.parametrize("line", ["topic", "user", "bogus x", "topic foo a", "topic read a/#/b", "topic a+"])
def test_mosquitto_refuses_the_same_lines(tmp_path: Path, line: str) -> None:
    program = require("mosquitto")
    acl = tmp_path / "acl"
    acl.write_text(line + "\n")
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"user root\nacl_file {acl}\nlistener 0 {tmp_path / 'socket'}\n")
    done = subprocess.run([program, "-c", str(config)], capture_output=True, timeout=30, check=False)
    assert done.returncode != 0
    assert b"acl_file" in done.stderr
    with pytest.raises(Exception, match="line 1"):
        parse_acl(line, "acl")
