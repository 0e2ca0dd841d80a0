"""What-if: the sums against a twin that counts message by message, and against the lab's simulator."""

import random
from collections import defaultdict
from datetime import UTC, date, datetime
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from metromq.errors import UsageError
from metromq.federation.city import City, grid_city
from metromq.lab.sim.sim_city import SimCity
from metromq.pipeline.counting import CHOICES, Cost, demand
from metromq.pipeline.lake import Lake
from metromq.pipeline.whatif import ChoiceCost, Places, count, places, what_if
from metromq.planning.model import TopicStatistics
from metromq.planning.policies import Policy, wants
from metromq.protocol.topics.areas import area_of
from tests.pipeline.test_transforms import frame
from tests.pipeline.twins import Row

pytestmark = pytest.mark.timeout(600)
CLOUD = -1
Use = dict[tuple[str, int], tuple[int, int]]  # (topic, site) -> (publications, subscribers)
SITES = 4
AREAS = {"0": 1, "1": 3}


class Tally:
    """Counts events one by one."""

    def __init__(self) -> None:
        self.received: dict[int, int] = defaultdict(int)
        self.sent: dict[int, int] = defaultdict(int)
        self.between: dict[int, int] = defaultdict(int)
        self.table: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def copy(self, sender: int, receiver: int) -> None:
        self.sent[sender] += 1
        self.between[sender] += 1
        self.received[receiver] += 1


def twin(choice: str, use: Use, central: int) -> Tally:
    tally = Tally()
    for topic in {topic for topic, _ in use}:
        published = {site: use.get((topic, site), (0, 0))[0] for site in range(SITES)}
        held = {site: use.get((topic, site), (0, 0))[1] for site in range(SITES)}
        owner = AREAS.get(topic[0])
        if choice in ("central", "flood-publications", "flood-subscriptions", "geographic"):
            brokers(tally, choice, topic, published, held, central if choice == "central" else owner)
        else:
            networks(tally, choice, topic, published, held)
    return tally


def brokers(tally: Tally, choice: str, topic: str, published: dict[int, int], held: dict[int, int], owner: Any) -> None:
    """A broker at every site, as MetroMQ's routers do it."""
    wanting = {site for site in held if held[site]}
    for site in wanting:
        tally.table[site][topic] += held[site]
        told = {"flood-publications": [], "flood-subscriptions": range(SITES)}.get(choice)
        if told is None:
            told = range(SITES) if owner is None else [owner]
        for other in told:
            if other != site:
                tally.table[other][topic] += 1
    for site in range(SITES):
        for _ in range(published[site]):
            tally.received[site] += 1
            for taker in wanting:
                tally.sent[taker] += held[taker]
            if choice == "flood-publications":
                for other in set(range(SITES)) - {site}:
                    tally.copy(site, other)
            elif choice == "flood-subscriptions" or owner is None:
                for other in wanting - {site}:
                    tally.copy(site, other)
            else:
                if site != owner:
                    tally.copy(site, owner)
                for other in wanting - {site, owner}:
                    tally.copy(owner, other)


def networks(tally: Tally, choice: str, topic: str, published: dict[int, int], held: dict[int, int]) -> None:
    """The delegation paper's schemes: networks around a cloud; messages between are those that cross a boundary."""
    wanting = {site for site in held if held[site]}
    all_held = sum(held.values())
    delegated = {site for site in range(SITES) if is_delegated(choice, site, published, held)}
    for site in range(SITES):
        others = wanting - {site}
        outside_publishes = sum(published.values()) > published[site]
        if choice == "centralised":
            tally.table[CLOUD][topic] += held[site]
        elif choice in ("sf", "emma"):
            if held[site]:
                tally.table[site][topic] += held[site]
                if choice == "sf" or outside_publishes:
                    for other in set(range(SITES)) - {site}:
                        tally.table[other][topic] += 1
        elif site in delegated and held[site]:
            tally.table[site][topic] += held[site] + (1 if all_held > held[site] and published[site] else 0)
        for _ in range(published[site]):
            publish(tally, choice, site, others, held, delegated)


def is_delegated(choice: str, site: int, published: dict[int, int], held: dict[int, int]) -> bool:
    """As the planner decides it."""
    if not choice.startswith("delegation-"):
        return False
    policy = {"lp": "LP", "ns": "NS", "ep": "EP"}[choice.removeprefix("delegation-")]
    seen = TopicStatistics(
        published[site], sum(published.values()) - published[site], held[site], sum(held.values()) - held[site]
    )
    return wants(cast(Policy, policy), seen)


