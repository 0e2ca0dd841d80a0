"""Two live brokers that cannot dial each other: messages go through the third, and status and explain say so."""

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from metromq.city_file import city_text
from tests.cli.cities import DEADLINE_S, metromq, wait_for
from tests.cli.test_serve_city import city, serve
from tests.clients.paho_client import client
from tests.peers import free_ports

TOPIC = "1/2/bus"  # at home at b11


def ways(data: Path) -> dict[tuple[str, str], str] | None:
    """The broker in the middle of every link; None: some link is not up."""
    done = metromq("status", "--data", str(data), "--json", check=False)
    brokers: list[dict[str, Any]] = json.loads(done.stdout)["brokers"] if done.stdout else []
    links = [(broker["name"], link) for broker in brokers for link in broker["links"]]
    is_up = len(links) == 6 and all(link["state"] == "up" for _, link in links)
    return {(name, link["peer"]): link["via"] for name, link in links} if is_up else None


def test_messages_of_two_brokers_that_cannot_dial_each_other_go_through_the_third(tmp_path: Path) -> None:
    file, data = tmp_path / "city.toml", tmp_path / "data"
    *ports, nobody = free_ports(4)
    file.write_text(city_text(city(tuple(ports))))
    data.mkdir()
    blocked = {"b11": "b22", "b22": "b11"}
    with ExitStack() as stack:
        for name in ("b00", "b11", "b22"):
            peer = ("--peer", f"{blocked[name]}=127.0.0.1:{nobody}") if name in blocked else ()
            stack.enter_context(serve("--city", str(file), "--data", str(data), "--name", name, *peer))
        found = wait_for(lambda: ways(data), "every link being up")
        assert {pair: via for pair, via in found.items() if via} == {("b11", "b22"): "b00", ("b22", "b11"): "b00"}
        subscriber, publisher = stack.enter_context(client(ports[1])), stack.enter_context(client(ports[2]))
        subscriber.subscribe("1/2/#", 2)
        for number in range(50):
            publisher.publish(TOPIC, b"%d" % number, 2)
        assert [int(message.payload) for message in subscriber.take(50)] == list(range(50))
        where = ["-h", "127.0.0.1", "-p", str(ports[2]), "-t", TOPIC]
        subprocess.run(["mosquitto_pub", *where, "-q", "1", "-m", "50"], check=True, timeout=DEADLINE_S)
        assert [int(message.payload) for message in subscriber.take(1)] == [50]
        assert "through b00" in metromq("status", "--data", str(data)).stdout
        traced = metromq("explain", TOPIC, "--from", "b22", "--data", str(data)).stdout
        assert "through b00 because b22 cannot reach it directly" in " ".join(traced.split())
