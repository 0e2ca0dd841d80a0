"""Every transform in plain Python, on lists of dictionaries: slow, obvious, and what Spark must agree with."""

from collections import defaultdict
from datetime import datetime, timedelta
from math import exp, log
from typing import Any

Row = dict[str, Any]


def minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def is_topic(name: str) -> bool:
    return bool(name) and not name.startswith("$") and "+" not in name and "#" not in name


def is_from(row: Row, broker: str, topic: str, start: datetime, seconds: float) -> bool:
    """What a broker says of where its deliveries of a topic in a window came from."""
    place = (row["broker"], row["name"], row["window_start"], row["window_seconds"])
    return row["subject"] == "topic-from" and place == (broker, topic, start, seconds)


def traffic(messages: list[Row], telemetry: list[Row]) -> list[Row]:
    """Message by message and window by window."""
    site_of: dict[str, tuple[datetime, str]] = {}
    for row in telemetry:
        site_of[row["broker"]] = max(
            site_of.get(row["broker"], (row["window_start"], "")), (row["window_start"], row["site"])
        )
    home = {row["broker"]: site_of.get(row["broker"], (None, row["broker"]))[1] for row in (*messages, *telemetry)}
    published = [row for row in messages if row["kind"] in ("publish", "will") and is_topic(row["topic"])]
    windows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in telemetry:
        if row["subject"] == "topic" and is_topic(row["name"]):
            windows[row["broker"], row["name"], row["window_start"], row["window_seconds"]].append(row)
    cells: dict[tuple[Any, ...], Row] = defaultdict(lambda: defaultdict(int))
    names: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row in published:
        key = (minute(row["time"]), row["broker"], row["topic"])
        cells[key]["publications"] += 1
        cells[key]["published_bytes"] += len(row["payload"])
        names[key].add(row["publisher"])
        cells[key]["publishers"] = len(names[key])
    for (broker, topic, start, seconds), rows in windows.items():
        cell = cells[minute(start), broker, topic]
        end = start + timedelta(seconds=seconds)
        inside = [r for r in published if (r["broker"], r["topic"]) == (broker, topic) and start <= r["time"] < end]
        counted, size = sum(row["publications"] for row in rows), sum(row["published_bytes"] for row in rows)
        cell["publications"] += max(0, counted - len(inside))
        cell["published_bytes"] += max(0, size - sum(len(row["payload"]) for row in inside))
        for name in ("publishers", "subscribers"):
            cell[name] = max(cell[name], *(row[name] for row in rows))
        for name in ("delivered_bytes", "opened", "closed"):
            cell[name] += sum(row[name] for row in rows)
    for (broker, topic, start, seconds), rows in windows.items():
        last = minute(start + timedelta(seconds=seconds, microseconds=-1))
        made = {(key[1]): 0 for key in cells}
        for (moment, other, name), cell in list(cells.items()):
            if name == topic and minute(start) <= moment <= last:
                made[other] += cell["publications"]
        total, own = sum(made.values()), sum(made[other] for other in made if home[other] == home[broker])
        delivered = sum(row["deliveries_local"] for row in rows)
        local = int(delivered * own / total + 0.5) if total else 0
        came = [row for row in telemetry if is_from(row, broker, topic, start, seconds)]
        if came and sum(row["deliveries_local"] for row in came) == delivered:
            near = [row for row in came if home.get(row["detail"], row["detail"]) == home[broker]]
            local = sum(row["deliveries_local"] for row in near)
        cells[minute(start), broker, topic]["deliveries_local"] += local
        cells[minute(start), broker, topic]["deliveries_remote"] += delivered - local
    columns = ("published_bytes", "publishers", "subscribers", "deliveries_local", "deliveries_remote")
    return [
        {
            "day": start.date(),
            "window_start": start,
            "topic": topic,
            "site": home[broker],
            "broker": broker,
            "publications": cell["publications"],
            "rate": cell["publications"] / 60.0,
            **{name: cell[name] for name in (*columns, "delivered_bytes", "opened", "closed")},
        }
        for (start, broker, topic), cell in list(cells.items())
        if any(cell.values())
    ]


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
                key = (row["topic"], row["broker"])
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


def clocks(telemetry: list[Row]) -> dict[tuple[Any, ...], list[float]]:
    """What brokers said of peers' clocks, by peer, broker and minute, and by peer and broker."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in telemetry:
        if row["subject"] == "clock":
            found[row["name"], row["broker"], minute(row["window_start"])].append(float(row["detail"]))
            found[row["name"], row["broker"]].append(float(row["detail"]))
    return found


def latency(messages: list[Row], telemetry: list[Row]) -> list[Row]:
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    said = clocks(telemetry)
    for row in messages:
        if row["kind"] == "link" and row["origin_offset"] is not None and row["arrived"] is not None:
            if row["origin"].endswith("/will") or row["origin"] == row["broker"]:
                continue
            now = said.get((row["origin"], row["broker"], minute(row["arrived"])))
            ever = said.get((row["origin"], row["broker"]), [0.0])
            ahead_us = sum(now) / len(now) if now else percentile(ever, 0.5)
            took = (row["arrived"] - row["time"]) / timedelta(milliseconds=1) + ahead_us / 1000
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
    sums: dict[str, dict[tuple[str, str], int]] = {}
    for name in ("publishers", "subscribers"):
        most: dict[tuple[str, str, str], int] = defaultdict(int)
        for row in rows:
            place = (row["topic"], row["site"], row["broker"])
            most[place] = max(most[place], row[name])
        sums[name] = defaultdict(int)
        for (topic, site, _), count in most.items():
            sums[name][topic, site] += count
    made: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        made[row["topic"], row["site"]] += row["publications"]
    publishers, subscribers = sums["publishers"], sums["subscribers"]
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
        if publishers[topic, site] or subscribers[topic, site]
    ]
