"""A broker that empties itself: for maintenance (drain), or because it leaves the city for good.

Clients are sent elsewhere a few at a time, and their sessions follow them as always. Sessions whose clients do not come
anywhere go to a broker nearby. Who leaves for good gives its areas away first, and its retained values last, and goes
when nothing can be under way to it or from it: every peer has answered a probe, and links keep order.
"""

from collections.abc import Callable
from typing import Final, final

from metromq.errors import MetroError, UsageError
from metromq.federation.city import City
from metromq.federation.description import without_areas, without_broker
from metromq.federation.effects import Effect, SendRetained, SessionTaken
from metromq.federation.host.roaming import Reporting, Roaming
from metromq.federation.node import Node
from metromq.protocol import reasons
from metromq.protocol.session import Hub, NetworkConnection, Session

GRACE_S: Final = 5.0  # so long a client has to come back elsewhere before its will is published and its session sent on
CLIENTS_PER_S: Final = 50.0
FAREWELL_S: Final = 2.0  # so long the last words have to reach the peers
RETURN_S: Final = 10.0  # so long who has left, and was started again, listens whether it is a member after all

STAYS, AREAS, CLIENTS, DRAINED, RETAINED, FLUSHES, PARTS, GONE = (
    "stays",
    "gives its areas away",
    "sends its clients elsewhere",
    "is drained",
    "hands its retained values over",
    "waits for what is under way",
    "takes its leave",
    "has left",
)


