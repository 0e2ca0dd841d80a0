"""One minute of chaos; `make chaos` runs five."""

import os
from pathlib import Path

import pytest

from tests.chaos.storm import storm


@pytest.mark.timeout(900)
def test_every_acknowledged_message_arrives(tmp_path: Path) -> None:
    verdict = storm(tmp_path, float(os.environ.get("METROMQ_CHAOS", "60")), seed=7)
    assert not verdict.problems, "\n".join(verdict.problems[:10])
    assert verdict.acknowledged[1] > 0
    assert verdict.acknowledged[2] > 0
    assert verdict.faults
