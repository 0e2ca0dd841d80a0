"""Every transform in plain Python, on lists of dictionaries: slow, obvious, and what Spark must agree with."""

from collections import defaultdict
from datetime import datetime, timedelta
from math import exp, log
from typing import Any

Row = dict[str, Any]


def minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def traffic(messages: list[Row], telemetry: list[Row]) -> list[Row]:
    counted: dict[tuple[Any, ...], Row] = {}
    sums = (
        "publications",
        "published_bytes",
        "deliveries_local",
        "deliveries_remote",
        "delivered_bytes",
        "opened",
        "closed",
    )
    for row in telemetry:
        if row["subject"] == "topic" and row["name"]:
            cell = counted.setdefault((minute(row["window_start"]), row["broker"], row["name"]), defaultdict(int))
            for name in sums:
                cell[name] += row[name]
            for name in ("publishers", "subscribers"):
                cell[name] = max(cell[name], row[name])
    recorded: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in messages:
        if row["kind"] in ("publish", "will"):
            recorded[minute(row["time"]), row["broker"], row["topic"]].append(row)
    site_of: dict[str, tuple[datetime, str]] = {}
    for row in telemetry:
        site_of[row["broker"]] = max(
            site_of.get(row["broker"], (row["window_start"], "")), (row["window_start"], row["site"])
        )
    result: list[Row] = []
    for key in counted.keys() | recorded.keys():
        start, broker, topic = key
        cell, rows = counted.get(key, defaultdict(int)), recorded.get(key, [])
        publications = max(cell["publications"], len(rows))
        result.append(
            {
                "day": start.date(),
                "window_start": start,
                "topic": topic,
                "site": site_of[broker][1] if broker in site_of else broker,
                "broker": broker,
                "publications": publications,
                "rate": publications / 60.0,
                "published_bytes": max(cell["published_bytes"], sum(len(row["payload"]) for row in rows)),
                "publishers": max(cell["publishers"], len({row["publisher"] for row in rows})),
                **{name: cell[name] for name in ("subscribers", *sums[2:])},
            }
        )
    return result


def locality(rows: list[Row]) -> list[Row]:
    result: list[Row] = []
    for day, site in {(row["day"], row["site"]) for row in rows}:
        own = [row for row in rows if (row["day"], row["site"]) == (day, site)]
        local, remote = sum(row["deliveries_local"] for row in own), sum(row["deliveries_remote"] for row in own)
        wanted = {row["topic"] for row in own if row["subscribers"] > 0}
        made = {row["topic"] for row in own if row["publications"] > 0}
        result.append(
            {
                "day": day,
                "site": site,
                "deliveries_local": local,
                "deliveries_remote": remote,
                "delivery_locality": local / (local + remote) if local + remote else None,
                "topics_subscribed": len(wanted),
                "topics_local": len(wanted & made),
                "subscription_locality": len(wanted & made) / len(wanted) if wanted else None,
            }
        )
    return result


def popularity(rows: list[Row]) -> list[Row]:
    result: list[Row] = []
    for day in {row["day"] for row in rows}:
        made: dict[str, int] = defaultdict(int)
        held: dict[tuple[str, str], int] = defaultdict(int)
        for row in rows:
            if row["day"] == day:
                made[row["topic"]] += row["publications"]
                key = (row["topic"], row["site"])
                held[key] = max(held[key], row["subscribers"])
        total = sum(made.values())
        ranked = sorted((topic for topic in made if made[topic]), key=lambda topic: (-made[topic], topic))
        for rank, topic in enumerate(ranked, 1):
            subscribers = sum(count for (name, _), count in held.items() if name == topic)
            result.append(
                {
                    "day": day,
                    "topic": topic,
                    "publications": made[topic],
                    "subscribers": subscribers,
                    "rank": rank,
                    "share": made[topic] / total,
                }
            )
    return result


def zipf_likelihood(counts: list[int], exponent: float) -> float:
    """Log likelihood of publications per rank under 1/rank^exponent."""
    norm = log(sum(exp(-exponent * log(rank)) for rank in range(1, len(counts) + 1)))
    return sum(count * (-exponent * log(rank) - norm) for rank, count in enumerate(counts, 1))


def jaccard(rows: list[Row]) -> dict[tuple[Any, str, str], float]:
    sets: dict[tuple[Any, str], set[str]] = defaultdict(set)
    for row in rows:
        if row["publications"] > 0 or row["subscribers"] > 0:
            sets[row["day"], row["site"]].add(row["topic"])
    return {
        (day, left, right): len(sets[day, left] & sets[day, right]) / len(sets[day, left] | sets[day, right])
        for day, left in sets
        for other, right in sets
        if day == other and left < right
    }


def percentile(values: list[float], share: float) -> float:
    """With linear interpolation between neighbours."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def latency(messages: list[Row]) -> list[Row]:
    started = {(row["broker"], row["offset"]): row["time"] for row in messages}
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in messages:
        origin = (row["origin"], row["origin_offset"])
        if row["kind"] == "link" and origin in started:
            took = (row["time"] - started[origin]) / timedelta(milliseconds=1)
            groups[minute(row["time"]), row["origin"], row["broker"]].append(took)
    return [
        {
            "day": start.date(),
            "window_start": start,
            "origin": origin,
            "broker": broker,
            "messages": len(took),
            "p50_ms": percentile(took, 0.5),
            "p95_ms": percentile(took, 0.95),
            "p99_ms": percentile(took, 0.99),
        }
        for (start, origin, broker), took in groups.items()
    ]


def tau(rows: list[Row], seconds: float) -> dict[tuple[str, str], float]:
    size: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        size[row["topic"], row["site"]] += row["published_bytes"] + row["delivered_bytes"]
    return {key: value * 8 / seconds / 1e6 for key, value in size.items() if value}


def service(telemetry: list[Row], subject: str, seconds: float) -> dict[tuple[str, str], float]:
    size: dict[tuple[str, str], int] = defaultdict(int)
    for row in telemetry:
        if row["subject"] == subject:
            size[row["name"], row["detail"]] += row["bytes"]
    return {key: value * 8 / seconds / 1e6 for key, value in size.items()}


def delegation_inputs(rows: list[Row], seconds: float) -> list[Row]:
    publishers: dict[tuple[str, str], int] = defaultdict(int)
    subscribers: dict[tuple[str, str], int] = defaultdict(int)
    made: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        key = (row["topic"], row["site"])
        publishers[key] = max(publishers[key], row["publishers"])
        subscribers[key] = max(subscribers[key], row["subscribers"])
        made[key] += row["publications"]
    return [
        {
            "topic": topic,
            "site": site,
            "publishers_inside": publishers[topic, site],
            "publishers_outside": sum(n for (t, s), n in publishers.items() if t == topic and s != site),
            "subscribers_inside": subscribers[topic, site],
            "subscribers_outside": sum(n for (t, s), n in subscribers.items() if t == topic and s != site),
            "publications_per_second": made[topic, site] / seconds,
        }
        for topic, site in publishers
    ]
