"""Links to peer brokers, as the hub sees them: what each peer must still get, and how it is handed over."""

from typing import Final, final

from metromq.protocol.packing import Packer
from metromq.protocol.session import records, store
from metromq.protocol.session.backlog import SENT, Backlogs, LinkBacklog
from metromq.protocol.session.commits import Commits

MAX_INFLIGHT: Final = 65_535  # as many as there are packet identifiers


@final
class Links:
    """One backlog per peer, made when it is first needed and kept for ever."""

    def __init__(self, commits: Commits, backlogs: Backlogs) -> None:
        self.by_peer: dict[str, LinkBacklog] = {}
        self._commits = commits
        self._backlogs = backlogs

    def backlog(self, peer: str) -> LinkBacklog:
        backlog = self.by_peer.get(peer)
        if backlog is None:
            backlog = self.by_peer[peer] = LinkBacklog(self._backlogs.take_number(), peer)
            backlog.durable = self._commits.log is not None
            self._commits.append(records.LINK_OPENED, store.pack_link_opened(backlog))
        return backlog

    def restore(self, backlog: LinkBacklog) -> None:
        """The journal, or a snapshot, knows of this link."""
        self.by_peer[backlog.peer] = backlog
        self._backlogs.saw_number(backlog.number)

    def pump(self, backlog: LinkBacklog) -> None:
        """Hands over what the link has room for, in order."""
        output = backlog.output
        if output is None:
            return
        backlogs = self._backlogs
        while len(backlog.inflight) < MAX_INFLIGHT and not output.closing:
            entry = backlogs.next_entry(backlog)
            if entry is None or entry.packet_id in backlog.inflight or output.waiting_bytes > output.soft_limit_bytes:
                return
            if output.carry(backlogs.pop(backlog), entry.note):
                entry.state = SENT
                backlog.inflight[entry.packet_id] = entry
            else:
                backlogs.note(records.ACKNOWLEDGED, backlog, entry.packet_id)

    def resume(self, backlog: LinkBacklog) -> None:
        """The link is up again: what was under way when it broke goes first."""
        self._backlogs.requeue_inflight(backlog)
        self.pump(backlog)

    def has_all_through(self, backlog: LinkBacklog, offset: int) -> bool:
        """Whether the peer has committed every message up to this offset."""
        for entry in backlog.inflight.values():
            return entry.offset > offset
        if backlog.queue:
            return backlog.queue.first().offset > offset
        return not backlog.spilled or backlog.spill_offset > offset

    def acknowledged_through(self, backlog: LinkBacklog, offset: int) -> None:
        """The peer has committed every message up to this offset; links are acknowledged in order."""
        done = [packet_id for packet_id, entry in backlog.inflight.items() if entry.offset <= offset]
        for packet_id in done:
            del backlog.inflight[packet_id]
        if done:
            self._commits.append(records.ACKNOWLEDGED_THROUGH, Packer().u32(backlog.number).i64(offset).done())
            self.pump(backlog)
