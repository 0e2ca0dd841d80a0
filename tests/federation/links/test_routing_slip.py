"""What a link says beside a message survives the journal, also the journal of an earlier version."""

import pytest

from metromq.federation.hop import Hop
from metromq.federation.links.batch import CHECK, SYNC
from metromq.federation.links.routing_slip import RoutingSlip, read_slip, slip_of
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, HOP_LIMIT, OWNER, RELAY
from metromq.protocol.packing import Packer


@pytest.mark.parametrize("stage", [CLIENT, OWNER, RELAY, HANDOVER, FINAL])
def test_a_slip_is_read_back(stage: int) -> None:
    hop = Hop("b1", stage, True, ("b2", "b3"), ("$share/g/a",), ("$share/h/a",), limit=3)
    expected = RoutingSlip(stage, CHECK | SYNC, ("b2", "b3"), ("$share/g/a",), ("$share/h/a",), 3)
    assert read_slip(slip_of(hop, SYNC)) == expected


@pytest.mark.parametrize(("written", "stage"), [(0, CLIENT), (1, OWNER), (2, HANDOVER), (3, FINAL)])
def test_slips_without_a_limit_are_understood(written: int, stage: int) -> None:
    packer = Packer().u8(written).u8(CHECK)
    for names in (("b2",), (), ()):
        packer.u16(len(names))
        for name in names:
            packer.text(name)
    assert read_slip(packer.done()) == RoutingSlip(stage, CHECK, ("b2",), (), (), HOP_LIMIT)
