"""The placement file as a checked Problem: every refusal names the field that is wrong and says what it should be."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from metromq.errors import ConfigError
from metromq.planning.arrays import compile_arrays
from metromq.planning.model import Device, Placement, Problem, Service, Topic, TopicStatistics

T = TypeVar("T")
Raw = Mapping[str, Any]

FIELDS = ("broker_workload_per_mbps", "network_mw_per_mbps", "devices", "hops", "links", "topics", "services")
DEVICE_FIELDS = ("name", "capacity_workload", "mw_per_workload")
TOPIC_FIELDS = ("name", "client_mbps", "statistics")
COUNTS = ("publishers_inside", "publishers_outside", "subscribers_inside", "subscribers_outside")
SERVICE_FIELDS = (
    "name",
    "mqtt_workload_per_mbps",
    "user_workload_per_mbps",
    "topic_mbps",
    "user_mbps",
    "cloud_mbps",
)


def read_problem(raw: object, source: str = "") -> Problem:
    """The problem of a decoded JSON or TOML document; raises ConfigError. `source` is put before every field's name."""
    try:
        return _problem(raw)
    except ConfigError as error:
        if not source:
            raise
        raise ConfigError(f"{source}: {error.where}" if error.where else source, error.problem) from None


def read_placement(raw: object, problem: Problem, source: str = "") -> Placement:
    """The `topics` and `services` of a plan's JSON, as the present placement; containers that are gone are kept."""
    document = _table(raw, source or "plan")
    devices = {device.name for device in problem.devices}
    parts: list[dict[str, str]] = []
    for part in ("topics", "services"):
        where = f"{source}: {part}" if source else part
        entries = _table(document.get(part, {}), where)
        for name, device in entries.items():
            if device not in devices:
                raise ConfigError(f"{where}.{name}", f"unknown device {device!r}{_nearest(device, devices)}")
        parts.append(dict(entries))
    return Placement(*parts)


def _problem(raw: object) -> Problem:
    document = _table(raw, "")
    _known(document, FIELDS, "")
    devices = _named(document, "devices", _device)
    if not devices:
        raise ConfigError("devices", "there must be at least one device")
    names = tuple(device.name for device in devices)
    topics = _named(document, "topics", lambda entry, where: _topic(entry, where, names))
    topic_names = tuple(topic.name for topic in topics)
    services = _named(document, "services", lambda entry, where: _service(entry, where, names, topic_names))
    problem = Problem(
        broker_workload_per_mbps=_number(document, "broker_workload_per_mbps", ""),
        network_mw_per_mbps=_number(document, "network_mw_per_mbps", ""),
        devices=devices,
        hops=_hops(document, names),
        topics=topics,
        services=services,
    )
    _check_unit(problem)
    return problem


def _device(entry: Raw, where: str) -> Device:
    _known(entry, DEVICE_FIELDS, where)
    return Device(
        _name(entry, where), _number(entry, "capacity_workload", where), _number(entry, "mw_per_workload", where)
    )


def _topic(entry: Raw, where: str, devices: Sequence[str]) -> Topic:
    _known(entry, TOPIC_FIELDS, where)
    return Topic(_name(entry, where), _rates(entry, "client_mbps", where, "device", devices), _counts(entry, where))


def _counts(entry: Raw, where: str) -> TopicStatistics | None:
    if "statistics" not in entry:
        return None
    where = f"{where}.statistics"
    counts = _table(entry["statistics"], where)
    _known(counts, COUNTS, where)
    return TopicStatistics(*(_whole(counts.get(name, 0), f"{where}.{name}") for name in COUNTS))


def _service(entry: Raw, where: str, devices: Sequence[str], topics: Sequence[str]) -> Service:
    _known(entry, SERVICE_FIELDS, where)
    return Service(
        name=_name(entry, where),
        mqtt_workload_per_mbps=_number(entry, "mqtt_workload_per_mbps", where),
        user_workload_per_mbps=_number(entry, "user_workload_per_mbps", where),
        topic_mbps=_rates(entry, "topic_mbps", where, "topic", topics),
        user_mbps=_rates(entry, "user_mbps", where, "device", devices),
        cloud_mbps=_number({"cloud_mbps": 0.0, **entry}, "cloud_mbps", where),
    )


