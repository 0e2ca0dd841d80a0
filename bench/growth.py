"""A live city of many brokers on this machine: how long it takes to come up, and what it costs while it is idle."""

import argparse
import asyncio
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from metromq.control import CityOptions, RunningCity
from metromq.federation import UP, CityStatus, grid_city

CALM_S = 45.0  # from the last link to the measurement: links that only the start needed rest after 30
IDLE_S = 20.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def own_mb(pid: int) -> float:
    """Memory that a process shares with nobody, and its part of what it shares (Pss)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


async def measure(count: int, durability: str) -> str:
    l_b = max(2, math.ceil(math.log(count, 4)))
    city = grid_city(l_b=l_b, l_c=l_b - 1, count=count)
    with tempfile.TemporaryDirectory(prefix="bench-") as data:
        running = RunningCity(city, Path(data), (), CityOptions(durability), lambda text: None)
        start = time.monotonic()
        try:
            await running.start(lambda keeper: None)
            status = await running.joined(lambda up, wanted: None)
            up_s = time.monotonic() - start
            pids = [broker.pid for broker in status.brokers]
            start_cpu_s = cpu_s(pids)
            await asyncio.sleep(CALM_S)
            before, began = cpu_s(pids), time.monotonic()
            await asyncio.sleep(IDLE_S)
            cores = (cpu_s(pids) - before) / (time.monotonic() - began)
            return _line(status, up_s, start_cpu_s, cores, [own_mb(pid) for pid in pids])
        finally:
            await running.stop()


def _line(status: CityStatus, up_s: float, start_cpu_s: float, cores: float, memory_mb: list[float]) -> str:
    brokers = status.brokers
    links = [link for broker in brokers for link in broker.links]
    return (
        f"{sum(broker.state == UP for broker in brokers)}/{len(brokers)} brokers up, "
        f"{sum(link.state == UP for link in links)}/{len(links)} links, after {up_s:.1f} s "
        f"({start_cpu_s:.1f} s of CPU); idle: {cores:.3f} cores, {1000 * cores / len(brokers):.2f} ms of CPU per "
        f"broker and second; memory of a broker: {sum(memory_mb) / len(memory_mb):.1f} MB, at most {max(memory_mb):.1f}"
    )


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench growth", description=__doc__)
    parser.add_argument("--brokers", type=int, nargs="+", default=[16, 64, 150])
    parser.add_argument("--durability", default="os", choices=["memory", "os", "fsync"])
    options = parser.parse_args(argv)
    for count in options.brokers:
        print(asyncio.run(measure(count, options.durability)), flush=True)
    return 0
