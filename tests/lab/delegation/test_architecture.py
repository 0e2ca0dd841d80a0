"""Figs. 8-16: counted by hand on a city of three networks, by the product's routers, and against the paper's words."""

import json
from dataclasses import replace

import numpy as np
import pytest

from metromq.lab.delegation import schemes
from metromq.lab.delegation.architecture import (
    SCHEMES,
    SUBSCRIBER_BYTES,
    TOPIC_BYTES,
    Demand,
    Setting,
    broker_messages,
    demand_of,
    draw,
    external,
    table_bytes,
)
from metromq.lab.delegation.brokers import count
from metromq.lab.delegation.schemes import CENTRALIZED, Sweep, run_schemes
from metromq.lab.report import RunOptions

SMALL = Setting(networks=3, publishers=8, subscribers=4, topics=6)


def by_hand() -> Demand:
    """Four topics of network 0: wanted at home, at home and outside, only outside by two, by nobody."""
    table = np.array([[2, 0, 0], [1, 1, 0], [0, 2, 1], [0, 0, 0]])
    return demand_of(np.zeros(4, np.int64), table)


@pytest.mark.parametrize(
    ("scheme", "messages"),
    [
        ("centralized", 4 + 2 + 2 + 3),
        ("SF", 0 + (1 + 1) + (1 + 2) + 0),
        ("EMMA", 0 + (1 + 1) + (1 + 2) + 0),
        ("LP", 0 + (1 + 1) + (1 + 3) + 1),
        ("NS", 0 + (1 + 1) + (1 + 3) + 0),
        ("EP", 0 + (1 + 1) + (1 + 2) + 0),
    ],
)
def test_external_messages_are_those_that_one_counts_by_hand(scheme: str, messages: int) -> None:
    assert external(SCHEMES[scheme], by_hand()) == messages


@pytest.mark.parametrize(
    ("scheme", "messages"),
    [
        ("SF", (1 + 2) + (1 + 1 + 1 + 2) + (1 + 0 + 1 + 3 + 2) + 1),
        ("LP", (1 + 2) + (1 + 1 + 1)),
        ("NS", (1 + 2) + (1 + 1 + 1) + 1),
        ("EP", (1 + 2) + (1 + 1 + 1) + 1 + (1 + 2)),
    ],
)
def test_messages_of_brokers_are_those_that_one_counts_by_hand(scheme: str, messages: int) -> None:
    assert broker_messages(SCHEMES[scheme], by_hand()) == messages / 3


def test_tables_are_those_that_one_counts_by_hand() -> None:
    topic, one = TOPIC_BYTES, SUBSCRIBER_BYTES
    sizes = {name: round(3 * table_bytes(SCHEMES[name], by_hand())) for name in SCHEMES}
    assert sizes["SF"] == 3 * (3 * topic + 7 * one)
    assert sizes["EMMA"] == 3 * (2 * topic + 5 * one) + topic + 2 * one
    assert sizes["LP"] == sizes["NS"] == 2 * topic + (2 + 1 + 1) * one
    assert sizes["EP"] == sizes["LP"] + topic + 2 * one


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("locality", [0.2, 0.9])
def test_the_products_routers_make_the_same_counts(scheme: str, locality: float) -> None:
    setting = Setting(SMALL.networks, SMALL.publishers, SMALL.subscribers, SMALL.topics, locality)
    demand = draw(setting, np.random.default_rng(int(100 * locality)))
    found = count(scheme, demand)
    assert found.external == external(SCHEMES[scheme], demand)
    if scheme != "centralized":
        assert found.per_broker == pytest.approx(broker_messages(SCHEMES[scheme], demand))


def test_every_subscriber_wants_so_many_different_topics() -> None:
    for zipf in (0.0, 2.0):
        demand = draw(Setting(4, 50, 5, 20, 0.5, zipf), np.random.default_rng(3))
        assert demand.subscribers.sum() == 4 * 5 * 20
        assert demand.subscribers.max() <= 5, "nobody subscribes twice"


def test_at_full_size_centralized_is_what_the_paper_prints_and_its_words_hold() -> None:
    report = run_schemes("delegation/fig8", RunOptions())
    assert {y for _, y in report.series["centralized"]} == {CENTRALIZED}
    assert all(trend.holds for trend in report.trends), report.trends
    assert [row.verdict for row in report.published] == ["matches"]


@pytest.mark.parametrize("instances", [None, 1])
def test_the_interval_of_one_instance_is_null(instances: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/json.md has it: a point always says how many instances made it."""
    small = Sweep("popularity concentration K", {k: replace(SMALL, zipf=k) for k in (0.1, 2.0)})
    monkeypatch.setattr(schemes, "SWEEPS", (small, small, small))
    found = json.loads(run_schemes("delegation/fig16", RunOptions(instances=instances)).to_json())
    points = [{"x": x, "instances": 1, "low": None, "high": None} for x in (0.1, 2.0)]
    assert found["samples"] == dict.fromkeys(("SF", "EMMA", "LP", "NS", "EP"), points)
