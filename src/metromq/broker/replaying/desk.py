"""The broker's side of replays: checks rights, starts the process that reads, passes on what it sends, and brings each
replay and the live messages behind it together. Nothing here reads the journal."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from metromq.broker import logs
from metromq.broker.replaying import channel
from metromq.broker.replaying.gate import Following, Gate, Stage
from metromq.broker.replaying.packets import PacketWriter
from metromq.broker.replaying.process import ReplayProcess
from metromq.broker.write_cycle import WriteCycle
from metromq.config import ReplayConfig
from metromq.errors import UsageError
from metromq.federation.host import Host
from metromq.moments import parse_since
from metromq.protocol import reasons
from metromq.protocol.replay import BUSY, DENIED, FETCH_TOPIC, LARGEST_BYTES, SINCE_RIGHT, failed, split_since
from metromq.protocol.session import (
    Access,
    Asker,
    ClientOutput,
    NetworkConnection,
    Refusal,
    ReplayDesk,
    Session,
)
from metromq.protocol.wire import Publish, Subscription

FETCHES_PER_CLIENT: Final = 4
HEAD_BYTES: Final = 4096  # what an answer has beside its records' bodies, more or less
ROW_BYTES: Final = 1.2  # and in proportion to them
REST_S: Final = 1.0  # so long after anything that the process said, the broker does not stay awake between messages
POLL_S: Final = 0.005  # how soon a client that lags is looked at again


@dataclass(frozen=True, slots=True)
class Fetching:
    """A request that is being answered."""

    asker: Asker
    session: Session | None


@dataclass(slots=True)
class Streaming:
    """A replay that is being sent."""

    connection: NetworkConnection
    session: Session
    following: Following

    def is_gone(self) -> bool:
        return self.connection.output.closing or self.session.connection is not self.connection

    def lags(self) -> bool:
        output = self.connection.output
        return output.waiting_bytes > output.soft_limit_bytes


class Desk(ReplayDesk):
    """`setup` is what the process needs to know: the journal, the access list, peers and how to reach them."""

    def __init__(
        self, cycle: WriteCycle, access: Access, host: Host | None, config: ReplayConfig, setup: dict[str, Any]
    ) -> None:
        self._cycle = cycle
        self._hub = cycle.hub
        self._access = access
        self._host = host
        self._most_clients = config.max_clients
        setup = setup | {"max_bytes_per_s": config.max_bytes_per_s}
        self._process = ReplayProcess(setup, self._heard, self._fail_all)
        self._number = 0
        self._fetches: dict[int, Fetching] = {}
        self._streams: dict[int, Streaming] = {}

    # --- what clients ask -----------------------------------------------------------------------------------------

    def fetch(self, connection: NetworkConnection, session: Session | None, publish: Publish) -> None:
        asker = Asker(connection, publish)
        if session is not None and not self._may_fetch(session):
            asker.refuse(
                failed(DENIED, f"the user may not fetch records: the access list needs `topic write {FETCH_TOPIC}`")
            )
            return
        if sum(one.asker.connection is connection for one in self._fetches.values()) >= FETCHES_PER_CLIENT or (
            len(self._fetches) >= FETCHES_PER_CLIENT * self._most_clients
        ):
            asker.refuse(failed(BUSY, "too many requests are waiting at this broker: ask again when one is answered"))
            return
        output = connection.output
        if output.waiting_bytes > 2 * LARGEST_BYTES:
            connection.terminate(reasons.QUOTA_EXCEEDED, "the answers to earlier requests have not been read")
            return
        self._number += 1
        self._fetches[self._number] = Fetching(asker, session)
        most = int((output.max_packet_bytes - HEAD_BYTES) / ROW_BYTES) if output.max_packet_bytes > HEAD_BYTES else 0
        job = self._client(session) | {"request": publish.payload.decode("utf-8", "replace"), "max_bytes": most}
        self._tell(channel.FETCH, self._number, job)

    def _may_fetch(self, session: Session) -> bool:
        return self._access.unrestricted(session) or self._access.may_publish(session, FETCH_TOPIC)

    def _client(self, session: Session | None) -> dict[str, Any]:
        if session is None:
            return {"is_peer": True, "username": "", "client_id": ""}
        return {"is_peer": False, "username": session.username, "client_id": session.client_id}

    def subscribe(
        self, connection: NetworkConnection, session: Session, wanted: Subscription, identifier: int
    ) -> Refusal | None:
        try:
            start, topic_filter = split_since(wanted.filter)
            since = parse_since(start, self._hub.clock.wall_us)
        except UsageError as error:
            return Refusal(reasons.TOPIC_FILTER_INVALID, str(error))
        if topic_filter.startswith("$metromq") or not self._may_replay(session, topic_filter):
            return Refusal(
                reasons.NOT_AUTHORIZED,
                f"the user may not replay {topic_filter}: the access list needs `topic read {SINCE_RIGHT}`",
            )
        refusal = _had_already(session, wanted.filter, topic_filter)
        if refusal is not None:
            return refusal
        if len(self._streams) >= self._most_clients:
            return Refusal(reasons.QUOTA_EXCEEDED, f"{self._most_clients} replays are under way at this broker already")
        output = connection.output
        identifiers = (identifier,) if identifier else ()
        packets = PacketWriter(output.version, output.max_packet_bytes, identifiers)
        following = self._follow(session, wanted.filter, topic_filter, packets, output.version)
        following.write = partial(self._write, output)
        following.wall_us = lambda: self._hub.clock.wall_us
        self._number += 1
        self._streams[self._number] = Streaming(connection, session, following)
        job = {
            "filter": topic_filter,
            "since_us": since.time_us,
            "offset": since.offset,
            "version": output.version,
            "max_packet_bytes": output.max_packet_bytes,
            "identifiers": identifiers,
        }
        self._tell(channel.STREAM, self._number, self._client(session) | job)
        live = Subscription(topic_filter, 0, wanted.no_local, wanted.retain_as_published, 2)
        self._hub.subscriptions.follow(session, live, identifier)
        return None

    def _write(self, output: ClientOutput, data: bytes) -> None:
        """A live message of a replay, as any other of QoS 0: at once or not at all."""
        counters = self._hub.counters
        if not output.room():
            output.dropped += 1
            counters.dropped += 1
            return
        output.write(data)
        counters.messages_sent += 1
        if output.waiting_bytes > output.soft_limit_bytes:
            self._hub.delivery.slow = output

    def _may_replay(self, session: Session, topic_filter: str) -> bool:
        access = self._access
        if access.unrestricted(session):
            return True
        return access.may_read(session, SINCE_RIGHT) and access.may_subscribe(session, topic_filter)

    def _follow(self, session: Session, name: str, topic_filter: str, packets: PacketWriter, version: int) -> Following:
        log = self._hub.commits.log
        assert log is not None
        for earlier in _followings(session):
            if earlier.name == name:  # the client asks again: from the beginning
                self._end(session, earlier)
        following = Following(
            name, topic_filter, packets, version, self._hub.name, log.next_offset, self._journal_number
        )
        gate = session.gate
        if not isinstance(gate, Gate):
            gate = session.gate = Gate()
        gate.followings = [*gate.followings, following]
        gate.is_holding = True
        return following

    def _journal_number(self, peer: str) -> int:
        return self._host.inbox.journal_number(peer) if self._host is not None else 0

    def unsubscribe(self, session: Session, full_filter: str) -> bool:
        found = [one for one in _followings(session) if one.name == full_filter]
        for following in found:
            self._end(session, following)
            self._hub.subscriptions.unfollow(session, following.topic_filter)
        return bool(found)

    def _end(self, session: Session, following: Following) -> None:
        """Nothing more comes of a replay."""
        for number, stream in list(self._streams.items()):
            if stream.following is following:
                self._stop(number)
        gate = session.gate
        if isinstance(gate, Gate):
            gate.followings = [one for one in gate.followings if one is not following]
            self._opened(session, gate, following)

    def _opened(self, session: Session, gate: Gate, following: Following) -> None:
        """Live messages may take the short way again, unless another replay holds them."""
        gate.is_holding = any(one.stage is not Stage.LIVE for one in gate.followings)
        grant = session.grants.get(following.topic_filter)
        if grant is not None:
            self._hub.routes.add(following.topic_filter, grant)  # routes are made anew where a subscription is replaced

    def _stop(self, number: int) -> None:
        self._streams.pop(number, None)
        self._process.send(channel.note(channel.STOP, number))

    # --- what the process says ------------------------------------------------------------------------------------

    def _heard(self, kind: int, number: int, body: bytes) -> None:
        self._cycle.now()
        self._cycle.vigil.rest(self._hub.clock.now + REST_S)
        self._do(kind, number, body)
        self._cycle.worked()

    def _do(self, kind: int, number: int, body: bytes) -> None:
        if kind == channel.ANSWER:
            fetching = self._fetches.pop(number, None)
            if fetching is not None:
                fetching.asker.answer(body)
            return
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.is_gone():
            self._stop(number)
        elif kind == channel.PACKETS:
            stream.connection.output.write(body)
            self._when_taken(number, stream)
        elif kind == channel.SWITCH:
            self._switch(number, stream)
        elif kind == channel.LIVE:
            self._live(number, stream, json.loads(body))
        elif kind == channel.FAILED:
            self._break_off(number, stream, body.decode())

    def _when_taken(self, number: int, stream: Streaming) -> None:
        """The process may send more when the network has taken nearly all."""
        if number not in self._streams:
            return
        if stream.is_gone():
            self._stop(number)
        elif stream.lags():
            self._cycle.loop.call_later(POLL_S, self._when_taken, number, stream)
        else:
            self._process.send(channel.note(channel.GO_ON, number))

    def _switch(self, number: int, stream: Streaming) -> None:
        """From this moment on all live messages wait; those before it are in the journal."""
        following, log = stream.following, self._hub.commits.log
        assert log is not None
        following.hold()
        self._tell(channel.SWITCHED, number, {"offset": log.next_offset()})

    def _live(self, number: int, stream: Streaming, told: dict[str, Any]) -> None:
        following = stream.following
        if following.stage is Stage.OVERFLOWN:  # they are in the journals: the process goes on with those
            self._tell(channel.SWITCHED, number, {"offset": 0})
            return
        following.replayed(told)
        self._release(number, stream)

    def _release(self, number: int, stream: Streaming) -> None:
        """As fast as the client takes them; what comes meanwhile waits behind."""
        following = stream.following
        if number not in self._streams:
            return
        if stream.is_gone():
            self._stop(number)
            return
        if following.stage is Stage.OVERFLOWN:
            self._break_off(number, stream, "the client is too slow for what is published")
            return
        while following.held and not stream.lags():
            following.release_one()
        if following.held:
            self._cycle.loop.call_later(POLL_S, self._release_later, number, stream)
            return
        following.stage = Stage.LIVE
        self._stop(number)
        gate = stream.session.gate
        if isinstance(gate, Gate):
            self._opened(stream.session, gate, following)

    def _release_later(self, number: int, stream: Streaming) -> None:
        self._cycle.now()
        self._release(number, stream)
        self._cycle.worked()

    def _break_off(self, number: int, stream: Streaming, why: str) -> None:
        """Ends the connection: a client that is told can ask again, one that waits for ever cannot."""
        logs.warning("a replay broke off", client=stream.session.client_id, problem=why)
        self._stop(number)
        stream.connection.terminate(reasons.IMPLEMENTATION_SPECIFIC_ERROR, f"the replay broke off: {why}")

    # --- the process ----------------------------------------------------------------------------------------------

    def _tell(self, kind: int, number: int, body: dict[str, Any]) -> None:
        self._process.send(channel.note(kind, number, json.dumps(body).encode()))

    def _fail_all(self) -> None:
        self._cycle.now()
        fetches, self._fetches = self._fetches, {}
        for fetching in fetches.values():
            fetching.asker.refuse(failed(BUSY, "the process that reads the journal ended: ask again"))
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.connection.terminate(
                reasons.IMPLEMENTATION_SPECIFIC_ERROR, "the replay broke off: the process that reads the journal ended"
            )
        self._cycle.worked()

    def tick(self) -> None:
        """Now and then: replays whose clients are gone end."""
        for number, stream in list(self._streams.items()):
            if stream.is_gone():
                self._stop(number)

    async def close(self) -> None:
        self._streams, self._fetches = {}, {}
        await self._process.close()


def _followings(session: Session) -> list[Following]:
    """The replays of its connection, those that are live included."""
    return session.gate.followings if isinstance(session.gate, Gate) else []


def _had_already(session: Session, name: str, topic_filter: str) -> Refusal | None:
    """A session has each filter once: what follows a replay would take the place of its own subscription."""
    grant = session.grants.get(topic_filter)
    if grant is not None and not grant.of_replay:
        return Refusal(
            reasons.IMPLEMENTATION_SPECIFIC_ERROR,
            f"the session has subscribed to {topic_filter} itself: replay it with a client identifier of its own",
        )
    for following in _followings(session):
        if following.topic_filter == topic_filter and following.name != name:
            return Refusal(
                reasons.IMPLEMENTATION_SPECIFIC_ERROR,
                f"the session replays {topic_filter} already: first UNSUBSCRIBE from {following.name}",
            )
    return None