def publish(tally: Tally, choice: str, site: int, others: set[int], held: dict[int, int], delegated: set[int]) -> None:
    if choice == "centralised":
        tally.between[site] += 1
        tally.received[CLOUD] += 1
        for taker in held:
            tally.between[taker] += held[taker]
            tally.sent[CLOUD] += held[taker]
        return
    if choice in ("sf", "emma"):
        tally.received[site] += 1
        tally.sent[site] += held[site]
        if others:
            tally.sent[site] += 1
            tally.between[site] += 1
        for taker in others:
            tally.between[taker] += 1
            tally.received[taker] += 1
            tally.sent[taker] += held[taker]
        return
    if site in delegated:
        tally.received[site] += 1
        tally.sent[site] += held[site]
        if others:
            tally.sent[site] += 1
    if site not in delegated or others:
        tally.between[site] += 1
        tally.received[CLOUD] += 1
    for taker in held:
        if taker == site and site in delegated:
            continue
        if taker in delegated and held[taker]:
            copies = 1
            tally.received[taker] += 1
            tally.sent[taker] += held[taker]
        else:
            copies = held[taker]
        tally.between[taker] += copies
        tally.sent[CLOUD] += copies


def costs(choice: str, use: Use, central: int) -> Cost:
    rows = [(topic, site, *numbers) for (topic, site), numbers in use.items()]
    owner = np.array([AREAS.get(topic[0], -1) for topic, *_ in rows], np.int64)
    return CHOICES[choice](
        demand(
            SITES,
            [row[0] for row in rows],
            np.array([row[1] for row in rows], np.int64),
            np.array([row[2] for row in rows], float),
            np.array([row[3] for row in rows], float),
            owner,
        ),
        central,
    )


