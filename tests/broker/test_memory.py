"""Large buffers are used again instead of being asked from the system each time."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from metromq.broker.memory import keep_buffers

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(2 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if not keep_buffers():
    sys.exit("this C library has no mallopt")
faults()
print(faults())
"""


def test_buffers_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    if "no mallopt" in done.stderr and not os.environ.get("CI"):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50 * 512 / 2  # 512 pages each, if each were new
