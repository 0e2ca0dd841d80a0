"""What brokers tell of themselves: the same after a trip through JSON, and readable by another version."""

import json

import pytest

from metromq.errors import ConfigError
from metromq.federation.status import AreaStatus, BrokerStatus, LinkStatus, Traffic, broker_from_json, to_json

STATUS = BrokerStatus(
    "b1",
    "up",
    uptime_s=3.5,
    traffic=Traffic(messages_received=7),
    areas=(AreaStatus("1/0", 3, True),),
    alive=("b1", "b2"),
    links=(LinkStatus("b2", "up", lag_s=0.25),),
)


def test_status_survives_json() -> None:
    assert broker_from_json(json.loads(json.dumps(to_json(STATUS)))) == STATUS


def test_versions_may_differ() -> None:
    raw = json.loads(json.dumps(to_json(STATUS)))
    raw["mood"] = "good"
    raw["links"][0]["colour"] = ["red"]
    del raw["links"][0]["waiting"]
    del raw["traffic"]
    got = broker_from_json(raw)
    assert got.traffic == Traffic()
    assert got.links == STATUS.links


def test_what_is_no_status_is_named() -> None:
    with pytest.raises(ConfigError, match=r"links\[0\]\.lag_s: must be a number, not \"long\""):
        broker_from_json({"name": "b1", "state": "up", "links": [{"peer": "b2", "state": "up", "lag_s": "long"}]})
    with pytest.raises(ConfigError, match="name: is missing"):
        broker_from_json({"state": "up"})
