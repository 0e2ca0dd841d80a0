"""tools/step.sh: what a long step of the Makefile is for is said before it runs, its output only when it fails."""

import re
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
STEP = ["sh", str(ROOT / "tools" / "step.sh")]


def test_a_step_that_works_says_what_it_did_and_how_long_it_took() -> None:
    done = subprocess.run(
        [*STEP, "Counting to three", "sh", "-c", "echo one two three"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert re.fullmatch(r"Counting to three \.\.\.\nCounting to three: done in \d+ s\n", done.stdout)


def test_a_step_that_fails_shows_what_it_said() -> None:
    done = subprocess.run(
        [*STEP, "Counting", "sh", "-c", "echo one; echo 'no two' >&2; exit 3"], capture_output=True, text=True
    )
    assert done.returncode == 3
    assert re.search(r"Counting: failed after \d+ s with status 3\. It said:\n    one\n    no two\n$", done.stdout)


def test_a_step_that_is_interrupted_ends_its_command() -> None:
    command = [*STEP, "Waiting", "sh", "-c", "echo $$ >&3; exec sleep 600"]
    running = subprocess.Popen(["sh", "-c", 'exec "$@" 3>&1', "sh", *command], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    lines = {running.stdout.readline().strip(), running.stdout.readline().strip()}
    (pid,) = (int(line) for line in lines if line.isdigit())
    running.send_signal(signal.SIGINT)
    assert running.wait(30) == 130
    running.stdout.read()  # ends when the command has closed its side, which is a moment before its end
    deadline = time.monotonic() + 30
    while not _has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith(("Z", "X"))
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_no_long_install_of_the_makefile_is_silent() -> None:
    lines = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    installs = [line for line in lines if line.startswith("\t") and re.search(r"pip (install|wheel)|-m venv", line)]
    assert len(installs) >= 6
    assert all(line.startswith("\t$(STEP) ") for line in installs)
