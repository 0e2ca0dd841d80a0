"""Live brokers with emulated distances forward what simulated ones do, and messages are as late as the kilometres say.

How much later than that depends on the machine, so only `python -m bench overlay_live` judges it.
"""

import pytest
from bench.overlay_live import Trial, compared

pytestmark = pytest.mark.timeout(400)


def test_live_brokers_forward_what_simulated_ones_do() -> None:
    found = compared(Trial(4, 6, 0.34, steps=2, step_s=1.0))
    live, simulated, lab = found["live"], found["simulator"], found["lab"]
    counts = {(one.published, one.forwarded, one.delivered) for one in (live, simulated, lab)}
    assert len(counts) == 1
    assert live.forwarded > live.published, "there is something to compare"
    assert lab.latency_ms == pytest.approx(simulated.latency_ms, rel=0.05)
    assert live.latency_ms > 0.98 * lab.latency_ms, "nothing comes before it could"