@final
class Leaving:
    """`change` proposes another description of the city; `on_gone` is told when this broker may end.

    Its attributes are many because it uses most parts of a host, and remembers how far it is.
    """

    def __init__(
        self,
        hub: Hub,
        node: Node,
        roaming: Roaming,
        run: Callable[[list[Effect]], None],
        change: Callable[[City, str, str], None],
        report: Reporting,
    ) -> None:
        self._hub = hub
        self._node = node
        self._roaming = roaming
        self._run = run
        self._change = change
        self._report = report
        self.on_gone: Callable[[], None] = lambda: None
        self.state = STAYS
        self._for_good = False
        self._author = ""
        self._per_s = CLIENTS_PER_S
        self._allowance = 0.0
        self._ticked_at = 0.0
        self._since = 0.0  # this state
        self._number = 0  # of the probe
        self._problem = ""  # that stands in the way
        self._steps: dict[str, Callable[[], None]] = {
            AREAS: self._give_areas,
            CLIENTS: self._send_clients,
            RETAINED: self._wait_for_links,
            FLUSHES: self._flush,
            PARTS: self._part,
        }

    # What the operator wants.

    def drain(self, per_s: float = CLIENTS_PER_S) -> None:
        self._refuge()  # there must be one
        self._per_s = per_s
        self._enter(CLIENTS)

    def resume(self) -> None:
        """Clients may come again; those that were sent away stay where they are."""
        if self._for_good:
            raise UsageError(f"{self._node.name} is leaving the city for good")
        self._enter(STAYS)

    def leave(self, author: str, per_s: float = CLIENTS_PER_S) -> None:
        if self._node.city.central == self._node.name:
            raise UsageError(f"{self._node.name} is the central broker: choose another one first")
        self._refuge()
        self._for_good, self._author, self._per_s = True, author, per_s
        self._enter(AREAS)

    def restored(self) -> None:
        """After a restart: who had left the city when it was killed goes, unless it hears that it is a member."""
        if not self._is_member() and not self._hub.sessions.by_client_id:
            self._for_good = True
            self._enter(PARTS)
            self._since += RETURN_S - FAREWELL_S

    @property
    def is_away(self) -> bool:
        """Whether clients are sent elsewhere."""
        return self.state != STAYS

    def refuses(self, connection: NetworkConnection) -> bool:
        """Sends a newcomer elsewhere."""
        if self.is_away:
            connection.refuse(reasons.USE_ANOTHER_SERVER, f"{self._node.name} {self.state}", self._reference())
        return self.is_away

    def waits_for(self) -> tuple[str, ...]:
        """What stands in the way of the next step, for people."""
        waits = [] if self._node.up.issuperset(self._node.neighbours) else ["a link that is down"]
        waits += [f"better times: {self._problem}"] if self._problem else []
        if self.state == AREAS:
            waits += [f"{name} to follow the city" for name in self._behind()]
        if self.state == CLIENTS:
            waits += [f"{len(self._hub.sessions.by_client_id)} sessions"]
        if self.state in (RETAINED, FLUSHES, PARTS):
            waits += [f"messages to {peer}" for peer in self._loaded()]
        return tuple(waits)

    # Step by step.

    def tick(self) -> None:
        now = self._hub.clock.now
        self._allowance = min(self._allowance + (now - self._ticked_at) * self._per_s, max(self._per_s, 1.0))
        self._ticked_at = now
        step = self._steps.get(self.state)
        if step is not None:
            self._try(step)

    def _try(self, step: Callable[[], None]) -> None:
        """What stands in the way may pass: the step is tried again."""
        before, self._problem = self._problem, ""
        try:
            step()
        except MetroError as error:
            self._problem = str(error)
            if self._problem != before:
                self._report("warning", "this broker cannot leave yet", problem=error)

    def _enter(self, state: str) -> None:
        self.state, self._since, self._ticked_at, self._allowance = state, self._hub.clock.now, self._hub.clock.now, 0.0
        self._report("info", f"this broker {state}")

    def _give_areas(self) -> None:
        node = self._node
        if any(home == node.name for home in node.city.homes.values()):
            self._change(without_areas(node.city, node.name), self._author, f"{node.name} leaves")
        elif not self._behind() and not node.table.owned_by(node.name):
            self._enter(CLIENTS)

    def _behind(self) -> list[str]:
        epoch = self._node.description.epoch
        return [name for name, follows in self._node.descriptions.followed_by.items() if follows < epoch]

    def _send_clients(self) -> None:
        sessions = list(self._hub.sessions.by_client_id.values())
        if not sessions:
            self._enter(RETAINED if self._for_good else DRAINED)
            if self._for_good:
                self._run([SendRetained(self._keeper(), ("#",))])
            return
        for session in sessions:
            if self._allowance < 1.0:
                return
            if session.connection is not None:
                self._send_away(session)
                self._allowance -= 1.0
            elif not session.departed_to and self._hub.clock.now - session.detached_at >= GRACE_S:
                self._send_on(session)
                self._allowance -= 1.0

    def _send_away(self, session: Session) -> None:
        """The client has a while to come back elsewhere, as if its broker had been lost."""
        if session.expiry_s < GRACE_S:
            self._hub.sessions.expiry_changed(session, int(GRACE_S))
        if session.will is not None:
            session.will.delay_s = max(session.will.delay_s, int(GRACE_S))
        connection = session.connection
        if connection is not None:
            reason = f"{self._node.name} {self.state}"
            connection.terminate(reasons.USE_ANOTHER_SERVER, reason, self._reference())
            connection.lost()

    def _send_on(self, session: Session) -> None:
        """The client did not come back: what it left goes where it can be found."""
        self._hub.sessions.publish_will(session)
        taken_us = self._node.clock.stamp_us()
        self._roaming.taken(SessionTaken(session.client_id, taken_us, self._refuge(), False))

    def _wait_for_links(self) -> None:
        if not self._loaded():
            self._number = self._node.clock.stamp_us()
            self._roaming.probe_all(self._number)
            self._enter(FLUSHES)

    def _flush(self) -> None:
        flushed = self._roaming.flushed
        if not self._loaded() and all(flushed.get(peer) == self._number for peer in self._node.peers):
            node = self._node
            if any(home == node.name for home in node.city.homes.values()):
                self._enter(AREAS)  # somebody has given it areas meanwhile
                return
            self._change(without_broker(node.city, node.name), self._author, f"{node.name} has left")
            self._enter(PARTS)

    def _is_member(self) -> bool:
        return self._node.coordinator.book.is_member(self._node.name)

    def _part(self) -> None:
        if self._is_member():  # again, or still: another description has overruled that it left
            self._for_good = bool(self._author)
            self._enter(AREAS if self._for_good else STAYS)
        elif self._hub.clock.now - self._since >= FAREWELL_S:
            self._enter(GONE)
            self.on_gone()

    def _loaded(self) -> list[str]:
        """Peers for which messages wait here."""
        links = self._hub.links
        return [peer for peer in self._node.peers if links.backlog(peer).unsettled()]

    # Where to.

    def _refuge(self) -> str:
        """The nearest broker within reach."""
        node = self._node
        found = [name for name in node.up if name in node.city.by_name]
        if not found:
            raise UsageError(f"{node.name} reaches no other broker: nobody could take what it has")
        if node.name not in node.city.by_name:
            return min(found)  # who has left has no place, and may still be asked
        return min(found, key=lambda name: (node.city.distance_km(node.name, name), name))

    def _reference(self) -> str:
        return self._node.city.by_name[self._refuge()].listen if self._node.up else ""

    def _keeper(self) -> str:
        """Who is asked for retained values by newcomers anywhere."""
        return self._node.city.central or self._refuge()
