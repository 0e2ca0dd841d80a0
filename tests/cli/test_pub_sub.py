"""`metromq pub` and `metromq sub` as processes, against Mosquitto and MetroMQ and beside mosquitto's own clients."""

import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from metromq.cli.main import group
from tests.peers import Server, free_ports, require

METROMQ = [sys.executable, "-c", "from metromq.cli.main import main; main()"]
DEADLINE_S = 60


def run(*arguments: str | float | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`metromq ...` to its end."""
    command = [*METROMQ, *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_S, check=False)


@contextmanager
def subscriber(server: Server, *arguments: str | int) -> Iterator[subprocess.Popen[bytes]]:
    """`metromq sub -d ...`, once it says that it has subscribed."""
    command = [*METROMQ, "sub", "-p", str(server.port), "-d", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith(b"Subscribed"):
                    break
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[bytes]) -> bytes:
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return output


@pytest.fixture
def topic() -> str:
    return f"cli/{secrets.token_hex(4)}"


def test_message_line_and_file(server: Server, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff file")
    with subscriber(server, "-t", f"{topic}/#", "-q", 2, "-v", "-C", 8) as process:
        publish = ("pub", "-p", server.port, "-q", 1, "-t")
        assert run(*publish, f"{topic}/m", "-m", "hello wörld").returncode == 0
        assert run(*publish, f"{topic}/f", "-f", file).returncode == 0
        assert run(*publish, f"{topic}/n", "-n").returncode == 0
        assert run(*publish, f"{topic}/s", "-s", stdin=b"two\nlines").returncode == 0
        assert run(*publish, f"{topic}/l", "-l", stdin=b"a\nb\nlast").returncode == 0
        assert run(*publish, f"{topic}/0", "-m", "", "-q", 0).returncode == 0
        output = printed(process)
    expected = [
        b"%s/m hello w\xc3\xb6rld",
        b"%s/f \x00\xff file",
        b"%s/n ",
        b"%s/s two\nlines",
        b"%s/l a",
        b"%s/l b",
        b"%s/l last",
        b"%s/0 ",
    ]
    assert output == b"".join(line % topic.encode() + b"\n" for line in expected)


def test_beside_mosquittos_own_clients(server: Server, topic: str) -> None:
    """Both subscribers make a session, both publishers fill it, and both subscribers print the same."""
    properties = ("-D", "publish", "content-type", "text", "-D", "publish", "user-property", "k", "v w")
    place = ("-p", str(server.port), "-t", topic, "-q", "1", "-V", "5")
    session = (*place, "-c", "-F", "%p|%q|%C|%P|%x|%l", "-i")
    name = topic.replace("/", "-")

    def theirs(program: str, *arguments: str) -> bytes:
        command = [require(program), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True).stdout

    assert run("sub", *session, f"ours-{name}", "-E").returncode == 0
    theirs("mosquitto_sub", *session, f"theirs-{name}", "-E")
    assert run("pub", *place, "-m", "ours", *properties).returncode == 0
    theirs("mosquitto_pub", *place, "-m", "theirs", *properties)
    shown = run("sub", *session, f"ours-{name}", "-C", 2, "-D", "disconnect", "session-expiry-interval", 0)
    assert shown.stdout == b"ours|1|text|k:v w|6f757273|4\ntheirs|1|text|k:v w|746865697273|6\n"
    assert theirs("mosquitto_sub", *session, f"theirs-{name}", "-C", "2") == shown.stdout


def test_retained_filters_and_removal(server: Server, topic: str) -> None:
    for name in ("a", "b", "c"):
        assert run("pub", "-p", server.port, "-t", f"{topic}/{name}", "-m", name, "-r").returncode == 0
    sub = ("sub", "-p", server.port, "-t", f"{topic}/#")
    assert sorted(run(*sub, "-T", f"{topic}/b", "-C", 2, "-N").stdout) == sorted(b"ac")
    done = run(*sub, "-R", "-W", 0.3)
    assert (done.stdout, done.returncode) == (b"", 27)
    assert b"Timed out" in done.stderr
    assert sorted(run(*sub, "--remove-retained", "-C", 3, "-F", "%r%p").stdout.split()) == [b"1a", b"1b", b"1c"]
    assert run(*sub, "-W", 0.3, "--quiet").stderr == b""


def test_a_lasting_session(server: Server, topic: str) -> None:
    session = ("sub", "-p", server.port, "-t", topic, "-q", 1, "-c", "-i", topic.replace("/", "-"))
    assert run(*session, "-E").returncode == 0
    assert run("pub", "-p", server.port, "-t", topic, "-q", 1, "-m", "x", "--repeat", 3).returncode == 0
    assert run(*session, "-C", 3).stdout == b"x\nx\nx\n"
    assert run("sub", "-p", server.port, "-i", session[-1], "-t", topic, "-E").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_politely(server: Server, topic: str, number: signal.Signals) -> None:
    with subscriber(server, "-t", topic, "--will-topic", topic, "--will-payload", "unexpected") as process:
        process.send_signal(number)
        assert printed(process) == b""


def test_refused_connections_exit_with_the_servers_code(server: Server) -> None:
    """Mosquitto says 'not authorized' where MQTT has 'bad user name or password'."""
    port, publish = server.ports[1], ("-t", "a", "-m", "b")
    done = run("pub", "-p", port, *publish)
    assert done.returncode == 5
    assert b"refused the connection: Not authorized" in done.stderr
    assert run("pub", "-p", port, *publish, "-V", "mqttv5", "--quiet").returncode == 135
    assert run("pub", "-p", port, *publish, "-u", "alice", "-P", "no").returncode in (4, 5)
    assert run("sub", "-p", port, "-t", "a", "-E", "-u", "alice", "-P", "no", "-V", "5").returncode in (134, 135)
    assert run("pub", "-p", port, *publish, "-u", "alice", "-P", "secret").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pub", "-t", "a"], "both a topic (-t) and a message"),
        (["pub", "-m", "a"], "both a topic (-t) and a message"),
        (["pub", "-t", "a", "-m", "b", "-n"], "only one of -m, -f, -l, -n and -s"),
        (["pub", "-t", "a", "-l", "--repeat", "3"], "--repeat needs"),
        (["pub", "-t", "a", "-f", "/nonexistent"], "cannot read the file /nonexistent"),
        (["pub", "-t", "a", "-m", "b", "-q", "3"], "0<=x<=2"),
        (["pub", "-t", "a", "-D", "publish", "x"], "-D needs COMMAND IDENTIFIER VALUE"),
        (["sub"], "a topic to subscribe to (-t)"),
        (["sub", "-t", "a#"], "`#` must stand alone"),
        (["sub", "-t", "a", "-F", "%Z"], "unknown sequence %Z"),
        (["sub", "--bogus"], "No such option"),
        (["sub", "-t", "a", "-R", "--retained-only"], "leave nothing to print"),
    ],
)
def test_wrong_usage_exits_with_1(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 1
    assert said in done.stderr
    assert "--help" in done.stderr


def test_nobody_there() -> None:
    [port] = free_ports(1)
    for arguments in (("pub", "-p", port, "-t", "a", "-m", "b"), ("sub", "-p", port, "-t", "a")):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"Error: cannot connect to localhost" in done.stderr


def test_help_has_examples() -> None:
    for name in ("pub", "sub", "passwd", "check-config"):
        done = CliRunner().invoke(group, [name, "--help"])
        assert done.exit_code == 0
        assert "Examples:" in done.stdout
