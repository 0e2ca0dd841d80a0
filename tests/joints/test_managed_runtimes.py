"""A service in a real container, and mqtt.js through the proxy of a manager."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients.paho_client import client, unique
from tests.clients.test_mqtt_js import node_directory
from tests.control.manager.live import CENTRAL, FIRST, live_city, service
from tests.joints.test_manager import owners
from tests.peers import free_port, require

pytestmark = pytest.mark.timeout(600)  # for a machine that is busy: each takes some seconds

__all__ = ["node_directory"]
AT = "-h $HOST -p $PORT -q 1"
ECHO = f'mosquitto_sub {AT} -t box/in | while read x; do mosquitto_pub {AT} -t box/out -m "got $x"; done'


def root_filesystem(directory: Path) -> Path:
    """A shell and Mosquitto's clients, with the libraries that they need."""
    for program in ("sh", "mosquitto_sub", "mosquitto_pub"):
        path = Path(require(program)).resolve()
        said = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        files = [word for word in said.split() if word.startswith("/")]
        for file in files:
            target = directory / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(file).resolve(), target)
        (directory / "bin").mkdir(exist_ok=True)
        shutil.copy(path, directory / "bin" / program)
    for name in ("proc", "sys", "dev", "etc", "tmp", "run"):
        (directory / name).mkdir(exist_ok=True)
    return directory


def test_a_service_enters_in_a_container_with_limits_and_leaves(tmp_path: Path) -> None:
    require("podman")
    require("runc")
    root = root_filesystem(tmp_path / "root")
    with live_city(tmp_path / "data", CENTRAL, FIRST) as city:
        door = city.start_manager()
        body = service(
            "box",
            "box/in",
            runtime="podman",
            rootfs=str(root),
            command=["/bin/sh", "-c", ECHO],
            limits={"cpus": 0.5, "memory_mb": 64},
            environment={"HOST": "127.0.0.1", "PORT": str(city.port(FIRST)), "PATH": "/bin"},
            device=FIRST,
        )
        done = door.ask("POST", "/services", body, wait_s=120)
        try:
            assert done["phase"] == "done", done
            with client(city.port(FIRST)) as user:
                user.subscribe("box/out", 1)
                answer = ""
                for number in range(60):  # until its subscription is there
                    user.publish("box/in", f"{number}\n".encode(), 1)
                    if not user.messages.empty():
                        answer = user.take(1)[0].payload.decode()
                        break
                    user.nothing_more()
                assert answer.startswith("got") or user.take(1)[0].payload.startswith(b"got")
            named = subprocess.run(
                ["podman", "ps", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
            ).stdout
            assert "-service-box" in named
        finally:
            gone = door.ask("DELETE", "/services/box", wait_s=120) if done["phase"] == "done" else {"phase": ""}
        assert gone["phase"] == "done", gone
        assert owners(door) == {}
        missing = service("far", "far/x", runtime="podman", image="127.0.0.1:1/nobody/has:this", device=FIRST)
        failed = door.ask("POST", "/services", missing, wait_s=120)
        assert failed["phase"] == "rolled-back"
        assert "cannot be pulled" in failed["why"]


def test_mqtt_js_through_the_proxy_of_a_manager(tmp_path: Path, node_directory: Path) -> None:
    node = require("node")
    with live_city(tmp_path, CENTRAL, FIRST) as city:
        door = city.start_manager()
        gate = free_port()
        city.start_proxy(door, "gate", gate)
        mark = unique("js")
        plan = door.ask("POST", "/topics", {"filter": f"{mark}/#", "broker": FIRST}, wait_s=60)
        assert plan["phase"] == "done", plan
        for version in ("4", "5"):
            command = [node, "story.mjs", f"mqtt://127.0.0.1:{gate}", version, f"{mark}/{version}"]
            done = subprocess.run(command, cwd=node_directory, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            result = json.loads(done.stdout)
            assert result["messages"] == [["hello 0", 0], ["hello 1", 1], ["hello 2", 2]]
            assert result["retained"] == [["kept", True]]
            assert result["will"] == [[f"{mark}/{version}/will", "gone"]]