USES = st.dictionaries(
    st.tuples(st.sampled_from(["0/a", "0/b", "1/c", "x", "y"]), st.integers(0, SITES - 1)),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("choice", CHOICES)
@settings(deadline=None, max_examples=60)
@given(use=USES, central=st.integers(0, SITES - 1))
def test_like_counting_one_by_one(choice: str, use: Use, central: int) -> None:
    cost, tally = costs(choice, use, central), twin(choice, use, central)
    places_ = [*range(SITES), CLOUD]
    assert cost.messages_in.tolist() == [tally.received[site] for site in places_]
    assert cost.messages_out.tolist() == [tally.sent[site] for site in places_]
    assert cost.between.tolist() == [tally.between[site] for site in places_]
    sizes = [{topic: entries for topic, entries in tally.table[site].items() if entries} for site in places_]
    assert cost.table_topics.tolist() == [len(size) for size in sizes]
    assert cost.table_entries.tolist() == [sum(size.values()) for size in sizes]


def paper(locality: float, topics_each: int = 100, wanted_each: int = 20) -> Use:
    """The delegation paper's networks, smaller: every topic has one publisher, subscribers choose near or far."""
    dice = random.Random(5)
    use: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for site in range(SITES):
        for number in range(topics_each):
            use[f"s{site}t{number}", site][0] = 1
    for site in range(SITES):
        for _ in range(10):
            near = round(wanted_each * locality)
            far = [other for other in range(SITES) if other != site]
            for number in dice.sample(range(topics_each), near):
                use[f"s{site}t{number}", site][1] += 1
            for number in dice.sample(range(topics_each), wanted_each - near):
                use[f"s{dice.choice(far)}t{number}", site][1] += 1
    return {key: (published, held) for key, (published, held) in use.items()}


def total(choice: str, use: Use) -> float:
    return float(costs(choice, use, 0).between.sum())


def test_what_the_delegation_paper_says_must_hold() -> None:
    half = paper(0.5)
    assert total("centralised", half) == SITES * 100 + SITES * 10 * 20
    assert total("sf", half) == total("emma", half) == total("delegation-ep", half)
    assert total("sf", half) < total("delegation-ns", half) < total("delegation-lp", half) < total("centralised", half)
    near = paper(1.0)
    assert total("sf", near) == total("emma", near) == total("delegation-ns", near) == total("delegation-ep", near) == 0
    assert total("delegation-lp", near) > 0  # topics that nobody wants still go to the cloud
    lp, ns = costs("delegation-lp", half, 0), costs("delegation-ns", half, 0)
    assert lp.table_entries.tolist() == ns.table_entries.tolist()
    assert costs("sf", half, 0).table_entries[:-1].min() > lp.table_entries[:-1].max()


DAY = date(2026, 3, 1)


def traffic_rows(use: Use, names: list[str]) -> list[Row]:
    """A day's table: the publications of each pair spread over two minutes."""
    rows: list[Row] = []
    for (topic, site), (published, held) in use.items():
        for minute, part in ((0, published // 2), (1, published - published // 2)):
            rows.append(
                {
                    "day": DAY,
                    "window_start": datetime(2026, 3, 1, 0, minute, tzinfo=UTC),
                    "topic": topic,
                    "site": names[site],
                    "broker": names[site],
                    "publications": part,
                    "subscribers": held if minute else 0,
                }
            )
    return rows


def simulated(city: City, use: Use) -> SimCity:
    """Every publication and subscription of the day, through the routers of the live broker."""
    sim = SimCity(city)
    sim.start()
    for (topic, site), (published, held) in sorted(use.items()):
        broker = city.names[site]
        if published:
            sim.connect(f"pub/{topic}/{site}", broker)
        for number in range(held):
            client = f"sub/{topic}/{site}/{number}"
            sim.connect(client, broker).subscribe(topic, 1)
    sim.run(1.0)
    for (topic, site), (published, _) in sorted(use.items()):
        for number in range(published):
            sim.client(f"pub/{topic}/{site}").publish(topic, str(number), 1)
            sim.run(0.05)
    sim.settle()
    return sim


def small_city(seed: int) -> Use:
    dice = random.Random(seed)
    topics = [f"{a}/{b}/t{n}" for a in range(4) for b in range(4) for n in range(2)] + ["free/x", "free/y"]
    use: Use = {}
    for topic in topics:
        for site in dice.sample(range(4), dice.randrange(1, 4)):
            use[topic, site] = (dice.randrange(3), dice.randrange(3))
    return use


@pytest.mark.parametrize("routing", ["central", "flood-publications", "flood-subscriptions", "geographic"])
def test_like_the_simulator(spark: SparkSession, routing: str) -> None:
    city = grid_city(routing, count=4)
    use = small_city(3)
    rows = frame(spark, "traffic", traffic_rows(use, list(city.names)))
    (cost,) = count(rows, [routing], places(rows, city), tasks=3)
    sim = simulated(city, use)
    for site in cost.sites:
        counters = sim.brokers[site.site].counts()
        assert site.messages_in == counters.publications_in
        assert site.messages_out == counters.publications_out
        assert site.messages_between == counters.between
        assert site.table_entries == counters.subscriptions_in  # of its clients and of its peers
    assert cost.messages_between == sum(broker.counts().between for broker in sim.brokers.values()) > 0


def as_tuple(cost: ChoiceCost) -> tuple[Any, ...]:
    return cost.choice, cost.messages_between, cost.sites, cost.cloud


def test_a_day_of_the_lake(spark: SparkSession, lake: Lake) -> None:
    use = small_city(9)
    names = ["n0", "n1", "n2", "n3"]
    rows = frame(spark, "traffic", traffic_rows(use, names))
    with pytest.raises(UsageError, match="has no traffic for any day"):
        what_if(spark, lake, ["central"])
    lake.commit("traffic", lake.write_files(rows, "traffic"))
    found = what_if(spark, lake, list(CHOICES))
    assert [cost.choice for cost in found] == list(CHOICES)
    direct = count(rows, list(CHOICES), places(rows), tasks=1)
    assert [as_tuple(cost) for cost in found] == [as_tuple(cost) for cost in direct]
    assert what_if(spark, lake, ["sf"], DAY)[0].cloud.messages_in == 0
    with pytest.raises(UsageError, match="unknown choice maybe"):
        what_if(spark, lake, ["maybe"])
    with pytest.raises(UsageError, match="no traffic for 2020-01-01"):
        what_if(spark, lake, ["sf"], date(2020, 1, 1))


def test_places_without_a_city_file(spark: SparkSession) -> None:
    use = {("0/1/a", 0): (5, 0), ("0/1/b", 1): (7, 1), ("2/a", 0): (4, 0), ("free", 1): (1, 1), ("33/x", 0): (1, 0)}
    rows = frame(spark, "traffic", traffic_rows(use, ["n0", "n1"]))
    assert places(rows) == Places(("n0", "n1"), 0, {"0/1": 1, "2/0": 0}, 2)
    assert [area_of(topic, 2) for topic, _ in use] == ["0/1", "0/1", "2/0", None, None]
