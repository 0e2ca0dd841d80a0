"""Zenoh's router and a load for it, by its own library in a virtual environment of its own: `router PORT`, or
`load PORT PAIRS FAN TOPICS PAYLOAD_BYTES PID`, which reads lines of `RATE SECONDS` and prints what was measured in
each. RATE 0: as fast as it goes, and the processor time that PID, the router, took for a message."""

import json
import os
import random
import sys
import time

import zenoh  # type: ignore[import-not-found]

UNDER_WAY_BYTES = 512 << 10  # for each pair, as the other loads have it
ADDED_BYTES = 40  # what Zenoh adds to a payload
BUNCHES = 50  # of messages in a window
QUIET_S = 1.0
BLOCK = zenoh.CongestionControl.BLOCK  # nothing is dropped


def session(mode: str, port: int) -> "zenoh.Session":
    config = zenoh.Config()
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5("scouting/multicast/enabled", "false")
    side = "listen" if mode == "router" else "connect"
    config.insert_json5(f"{side}/endpoints", json.dumps([f"tcp/127.0.0.1:{port}"]))
    return zenoh.open(config)


class Pair:
    """One publisher, its topics in turn, and its subscribers."""

    def __init__(self, port: int, number: int, fan: int, topics: int, payload_bytes: int) -> None:
        self.payload_bytes = payload_bytes
        self._window = UNDER_WAY_BYTES // (payload_bytes + ADDED_BYTES)
        self._bunch = max(1, self._window // BUNCHES)
        self.sent = self.got = 0
        self.fan = fan
        self.latencies: list[int] = []
        self._sessions = [session("client", port) for _ in range(fan)]
        self._subscribers = [one.declare_subscriber(f"bench/{number:02}/**", self._heard) for one in self._sessions]
        self._publisher = session("client", port)
        names = [f"bench/{number:02}/{n:06}" for n in range(max(1, topics))]
        random.Random(number).shuffle(names)
        self._express = False
        self._puts = [self._publisher.declare_publisher(name, congestion_control=BLOCK).put for name in names[:5000]]
        self._names = names

    def _heard(self, sample: "zenoh.Sample") -> None:
        self.got += 1
        if self._express:
            sent_ns = int.from_bytes(sample.payload.to_bytes()[:8], "big")
            self.latencies.append(time.monotonic_ns() - sent_ns)

    def bunch(self, payload: bytes) -> None:
        """As many as the window allows, at most a bunch."""
        if self.sent * self.fan - self.got > self._window * self.fan:
            return
        for n in range(self.sent, self.sent + self._bunch):
            if len(self._names) <= len(self._puts):
                self._puts[n % len(self._puts)](payload)
            else:
                self._publisher.put(self._names[n % len(self._names)], payload, congestion_control=BLOCK)
        self.sent += self._bunch

    def at(self, due_ns: int, rest: bytes) -> None:
        """One message that was to be sent at that moment, without waiting for others."""
        self._express = True
        name = self._names[self.sent % len(self._names)]
        self._publisher.put(name, due_ns.to_bytes(8, "big") + rest, congestion_control=BLOCK, express=True)
        self.sent += 1


def broker_cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_all_came(pairs: list[Pair]) -> int:
    """Messages lost."""
    heard, last = time.monotonic(), -1
    while time.monotonic() - heard < QUIET_S:
        got = sum(pair.got for pair in pairs)
        if got != last:
            heard, last = time.monotonic(), got
        if got == sum(pair.sent * pair.fan for pair in pairs):
            return 0
        time.sleep(0.01)
    return sum(pair.sent * pair.fan - pair.got for pair in pairs)


def flood(pairs: list[Pair], seconds: float, pid: int) -> dict[str, object]:
    payload = os.urandom(pairs[0].payload_bytes)

    def drive(until: float) -> None:
        while time.monotonic() < until:
            before = sum(pair.sent for pair in pairs)
            for pair in pairs:
                pair.bunch(payload)
            if sum(pair.sent for pair in pairs) == before:
                time.sleep(0.0002)

    drive(time.monotonic() + seconds / 4)
    got, start, cpu_s = sum(pair.got for pair in pairs), time.monotonic(), broker_cpu_s(pid)
    drive(start + seconds)
    messages, elapsed = sum(pair.got for pair in pairs) - got, time.monotonic() - start
    cpu_us = (broker_cpu_s(pid) - cpu_s) / max(messages, 1) * 1e6
    return {"rate": messages / elapsed, "cpu_us": cpu_us, "lost": _until_all_came(pairs)}


def steady(pairs: list[Pair], rate: float, seconds: float) -> dict[str, object]:
    for pair in pairs:
        pair.latencies = []
    rest = os.urandom(pairs[0].payload_bytes - 8)
    step, due = int(1e9 / rate), time.monotonic_ns()
    end, number = due + int(seconds * 1e9), 0
    while due < end:
        while time.monotonic_ns() < due:
            time.sleep(0)  # its callbacks need the interpreter
        pairs[number % len(pairs)].at(due, rest)
        number, due = number + 1, due + step
    lost = _until_all_came(pairs)
    return {"latencies": [one for pair in pairs for one in pair.latencies], "lost": lost}


def main(arguments: list[str]) -> None:
    if arguments[0] == "router":
        router = session("router", int(arguments[1]))
        while router is not None:
            time.sleep(1)
    port, pairs, fan, topics, payload_bytes, pid = (int(word) for word in arguments[1:])
    made = [Pair(port, number, fan, topics // pairs, payload_bytes) for number in range(pairs)]
    time.sleep(0.5)  # until the router knows the subscriptions
    for line in sys.stdin:
        rate, seconds = (float(word) for word in line.split())
        print(json.dumps(steady(made, rate, seconds) if rate else flood(made, seconds, pid)), flush=True)
    os._exit(0)  # closing the sessions takes seconds


if __name__ == "__main__":
    main(sys.argv[1:])
