"""What a case of the wire is made of, and how it is checked; shared by the test_wire_ modules."""

import pytest

from metromq.errors import MalformedPacket, PeerViolation, ProtocolViolation
from metromq.protocol.wire.encoding import encode
from metromq.protocol.wire.packets import MQTT5, MQTT311, Packet
from tests.protocol.wire.feeding import WAYS, decoded


class Good:
    """Bytes and the value they stand for, in both directions unless `one_way` (more than one encoding is valid)."""

    def __init__(
        self,
        name: str,
        raw: str,
        packet: Packet,
        version: int = MQTT5,
        server: bool = True,
        one_way: bool = False,
    ) -> None:
        self.name = name
        self.raw = bytes.fromhex(raw)
        self.packet = packet
        self.version = version
        self.server = server
        self.one_way = one_way

    def check(self) -> None:
        for way in WAYS:
            assert decoded(self.raw, self.version, self.server, way) == self.packet, way
        if not self.one_way:
            assert encode(self.packet, self.version).hex() == self.raw.hex()


class Bad:
    """Bytes that must be refused, with the reason code and the clause that the error names."""

    def __init__(
        self,
        clause: str,
        name: str,
        raw: str,
        reason_code: int,
        version: int = MQTT5,
        server: bool = True,
    ) -> None:
        self.clause = clause
        self.name = name
        self.raw = bytes.fromhex(raw)
        self.reason_code = reason_code
        self.version = version
        self.server = server

    def check(self) -> None:
        for way in WAYS:
            with pytest.raises(PeerViolation) as caught:
                decoded(self.raw, self.version, self.server, way)
            assert caught.value.reason_code == self.reason_code, caught.value
            assert self.clause in str(caught.value)
            if self.reason_code == 0x81:
                assert isinstance(caught.value, MalformedPacket)
            else:
                assert isinstance(caught.value, ProtocolViolation)


def good(*cases: Good) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name.replace(" ", "-") for case in cases])


def bad(*cases: Bad) -> pytest.MarkDecorator:
    names = [f"{case.clause or 'form'}-{case.name}".replace(" ", "-") for case in cases]
    return pytest.mark.parametrize("case", cases, ids=names)


OLD = MQTT311
