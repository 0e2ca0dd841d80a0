"""mosquitto_pub and mosquitto_sub in their three versions against a broker process."""

import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import DEADLINE_S, Served
from tests.clients.paho_client import unique
from tests.peers import require

VERSIONS = ["mqttv31", "mqttv311", "mqttv5"]


def _pub(broker: Served, *arguments: str, port: int = 0, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [require("mosquitto_pub"), "-h", "localhost", "-p", str(port or broker.tcp), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=DEADLINE_S)


def _sub(broker: Served, *arguments: str, port: int = 0) -> str:
    """What `mosquitto_sub -C n` prints before it ends."""
    command = [require("mosquitto_sub"), "-h", "localhost", "-p", str(port or broker.tcp), "-W", "30", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("qos", ["0", "1", "2"])
@pytest.mark.parametrize("from_version", VERSIONS)
def test_retained_messages_between_versions(broker: Served, from_version: str, qos: str) -> None:
    topic = unique("t")
    assert _pub(broker, "-V", from_version, "-q", qos, "-t", topic, "-m", "hello", "-r").returncode == 0
    for version in VERSIONS:
        said = _sub(broker, "-V", version, "-q", "2", "-t", topic, "-C", "1", "-F", "%t %q %r %p")
        assert said == f"{topic} {qos} 1 hello\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_of_lines(broker: Served, version: str) -> None:
    """A session that waits, then one line a message, in order."""
    topic, name = unique("t"), unique("s")
    lasting = ["-x", "600"] if version == "mqttv5" else []
    _sub(broker, "-V", version, "-i", name, "-c", *lasting, "-q", "1", "-t", topic, "-E")
    lines = "".join(f"line {number}\n" for number in range(200))
    assert _pub(broker, "-V", version, "-q", "1", "-t", topic, "-l", text=lines).returncode == 0
    assert _sub(broker, "-V", version, "-i", name, "-c", *lasting, "-q", "1", "-t", topic, "-C", "200") == lines


def test_properties(broker: Served) -> None:
    topic = unique("t")
    options = ["-D", "publish", "user-property", "k", "v", "-D", "publish", "response-topic", "r"]
    assert _pub(broker, "-V", "mqttv5", "-t", topic, "-m", "x", "-r", *options).returncode == 0
    assert _sub(broker, "-V", "mqttv5", "-t", topic, "-C", "1", "-F", "%P %R %p") == "k:v r x\n"


def test_passwords(broker: Served) -> None:
    topic = unique("t")
    good = _pub(broker, "-t", topic, "-m", "x", "-u", "ann", "-P", "wonderland", port=broker.guarded)
    assert good.returncode == 0
    bad = _pub(broker, "-t", topic, "-m", "x", "-u", "ann", "-P", "x", port=broker.guarded)
    assert bad.returncode != 0
    assert "not authori" in bad.stderr.lower() or "bad user name" in bad.stderr.lower()


def test_certificates(broker: Served) -> None:
    topic = unique("t")
    pair = broker.certificates.client
    own = ["--cafile", str(broker.certificates.ca), "--cert", str(pair.cert), "--key", str(pair.key)]
    assert _pub(broker, *own, "-t", topic, "-m", "x", "-r", port=broker.mutual).returncode == 0
    assert _sub(broker, *own, "-t", topic, "-C", "1", port=broker.mutual) == "x\n"
    without = _pub(broker, *own[:2], "-t", topic, "-m", "x", port=broker.mutual)
    assert without.returncode != 0


def test_large_files(broker: Served, tmp_path: Path) -> None:
    topic = unique("t")
    file = tmp_path / "large"
    file.write_text("x" * 500_000)
    assert _pub(broker, "-t", topic, "-f", str(file), "-q", "2", "-r").returncode == 0
    assert _sub(broker, "-t", topic, "-C", "1") == "x" * 500_000 + "\n"
