"""A process that writes is killed with SIGKILL: all it reported as flushed is there, in order, and nothing else."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from metromq.journal import Journal, JournalReader
from tests.journal.slow import messages_of, replayed

ROUNDS = 5

WRITER = """
import os, pathlib, sys
from metromq.journal import Journal
journal = Journal.open(pathlib.Path(sys.argv[1]), segment_bytes=20_000)
while True:
    for _ in range(7):
        offset = journal.append_message(b"%d " % journal.next_offset * 40)
        journal.append(6, b"control")
    journal.flush()
    if offset % 11 == 0:
        journal.write_snapshot([b"%d" % journal.next_offset])()
    os.write(1, b"%d\\n" % offset)
"""


def test_killed_writers_leave_a_prefix(tmp_path: Path) -> None:
    dice = random.Random(20)
    known = -1
    for _ in range(ROUNDS):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(dice.randrange(1, 300)):
                known = int(child.stdout.readline())
            os.kill(child.pid, signal.SIGKILL)
            rest = child.stdout.read().split(b"\n")[:-1]
        known = int(rest[-1]) if rest else known
        reader = JournalReader(tmp_path)
        journal = Journal.open(tmp_path, segment_bytes=20_000)
        assert journal.damage == []
        assert journal.next_offset > known
        assert reader.bounds() == (0, journal.next_offset)
        for offset in range(journal.next_offset):
            assert journal.read(offset) == b"%d " % offset * 40
        state = journal.replay()[0]
        later = [offset for offset, _ in messages_of(replayed(journal))]
        assert later == list(range(int(state or b"0"), journal.next_offset))
        journal.close()
        reader.close()
