"""mqtt.js, the browser's client, over WebSocket against a broker process."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import Served
from tests.clients.paho_client import unique
from tests.peers import npm_install, require

NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mqtt.js, installed beside the story that uses it."""
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "story.mjs"):
        shutil.copy(NODE / name, directory)
    npm_install(directory, "mqtt.js")
    return directory


@pytest.mark.parametrize("version", ["4", "5"])
def test_mqtt_js(broker: Served, node_directory: Path, version: str) -> None:
    node = require("node")
    mark = unique("js")
    command = [node, "story.mjs", f"ws://127.0.0.1:{broker.ws}/mqtt", version, mark]
    done = subprocess.run(command, cwd=node_directory, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["granted"] == [2]
    assert result["messages"] == [["hello 0", 0], ["hello 1", 1], ["hello 2", 2]]
    assert result["large"] is True
    assert result["retained"] == [["kept", True]]
    assert result["will"] == [[f"{mark}/will", "gone"]]
    if version == "5":
        assert result["properties"] == ["text/plain", [0, 1], "v"]