def _hops(document: Raw, names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    if ("hops" in document) == ("links" in document):
        both = "hops" in document
        raise ConfigError(
            "hops", "is also given as links; keep only one of them" if both else "either hops or links must be given"
        )
    if "links" in document:
        return hops_of_links(document["links"], names)
    rows = _table(document["hops"], "hops")
    given: dict[tuple[str, str], int] = {}
    for first, row in rows.items():
        _member(first, names, f"hops.{first}", "device")
        for second, value in _table(row, f"hops.{first}").items():
            where = f"hops.{first}.{second}"
            _member(second, names, where, "device")
            given[first, second] = hops = _whole(value, where)
            if (hops == 0) != (first == second):
                raise ConfigError(where, "a device is 0 hops from itself and at least 1 from any other")
            if given.get((second, first), hops) != hops:
                raise ConfigError(where, f"is {hops}, but hops.{second}.{first} is {given[second, first]}")
    return tuple(tuple(_distance(given, a, b) for b in names) for a in names)


def _distance(given: Mapping[tuple[str, str], int], first: str, second: str) -> int:
    if first == second:
        return 0
    found = given.get((first, second), given.get((second, first)))
    if found is None:
        raise ConfigError(f"hops.{first}.{second}", "is missing: every two devices must be connected")
    return found


def hops_of_links(raw: object, names: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """Shortest paths over the links, by breadth-first search from every device."""
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise ConfigError("links", f"must be a list of pairs of devices, not {_shown(raw)}")
    peers: dict[str, set[str]] = {name: set() for name in names}
    for number, link in enumerate(raw):
        where = f"links[{number}]"
        if not isinstance(link, Sequence) or isinstance(link, str) or len(link) != 2:
            raise ConfigError(where, f"must be a pair of devices, not {_shown(link)}")
        for end, name in enumerate(link):
            _member(name, names, f"{where}[{end}]", "device")
        peers[link[0]].add(link[1])
        peers[link[1]].add(link[0])
    return tuple(tuple(_reached(peers, name, names)) for name in names)


def _reached(peers: Mapping[str, set[str]], start: str, names: tuple[str, ...]) -> Iterator[int]:
    far = {start: 0}
    ring = [start]
    while ring:
        ring = [peer for peer in dict.fromkeys(p for name in ring for p in sorted(peers[name])) if peer not in far]
        far.update(dict.fromkeys(ring, max(far.values()) + 1))
    missing = [name for name in names if name not in far]
    if missing:
        raise ConfigError("links", f"the graph is disconnected: no path leads from {start} to {', '.join(missing[:5])}")
    return (far[name] for name in names)


def _check_unit(problem: Problem) -> None:
    """A capacity in GHz or Mbps instead of workload shows: not even the smallest container fits anywhere."""
    loads = compile_arrays(problem).load
    if not len(loads):
        return
    largest = max(range(len(problem.devices)), key=lambda d: problem.devices[d].capacity_workload)
    capacity = problem.devices[largest].capacity_workload
    if loads.min() > capacity * (1 + 1e-9):
        raise ConfigError(
            f"devices[{largest}].capacity_workload",
            f"{capacity:g} is the largest capacity, but the smallest container needs {loads.min():,.6g}, so nothing "
            "fits; capacity counts workload (Mbps times workload per Mbps): is it in another unit?",
        )


def _named(document: Raw, field: str, read: Callable[[Raw, str], T]) -> tuple[T, ...]:
    """The entries of a list of tables whose names must differ."""
    if field not in document:
        raise ConfigError(field, "is missing")
    entries = document[field]
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ConfigError(field, f"must be a list, not {_shown(entries)}")
    found: list[T] = []
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        where = f"{field}[{number}]"
        table = _table(entry, where)
        name = _name(table, where)
        if name in first:
            raise ConfigError(f"{where}.name", f"{name!r} is already the name of {field}[{first[name]}]")
        first[name] = number
        found.append(read(table, where))
    return tuple(found)


def _rates(entry: Raw, field: str, where: str, kind: str, names: Sequence[str]) -> dict[str, float]:
    table = _table(entry.get(field, {}), f"{where}.{field}")
    for name in table:
        _member(name, names, f"{where}.{field}.{name}", kind)
    return {name: _number(table, name, f"{where}.{field}") for name in table}


def _member(name: object, names: Sequence[str], where: str, kind: str) -> None:
    if not isinstance(name, str) or name not in names:
        shown = "" if where.endswith(f".{name}") else f" {_shown(name)}"
        raise ConfigError(where, f"unknown {kind}{shown}{_nearest(name, names)}")


def _nearest(name: object, names: Sequence[str] | set[str]) -> str:
    listed = sorted(names)
    return f"; use one of {', '.join(listed[:8])}{' ...' if len(listed) > 8 else ''}" if listed else ""


def _name(entry: Raw, where: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}.name", "is missing" if name is None else f"must be text, not {_shown(name)}")
    return name


def _number(entry: Raw, field: str, where: str) -> float:
    where = f"{where}.{field}" if where else field
    if field not in entry:
        raise ConfigError(where, "is missing")
    value = entry[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(where, f"must be a number, not {_shown(value)}")
    if not math.isfinite(value):
        raise ConfigError(where, f"must be finite, not {value}")
    if value < 0:
        raise ConfigError(where, f"must not be negative, but is {value:g}")
    return float(value)


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:
        raise ConfigError(where, f"must be a whole number, 0 or more, not {_shown(value)}")
    if not math.isfinite(value) or int(value) != value:
        raise ConfigError(where, f"must be a whole number, 0 or more, not {_shown(value)}")
    return int(value)


def _table(raw: object, where: str) -> Raw:
    if not isinstance(raw, Mapping):
        raise ConfigError(where, f"must be a table of named values, not {_shown(raw)}")
    return raw


def _known(entry: Raw, fields: Sequence[str], where: str) -> None:
    for name in entry:
        if name not in fields:
            raise ConfigError(
                f"{where}.{name}" if where else name, f"unknown field; the fields are {', '.join(fields)}"
            )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
