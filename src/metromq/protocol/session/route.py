"""What a route is made of: the sessions, share groups and peers that get a message."""

from collections.abc import Iterable
from typing import final

from mypy_extensions import mypyc_attr

from metromq.protocol.session.backlog import LinkBacklog
from metromq.protocol.session.session import Grant, Receiver, RouteTarget, Session
from metromq.protocol.session.shares import note_of


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadCheck:
    """Whether a session may read a topic; the shell's access list answers."""

    def may_read(self, session: Session, topic: str) -> bool:
        return True


@final
class ShareGroup(Receiver):
    """The members of `$share/name/filter` at this broker; each message goes to one of them [MQTT-4.8.2-4]."""

    def __init__(self, name: str, filter: str) -> None:
        self.name = name
        self.filter = filter
        self.members: list[Grant] = []
        self.turn = 0
        self._targets: list[RouteTarget | None] = []  # of the members, once they were chosen
        self._note = note_of(name, filter)

    def join(self, grant: Grant) -> None:
        grant.session.is_member = True
        self.members.append(grant)
        self._targets.append(None)

    def leave(self, grant: Grant) -> None:
        place = self.members.index(grant)
        del self.members[place]
        del self._targets[place]

    def pick(self, topic: str, check: ReadCheck | None) -> RouteTarget | None:
        """In turn among the connected members with room; else who is connected; else a session that waits."""
        count = len(self.members)
        best = -1
        best_rank = 3
        for step in range(count):
            place = (self.turn + step) % count
            session = self.members[place].session
            if check is not None and not check.may_read(session, topic):
                continue
            output = session.output
            if output is None or output.closing:
                rank = 2
            elif session.backlog.behind() or output.stalled:
                rank = 1
            else:
                rank = 0
            if rank < best_rank:
                best, best_rank = place, rank
                if rank == 0:
                    self.turn = (self.turn + step + 1) % count
                    return self._target(best)
        if count:
            self.turn = (self.turn + 1) % count
        return self._target(best) if best >= 0 else None

    def _target(self, place: int) -> RouteTarget:
        target = self._targets[place]
        if target is None:
            grant = self.members[place]
            target = RouteTarget(grant.session)
            target.add(grant)
            target.note = self._note
            self._targets[place] = target
        return target


@final
class LinkCopy:
    """One copy of a message for one peer: the link's backlog and what to say beside the message."""

    def __init__(self, backlog: LinkBacklog, note: bytes) -> None:
        self.backlog = backlog
        self.note = note


@final
class Route:
    """Where messages go; all topics whose messages go to the same receivers may share one."""

    def __init__(self) -> None:
        self.targets: list[RouteTarget] = []
        self.groups: list[ShareGroup] = []
        self.plain = True  # QoS 0 bytes may be forwarded to the targets as they came,
        self.copies: list[LinkCopy] | None = []  # and to these peers; None: peers differ from message to message

    def leads_like(self, other: "Route") -> bool:
        """Whether both are plain, with the same targets and nobody else; one may be older than the other."""
        mine, others = self.targets, other.targets
        if not mine or len(mine) != len(others) or mine[0] is not others[0] or not self.plain or not other.plain:
            return False
        if self.copies is None or other.copies is None or self.copies or other.copies:
            return False
        return len(mine) == 1 or mine == others


def route_to(receivers: Iterable[Receiver]) -> Route:
    """The route of topics whose filters lead to these."""
    route = Route()
    targets = route.targets
    places: dict[str, int] = {}  # of sessions among the targets
    for receiver in receivers:
        if isinstance(receiver, Grant):
            client_id = receiver.session.client_id
            place = places.get(client_id, -1)
            if place < 0:
                places[client_id] = len(targets)
                targets.append(receiver.target())
            else:
                targets[place] = targets[place].with_grant(receiver)
            gate = receiver.session.gate if receiver.of_replay else None
            if receiver.no_local or receiver.identifier or (gate is not None and gate.is_holding):
                route.plain = False
        elif isinstance(receiver, ShareGroup):
            route.groups.append(receiver)
            route.plain = False
    return route
