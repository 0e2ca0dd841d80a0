"""The example in docs/client.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from tests.peers import Server

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_example(server: Server) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "port=1883" in example
    program = example.replace("port=1883", f"port={server.port}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"city/7/air 21.5 text/plain\n", b"")
