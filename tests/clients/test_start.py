"""What an operator is told at the start of a real broker: files that others can read, journals that cannot be used."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import make_certificates
from tests.clients.conftest import Served
from tests.clients.paho_client import V5, Paho, client, properties
from tests.peers import open_directory


@pytest.fixture
def reachable_broker() -> Iterator[Served]:
    """In a directory that others may enter."""
    with open_directory() as directory:
        served = Served(directory, make_certificates(directory))
        try:
            yield served
        finally:
            served.end(signal.SIGKILL)


def test_files_that_others_can_read_are_told_with_the_command_that_closes_them(reachable_broker: Served) -> None:
    own_broker = reachable_broker
    own_broker.end()
    # As an earlier release, or a careless umask, left them.
    passwords, journal = own_broker.directory / "passwords", own_broker.directory / "data" / "journal"
    for path, mode in ((passwords, 0o644), (journal.parent, 0o755), (journal, 0o755)):
        path.chmod(mode)
    (own_broker.directory / "acl").chmod(0o600)
    own_broker.certificates.server.key.chmod(0o600)
    own_broker.log.clear()
    own_broker.start()
    open_paths = [passwords, journal]
    warnings = [line for line in own_broker.log if "other users" in line]
    assert len(warnings) == len(open_paths), own_broker.log
    for path, line in zip(open_paths, warnings, strict=True):
        assert " warning " in line
        found = re.search(r'to_do="chmod (-R )?o-rwx (\S+)"', line)
        assert found is not None, line
        assert Path(found.group(2)) == path
        path.chmod(path.stat().st_mode & 0o770)
    own_broker.end()
    own_broker.log.clear()
    own_broker.start()
    assert not [line for line in own_broker.log if "other users" in line]


def _fill(broker: Served) -> None:
    lasting = Paho(V5, "lasting", clean=False)
    lasting.connect(broker.tcp, properties=properties("CONNECT", SessionExpiryInterval=600))
    lasting.subscribe("t", 1)
    lasting.close()
    with client(broker.tcp) as writer:
        for number in range(100):
            writer.publish("t", b"%d" % number, 1, retain=True)
    broker.end(signal.SIGKILL)


def _harm(broker: Served) -> None:
    (segment,) = (broker.directory / "data" / "journal").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)


def test_a_damaged_journal_is_set_aside_only_when_asked(own_broker: Served) -> None:
    broker = own_broker
    _fill(broker)
    _harm(broker)
    with pytest.raises(AssertionError, match="the broker ended"):
        broker.start()
    told = "".join(broker.log)
    assert "is damaged at byte" in told
    assert "--accept-damage" in told
    assert "--set-aside-damaged" in told
    aside = broker.directory / "data" / "journal.damaged-1"
    assert not aside.exists()
    broker.log.clear()
    broker.start("--set-aside-damaged")
    (line,) = [line for line in broker.log if "set aside" in line]
    assert str(aside) in line
    assert "retained messages" in line
    assert list(aside.glob("*.seg"))
    again = Paho(V5, "lasting", clean=False)
    assert again.connect(broker.tcp, properties=properties("CONNECT", SessionExpiryInterval=600))[:2] == (0, False)
    again.close()
    broker.end()
    broker.log.clear()
    broker.start("--set-aside-damaged")  # left in a start script, it does nothing to a good journal
    again = Paho(V5, "lasting", clean=False)
    assert again.connect(broker.tcp)[:2] == (0, True)
    again.close()
    assert not (broker.directory / "data" / "journal.damaged-2").exists()
