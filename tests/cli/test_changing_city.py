"""The operators' page, step by step: a city of real processes is changed by commands, and never restarted."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from metromq.city_file import load_city
from metromq.control.data_directory import read_place
from tests.cli.cities import DEADLINE_S, CityProcess, city_process, environment, metromq, wait_for, write_city
from tests.clients.paho_client import client
from tests.peers import free_ports


@contextlib.contextmanager
def joining(data: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "metromq.cli.main", "serve", "--data", str(data), *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment())
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)


def shown(data: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(metromq("city", "show", "--json", "--data", str(data)).stdout)
    return found


def is_serving(up: CityProcess, broker: str, area: str) -> bool:
    return area in {one["area"] for one in up.ask(broker)["areas"]}


def test_a_city_is_changed_by_commands(tmp_path: Path) -> None:
    file = write_city(tmp_path, 3)
    with city_process(tmp_path, "up", str(file)) as up:
        up.says("Ctrl-C stops the city")
        data = ("--data", str(up.data))
        first, second, third = load_city(file).names
        assert "epoch 0" in metromq("city", "history", *data).stdout
        told = metromq("area", "move", "0/0", second, "--dry-run", *data).stdout
        assert f"~ broker {second}: area" in told
        assert shown(up.data)["epoch"] == 0
        assert "Epoch 1: all 3 brokers follow." in metromq("area", "move", "0/0", second, *data).stdout
        wait_for(lambda: is_serving(up, second, "0/0"), "the area moving")
        edited = tmp_path / "edited.toml"
        edited.write_text(metromq("city", "show", *data).stdout.replace("missed_hellos = 3", "missed_hellos = 4"))
        assert metromq("city", "diff", str(edited), *data).stdout == "~ membership: missed_hellos 3 -> 4\n"
        assert "Epoch 2: all 3" in metromq("city", "apply", str(edited), *data).stdout
        assert "Nothing would change." in metromq("city", "apply", str(edited), *data).stdout
        assert "Epoch 3: all 3" in metromq("city", "undo", *data).stdout
        assert load_city(up.data / "city.toml").membership.missed_hellos == 3, "other commands find the city as it is"
        history = metromq("city", "history", *data).stdout
        assert f"0/0 to {second}" in history
        assert "undo" in history
        refused = metromq("area", "move", "0/0", "nobody", *data, check=False)
        assert (refused.returncode, 'no broker "nobody"' in refused.stderr) == (2, True)
        _address_changes(up, edited, data, first)
        _routing_changes(up, edited, data, first, third)
        _leaves(up, third)


def _address_changes(up: CityProcess, edited: Path, data: tuple[str, ...], broker: str) -> None:
    (port,) = free_ports(1)
    text, (_, before) = metromq("city", "show", *data).stdout, up.place(broker)
    edited.write_text(text.replace(f"127.0.0.1:{before}", f"127.0.0.1:{port}"))
    assert "listen" in metromq("city", "apply", str(edited), *data).stdout
    with client(port) as sub, client(before) as pub:
        sub.subscribe("bus/#", 1)
        pub.publish("bus/1", b"both addresses are open", 1)
        assert sub.take(1)[0].payload == b"both addresses are open"
    wait_for(lambda: all(link["state"] == "up" for link in up.ask(broker)["links"]), "links being up again")
    metromq("city", "undo", *data)


def _routing_changes(up: CityProcess, edited: Path, data: tuple[str, ...], first: str, third: str) -> None:
    with client(up.place(first)[1]) as sub, client(up.place(third)[1]) as pub:
        sub.subscribe("bus/#", 1)
        text = metromq("city", "show", *data).stdout
        edited.write_text(text.replace('routing = "geographic"', 'routing = "flood-subscriptions"'))
        done = metromq("city", "apply", str(edited), *data).stdout
        assert [f"Epoch {epoch}: all 3 brokers follow." in done for epoch in (6, 7, 8)] == [True] * 3
        pub.publish("bus/1", b"by the new routing", 1)
        assert sub.take(1)[0].payload == b"by the new routing"
        undone = metromq("city", "undo", *data).stdout
        assert "~ routing: flood-subscriptions -> geographic" in undone
        assert "Epoch 11: all 3" in undone, "its steps are one change"


def _leaves(up: CityProcess, broker: str) -> None:
    pid, _ = up.place(broker)
    assert f"{broker} has ended." in metromq("leave", broker, "--data", str(up.data)).stdout
    up.says(f"{broker} has left the city")
    wait_for(lambda: read_place(up.data / broker) is None, "the broker being gone")
    assert pid in up.pids
    assert len(up.status()["brokers"]) == 2


def test_a_broker_joins_with_a_token_and_is_replaced_with_an_empty_disk(tmp_path: Path) -> None:
    file = write_city(tmp_path, 2)
    with city_process(tmp_path, "up", str(file)) as up:
        up.says("Ctrl-C stops the city")
        first, _ = load_city(file).names
        (port,) = free_ports(1)
        at = load_city(up.data / "city.toml").broker(first).listen
        words = ("--join", at, "--name", "dock", "--listen", f"127.0.0.1:{port}")

        def token() -> str:
            return metromq("city", "token", "--data", str(up.data)).stdout.strip()

        ticket, new = token(), tmp_path / "new"
        with joining(new, *words, "--area", "0/0", "--site", "harbour", "--token", ticket):
            wait_for(lambda: (new / "dock" / "broker.json").is_file(), "the newcomer being ready")
            wait_for(lambda: not shown(up.data)["away"], "the newcomer being heard")
            again = metromq("serve", *words, "--token", ticket, "--data", str(tmp_path / "x"), check=False)
            assert "the token was used" in again.stderr
            other = metromq("serve", *words, "--token", token(), "--data", str(tmp_path / "x"), check=False)
            assert "is a broker of the city, and it is there" in other.stderr
            with client(up.place(first)[1]) as sub, client(port) as pub:
                sub.subscribe("0/0/#", 1)
                pub.publish("0/0/1", b"from the newcomer", 1, retain=True)
                assert sub.take(1)[0].payload == b"from the newcomer"
        assert (new / "links.secret").stat().st_mode & 0o077 == 0
        with joining(new, *words):  # a later start needs no token
            wait_for(lambda: (new / "dock" / "broker.json").is_file(), "the broker being back")
        shutil.rmtree(new)
        with joining(new, *words, "--token", token()):
            wait_for(lambda: (new / "dock" / "broker.json").is_file(), "the broker with an empty disk being ready")
            wait_for(lambda: not shown(up.data)["away"], "it being heard")
            with client(port) as late:
                late.subscribe("0/0/#", 1)
                assert late.take(1)[0].payload == b"from the newcomer", "it is at home in its area again"


def test_the_secret_changes_while_the_city_runs(tmp_path: Path) -> None:
    file, secret = write_city(tmp_path, 2), tmp_path / "city.secret"
    secret.write_text("the first secret of this city")
    file.write_text(file.read_text().replace('secret = "a secret for one machine only"', f'secret_file = "{secret}"'))
    with city_process(tmp_path, "up", str(file)) as up:
        up.says("Ctrl-C stops the city")
        first, second = load_city(file).names
        secret.rename(tmp_path / "city.secret.old")
        secret.write_text("the second secret of this city")
        os.kill(up.place(first)[0], signal.SIGHUP)
        pid = up.place(second)[0]
        os.kill(pid, signal.SIGKILL)  # it comes back, and both must prove themselves again
        wait_for(lambda: up.place(second)[0] != pid, "the broker being back")
        wait_for(lambda: [link["state"] for link in up.ask(first)["links"]] == ["up"], "the link being up")
        (tmp_path / "city.secret.old").unlink()
        for name in (first, second):
            os.kill(up.place(name)[0], signal.SIGHUP)
        pid = up.place(first)[0]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: up.place(first)[0] != pid, "the broker being back")
        wait_for(lambda: [link["state"] for link in up.ask(second)["links"]] == ["up"], "the link being up")


def test_only_who_knows_the_key_may_give_orders(tmp_path: Path) -> None:
    with city_process(tmp_path, "up", str(write_city(tmp_path, 1))) as up:
        up.says("Ctrl-C stops the city")
        (name,) = load_city(tmp_path / "city.toml").names
        place = read_place(up.data / name)
        assert place is not None
        for key in ("", "0" * 64):
            order = urllib.request.Request(f"http://{place.http}/drain", b"{}", {"X-MetroMQ-Key": key}, method="POST")
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(order, timeout=DEADLINE_S)
        assert (up.data / name / "control.key").stat().st_mode & 0o077 == 0
        refused = metromq("leave", name, "--data", str(up.data), check=False)
        assert "reaches no other broker" in refused.stderr
