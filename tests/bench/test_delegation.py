"""Live counts of the delegation paper's workload, small: equal to those by counting, and a proxy that errs is seen."""

import pytest
from bench.crossing import Boundary, Publications
from bench.delegated_counts import LIVE, _Network, live_counts
from bench.delegation import CLOSE, main

from metromq.errors import UsageError
from metromq.lab.delegation.architecture import Setting
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT311, Publish, Subscribe, Subscription

pytestmark = pytest.mark.timeout(600)  # for a machine that is busy: each takes some seconds

TINY = Setting(networks=3, publishers=6, subscribers=3, topics=4, zipf=0.5)


def test_live_counts_of_three_networks_are_those_by_counting() -> None:
    """`python -m bench delegation --only counts` has ten."""
    found = live_counts(TINY)
    assert [one.scheme for one in found] == list(LIVE)
    assert max(one.worst for one in found) <= CLOSE, found
    assert len({one.external for one in found}) >= 3, "the schemes differ"


def test_the_counts_find_proxies_that_were_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Network, "tell", lambda self, topics: None)
    [found] = live_counts(TINY, ("NS",))
    assert found.worst > CLOSE


def test_publications_are_counted_however_the_stream_is_cut() -> None:
    packets = [
        encode(Publish("a/b", bytes(200), 0), MQTT311),
        encode(Subscribe(7, [Subscription("a/#", 1)]), MQTT311),
        encode(Publish("a", b"", 1, packet_id=3), MQTT311),
    ]
    data = b"".join(packets)
    for size in (1, 2, 3, len(data)):
        counter = Publications()
        assert sum(counter.feed(data[at : at + size]) for at in range(0, len(data), size)) == 2
    assert Boundary(1).count == 0


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(UsageError, match="no part is named flight"):
        main(["--only", "flight"])
