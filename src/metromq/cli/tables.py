"""How a city's status looks to people."""

from typing import Literal

from rich.table import Table

from metromq.federation import DOWN, RESTING, UP, AreaStatus, BrokerStatus, CityStatus, LinkStatus

STYLES = {"up": "green", "down": "red", "unreachable": "yellow", "resting": "dim"}
MOST_CLUSTERS = 20
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


# What a broker's row has, the least width of a terminal that shows it, and whether it is a number.
COLUMNS = (
    ("broker", 0, False),
    ("listen", 0, False),
    ("area", 0, False),
    ("site", 130, False),
    ("pid", 0, True),
    ("state", 0, False),
    ("serves", 0, False),
    ("links", 0, True),
    ("clients", 0, True),
    ("subs", 112, True),
    ("in/s", 0, True),
    ("out/s", 0, True),
    ("backlog", 112, True),
)


def brokers_table(status: CityStatus, width: int) -> Table:
    """As much as fits into `width` signs."""
    title = f"{status.city} ({status.routing})"
    table = Table(
        title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1 if width < 100 else 2, 0, 0)
    )
    shown = [number for number, (_, least, _) in enumerate(COLUMNS) if width >= least]
    for name, _, is_number in (COLUMNS[number] for number in shown):
        least = 9 if name == "serves" and any(not area.home for b in status.brokers for area in b.areas) else None
        side: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(name, justify=side, no_wrap=name != "serves", overflow="fold", min_width=least)
    for broker in status.brokers:
        row = _broker_row(broker)
        table.add_row(*(row[number] for number in shown))
    return table


def _broker_row(broker: BrokerStatus) -> list[str]:
    state = f"[{STYLES[broker.state]}]{broker.state}[/]"
    place = [broker.name, broker.listen, broker.area, broker.site, str(broker.pid or ""), state]
    if broker.state != UP:
        return [*place, *[""] * (len(COLUMNS) - len(place))]
    kept = [link for link in broker.links if link.state != RESTING]
    links_up = sum(1 for link in kept if link.state == UP)
    return [
        *place,
        " ".join(area_text(area) for area in broker.areas),
        f"{links_up}/{len(kept)}",
        str(broker.clients),
        str(broker.subscriptions),
        f"{broker.traffic.messages_received_per_s:.1f}",
        f"{broker.traffic.messages_sent_per_s:.1f}",
        str(sum(link.backlog for link in broker.links)),
    ]


def area_text(area: AreaStatus) -> str:
    """`1/2@3`: area 1/2 since epoch 3; brackets: in place of another broker."""
    text = f"{area.area}@{area.epoch}" if area.epoch else area.area
    return text if area.home else f"({text})"


def clusters_table(status: CityStatus) -> Table | None:
    """The clusters of publishers, the largest first; None when there are none."""
    found = [(broker.name, cluster) for broker in status.brokers for cluster in broker.clusters]
    if not found:
        return None
    more = f", {MOST_CLUSTERS} of {len(found)}" if len(found) > MOST_CLUSTERS else ""
    table = Table(title=f"clusters{more}", title_justify="left", box=None, pad_edge=False)
    for name in ("topic", "cluster", "leader", "members"):
        table.add_column(name, overflow="fold")
    for leader, cluster in sorted(found, key=lambda one: (-len(one[1].members), one[1].topic))[:MOST_CLUSTERS]:
        table.add_row(cluster.topic, cluster.founder, leader, " ".join(cluster.members))
    return table


def workers_table(status: CityStatus, has_workers: bool) -> Table | None:
    """The coordination workers and the brokers that each decides for; None where brokers decide themselves."""
    if not has_workers:
        return None
    known = next((broker.workers for broker in status.brokers if broker.workers), ())
    brokers: dict[str, list[str]] = {name: [] for name in known}
    for broker in status.brokers:
        if broker.state == UP:
            brokers.setdefault(broker.worker, []).append(broker.name)
    table = Table(title="coordination workers", title_justify="left", box=None, pad_edge=False)
    for name in ("worker", "decides for"):
        table.add_column(name, overflow="fold")
    for worker, names in brokers.items():
        shown = f"{worker} (leads)" if worker and worker == known[0] else worker or "[yellow]nobody[/]"
        table.add_row(shown, " ".join(names))
    return table


def links_table(status: CityStatus, every: bool) -> Table | None:
    """Links with something to tell, or every one; None when there is none."""
    table = Table(title="links", title_justify="left", box=None, pad_edge=False)
    for name in ("from", "to", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("backlog", "lag", "sent", "sent/s", "kB sent", "received", "received/s", "clock"):
        table.add_column(name, justify="right")
    table.add_column("problem", overflow="fold")
    for broker in status.brokers:
        for link in broker.links:
            if every or link.state == DOWN or link.via or link.backlog or link.messages_sent_per_s >= 0.1:
                table.add_row(*_link_row(broker.name, link))
    return table if table.row_count else None


def _link_row(broker: str, link: LinkStatus) -> list[str]:
    return [
        broker,
        link.peer,
        f"[yellow]through {link.via}[/]" if link.via else f"[{STYLES[link.state]}]{link.state}[/]",
        str(link.backlog),
        duration(link.lag_s) if link.backlog else "",
        str(link.messages_sent),
        f"{link.messages_sent_per_s:.1f}",
        f"{link.bytes_sent / 1000:.0f}",
        str(link.messages_received),
        f"{link.messages_received_per_s:.1f}",
        _clock(link),
        link.problem,
    ]


def _clock(link: LinkStatus) -> str:
    if link.clock_ahead_s is None:
        return ""
    return f"{link.clock_ahead_s:+.1f} s" if abs(link.clock_ahead_s) >= 1.0 else f"{link.clock_ahead_s * 1000:+.0f} ms"


def wrong_clocks(status: CityStatus, limit_s: float) -> list[str]:
    """A line for each broker whose clock most of the others find wrong; for both, where only two can be compared."""
    found: list[str] = []
    for broker in status.brokers:
        said = [link.clock_ahead_s for other in status.brokers for link in other.links if link.peer == broker.name]
        skews = sorted(skew for skew in said if skew is not None)
        middle = skews[(len(skews) - 1) // 2] if skews else 0.0
        if abs(middle) > limit_s:
            way = "ahead of" if middle > 0 else "behind"
            found.append(f"{broker.name}: its clock is {duration(abs(middle))} {way} the others'; set it right")
    return found


def problems(status: CityStatus) -> list[str]:
    """A line for each problem, with the brokers that have it."""
    names: dict[str, list[str]] = {}
    for broker in status.brokers:
        if broker.problem:
            names.setdefault(broker.problem, []).append(broker.name)
    return [f"{', '.join(having)}: {problem}" for problem, having in names.items()]


def duration(seconds: float) -> str:
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def totals(status: CityStatus) -> str:
    """One line for the whole city."""
    running = [broker for broker in status.brokers if broker.state == UP]
    links = [link for broker in running for link in broker.links if link.state != RESTING]
    tables = len({broker.table for broker in running})
    return (
        f"{len(running)}/{len(status.brokers)} brokers up, {sum(1 for link in links if link.state == UP)}/{len(links)}"
        f" links up, {sum(broker.clients for broker in running)} clients,"
        f" {sum(broker.traffic.messages_received_per_s for broker in running):.0f} messages/s in,"
        f" {sum(broker.traffic.messages_sent_per_s for broker in running):.0f} out,"
        f" {sum(link.messages_sent_per_s for link in links):.0f} between brokers,"
        f" {'topic tables agree' if tables <= 1 else f'{tables} different topic tables'}"
    )
