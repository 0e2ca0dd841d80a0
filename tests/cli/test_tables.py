"""What `status` and `explain` say of coordination workers."""

from dataclasses import replace

from rich.console import Console

from metromq.cli.tables import workers_table
from metromq.federation import DOWN, UP, BrokerStatus, City, CityStatus, ZooKeeperSettings, grid_city
from metromq.federation.coordination import ZooKeeperCoordinator
from metromq.federation.explaining import explain_step
from metromq.federation.node import Node


def shown(*brokers: BrokerStatus) -> str:
    table = workers_table(CityStatus("city", "overlay", 0.0, brokers), True)
    assert table is not None
    console = Console(width=100)
    with console.capture() as printed:
        console.print(table)
    return str(printed.get())


def broker(name: str, worker: str, *workers: str, state: str = UP) -> BrokerStatus:
    return BrokerStatus(name, state, "", "", "", worker=worker, workers=workers)


def test_status_says_who_decides_for_whom_and_who_leads() -> None:
    lines = shown(broker("b00", "w1", "w2", "w1"), broker("b10", "w2", "w2", "w1"), broker("b20", "w1", "w2", "w1"))
    assert "w2 (leads)  b10" in lines
    assert "w1          b00 b20" in lines
    assert "nobody" not in lines


def test_status_says_for_whom_nobody_decides() -> None:
    lines = shown(broker("b00", ""), broker("b10", ""), broker("b20", "", state=DOWN))
    assert "nobody  b00 b10" in lines
    assert "b20" not in lines, "what is down asks nobody"


def test_a_city_without_workers_has_no_such_table() -> None:
    assert workers_table(CityStatus("city", "overlay", 0.0, (broker("b00", ""),)), False) is None


def on_servers() -> City:
    city = grid_city("overlay", count=2)
    servers = ZooKeeperSettings(servers=("127.0.0.1:1",))
    return replace(city, coordination="zookeeper", zookeeper=servers, overlay=replace(city.overlay, workers=1))


def test_explain_says_who_decides_where_the_city_runs() -> None:
    node = Node(on_servers(), "b00", 1, 0)
    assert isinstance(node.coordinator, ZooKeeperCoordinator)
    assert not any("worker" in line for line in explain_step(node, "bus/7").reasons)
    assert "does not reach the ZooKeeper ensemble" in explain_step(node, "bus/7", subscribers=0).reasons[-1]
    node.coordinator.connected(0)
    assert "No coordination worker decides for b00 now" in explain_step(node, "bus/7", subscribers=0).reasons[-1]
    node.coordinator.assigned("w1", ("w2", "w1"))
    for topic in ("bus/7", "bus/#"):
        assert explain_step(node, topic, subscribers=0).reasons[-1] == "The coordination worker w1 decides for b00."
    node.coordinator.assigned("w1", ("w2",))  # it is gone, and has not been replaced yet
    assert "No coordination worker" in explain_step(node, "bus/7", subscribers=0).reasons[-1]
