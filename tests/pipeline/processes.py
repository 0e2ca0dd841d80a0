"""Programs that the tests start, watch and kill, by their number only."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

DEADLINE_S = 900.0
COMMAND = [sys.executable, "-m", "metromq.cli.main"]


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll; the deadline is only for a test that will fail anyway."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE_S:.0f} s"
        time.sleep(0.02)


class Program:
    """A program whose output goes to a file, so that it can be read while it runs."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self.log = log
        inherited = {
            name: value for name, value in os.environ.items() if name != "METROMQ_KILLS"
        }  # no setting of a broker
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                arguments, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env={**inherited, **(environment or {})}
            )
        self.pid = self._process.pid

    def says(self, words: str) -> bool:
        assert self._process.poll() is None, f"it ended with {self._process.returncode}:\n{self.text()}"
        return words in self.text()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL, to this one alone."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(DEADLINE_S)

    def wait(self) -> int:
        return self._process.wait(DEADLINE_S)

    def clean_up(self) -> None:
        """Nothing of this program survives the test."""
        family = self.family()
        if self._process.poll() is None:
            self.kill()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        psutil.wait_procs(family, DEADLINE_S)
