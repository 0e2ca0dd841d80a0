"""One broker of a city started by hand: what the city's file decides, and what the command line may change."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from metromq.city_file import city_text
from metromq.cli.serve import in_city, peer_addresses
from metromq.config import Auth, Config, Limits, Listener
from metromq.control.data_directory import read_place
from metromq.errors import ConfigError, UsageError
from metromq.federation.city import City, grid_city
from tests.cli.cities import DEADLINE_S, environment, metromq, wait_for
from tests.peers import free_ports, open_directory


def city(ports: tuple[int, ...]) -> City:
    plain = grid_city(count=len(ports))
    brokers = zip(plain.brokers, ports, strict=True)
    return replace(plain, brokers=tuple(replace(broker, listen=f"127.0.0.1:{port}") for broker, port in brokers))


def test_the_city_says_name_listener_and_directory() -> None:
    given = Config(auth=Auth(allow_anonymous=True), limits=Limits(max_qos=1))
    config = in_city(given, city((1001, 1002)), "b20", Path("data"))
    assert (config.name, config.data_dir) == ("b20", Path("data/b20"))
    assert [(listener.host, listener.port) for listener in config.listeners] == [("127.0.0.1", 1002)]
    assert (config.metrics.host, config.metrics.port) == ("127.0.0.1", 0)
    assert config.limits.max_qos == 1


def test_listeners_of_the_configuration_are_opened_beside() -> None:
    given = Config(listeners=(Listener(kind="ws", port=8080),))
    config = in_city(given, city((1001, 1002)), "b00", Path("data"))
    assert [(listener.kind, listener.port) for listener in config.listeners] == [("tcp", 1001), ("ws", 8080)]


def test_the_name_must_be_one_of_the_city() -> None:
    with pytest.raises(UsageError, match="--city needs --name: one of b00, b20"):
        in_city(Config(), city((1001, 1002)), None, Path("data"))
    with pytest.raises(UsageError, match='no broker "harbour"'):
        in_city(Config(), city((1001, 1002)), "harbour", Path("data"))


def test_peers_elsewhere() -> None:
    assert peer_addresses(city((1001, 1002)), "b00", ("b20=10.0.3.7:1883",)) == {"b20": ("10.0.3.7", 1883)}
    with pytest.raises(ConfigError, match="must look like"):
        peer_addresses(city((1001, 1002)), "b00", ("10.0.3.7:1883",))
    with pytest.raises(ConfigError, match="broker b20: has port 0"):
        peer_addresses(city((1001, 0)), "b00", ())
    assert peer_addresses(city((0, 1002)), "b00", ()) == {}


@contextlib.contextmanager
def serve(*words: str, log: Path = Path(os.devnull)) -> Iterator[None]:
    command = [sys.executable, "-m", "metromq.cli.main", "serve", "--durability", "memory", *words]
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, env=environment())
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(timeout=DEADLINE_S) == 0


def test_two_brokers_started_by_hand_find_each_other(tmp_path: Path) -> None:
    file = tmp_path / "city.toml"
    elsewhere, *ports = free_ports(3)
    file.write_text(city_text(city(tuple(ports))))
    common = ("--city", str(file), "--data", str(tmp_path / "data"))
    with (
        serve(*common, "--name", "b00", "--peer", f"b20=127.0.0.1:{elsewhere}"),
        serve(*common, "--name", "b20", "--listen", f"127.0.0.1:{elsewhere}"),
    ):

        def joined() -> bool:
            done = metromq("status", str(file), "--data", str(tmp_path / "data"), "--json", check=False)
            brokers = json.loads(done.stdout)["brokers"]
            return all([link["state"] for link in broker["links"]] == ["up"] for broker in brokers)

        wait_for(joined, "both links being up")
        place = read_place(tmp_path / "data" / "b20")
        assert place is not None
        assert place.listen == f"127.0.0.1:{elsewhere}"
        data = str(tmp_path / "data")
        traced = json.loads(metromq("explain", "2/0/x", "--from", "b00", "--data", data, "--json").stdout)
        assert (traced["live"], [leg["broker"] for leg in traced["legs"]]) == (True, ["b00", "b20"])
        assert len(json.loads(metromq("status", "--data", data, "--json").stdout)["brokers"]) == 2
    assert metromq("explain", "2/0/x", "--data", data, check=False).returncode == 2, "a preset knows nothing of DIR"
    assert not list(tmp_path.glob("data/*/broker.json"))


def test_a_citys_file_with_a_secret_that_others_can_read_is_told_of() -> None:
    with open_directory() as place:
        file, log = place / "city.toml", place / "log"
        file.write_text(city_text(city(tuple(free_ports(2)))))
        file.chmod(0o644)
        with serve("--city", str(file), "--name", "b00", "--data", str(place / "data"), log=log):
            wait_for(lambda: "ready" in log.read_text(), "the start")
        assert "other users of this machine can read the city's secret" in log.read_text()
        assert f"chmod o-rwx {file}" in log.read_text()
