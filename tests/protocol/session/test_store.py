"""A session in a snapshot: what is written is read again."""

from metromq.protocol.session import SeenIds, Session
from metromq.protocol.session.store import pack_state, unpack_state


def test_packet_identifiers_keep_what_came_with_them() -> None:
    for seen in (SeenIds(), None):
        session = Session(1, "c")
        session.seen = seen
        session.take_in(7, 1234)
        session.take_in(9, 0)
        again, _, _ = unpack_state(pack_state(session))
        assert again.incoming == ({7: 1234, 9: 0} if seen is not None else {7: 0, 9: 0}), "only clients of cities roam"
