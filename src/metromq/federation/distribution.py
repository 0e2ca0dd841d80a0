"""From a router's suggestion to copies: one per interested peer, and one member for each shared subscription."""

import hashlib
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from metromq.federation.hop import Hop
from metromq.federation.routing.router import STAY, Audience, Carry, Onward, Router, Suggestion
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, HOP_LIMIT, OWNER, RELAY, may_follow


@dataclass(frozen=True, slots=True)
class Distribution:
    """Copies for peers, and the shared subscriptions that this broker itself must serve.

    `dropped` are peers that the router named and that get none, because the copy has crossed as many links as it may.
    """

    hops: tuple[Hop, ...]
    shares: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    serves: bool = False  # this broker distributes it; otherwise somebody else does
    left: tuple[str, ...] = ()  # shared subscriptions that this broker would choose members of, and leaves to another
    held: bool = False  # what its clients publish, and is stored, waits here: the topic is changing hands

    def size_bytes(self) -> int:
        """What it takes in memory, roughly: hops, and the names of shared subscriptions, which may be long."""
        names = [*self.shares, *(name for hop in self.hops for name in (*hop.shares, *hop.shares_done))]
        targets = sum(len(hop.targets) for hop in self.hops)
        return 300 * len(self.hops) + 8 * targets + sum(100 + len(name) for name in names)


NOWHERE: Final = Distribution(())
HOLD: Final = "$hold"  # no peer: the backlog of what is held back
HELD: Final = Distribution((Hop(HOLD, OWNER),))


@dataclass(slots=True)  # not frozen, which would double its cost: one is made for every message of a link
class Arrival:
    """A message as it reaches a broker. `number` is its offset at its origin, or any counter at QoS 0."""

    topic: str
    stage: int
    origin: str
    number: int = 0
    served: tuple[str, ...] = ()
    shares_done: tuple[str, ...] = ()
    check: bool = False
    limit: int = HOP_LIMIT
    passed: bool = False
    targets: tuple[str, ...] = ()  # of a relay: the brokers that it is to bring the message to


class KnownInterest(Protocol):
    """What peers want."""

    def peers_for(self, topic: str) -> tuple[str, ...]: ...

    def shares_for(self, topic: str) -> list[str]: ...

    def members_of(self, share: str) -> dict[str, int]: ...


class OwnInterest(Protocol):
    """What this broker's own clients want."""

    def shares_for(self, topic: str) -> list[str]: ...

    def members(self, share: str) -> int: ...


class Distributor(Protocol):
    """What distribution needs to know of a node."""

    name: str
    peers: tuple[str, ...]
    router: Router

    @property
    def up(self) -> Container[str]: ...

    @property
    def interest(self) -> KnownInterest: ...

    @property
    def announcer(self) -> OwnInterest: ...

    @property
    def may_be_missed(self) -> Callable[[], bool]: ...


def distribute(host: Distributor, arrival: Arrival) -> tuple[Distribution, bool]:
    """Where the message goes, and whether it is the same for every message of the topic."""
    if arrival.targets:
        return _carry(host, arrival), False
    suggestion = host.router.decide(arrival.topic, arrival.stage, arrival.origin)
    if arrival.stage == OWNER and suggestion is STAY:
        suggestion = _anew(host.router, arrival)
    shares = [share for share in shares_for(host, arrival.topic) if share not in arrival.shares_done]
    left: tuple[str, ...] = ()
    if suggestion.through and shares and arrival.stage == OWNER and host.may_be_missed():
        suggestion, left = _doubted(suggestion.through), tuple(shares)
    onward, looped = _allowed(host, arrival, suggestion.onward)
    serves = suggestion.audience is not Audience.NOBODY
    if not serves:
        hops, own = _pass_on(host, arrival, onward, shares)
    else:
        everyone = suggestion.audience is Audience.EVERYONE
        peers = host.peers if everyone else host.interest.peers_for(arrival.topic)
        if suggestion.through:
            peers, onward = _through(host, arrival, suggestion.through, peers, onward)
        hops, own = _serve(host, arrival, onward, peers, shares)
    if arrival.limit < 1:
        looped += [hop.peer for hop in hops]
        hops = []
    return Distribution(tuple(hops), own, tuple(looped), serves, left), not shares


def _doubted(middle: str) -> Suggestion:
    """Nobody has heard this broker for so long, as when it stood still, that another may be responsible by now.

    Then who sent the message has sent it there too, and members may be chosen: the broker in the middle knows.
    """
    return Suggestion(Audience.NOBODY, (Onward(middle, HANDOVER, "knows whether members were chosen"),))


def _anew(router: Router, arrival: Arrival) -> Suggestion:
    """The sender routes differently, because the city's routing changes: the message is distributed from here."""
    arrival.check = True
    found = router.decide(arrival.topic, CLIENT, arrival.origin)
    onward = tuple(Onward(item.peer, max(item.stage, HANDOVER), item.why) for item in found.onward)
    return Suggestion(found.audience, onward)


def _allowed(host: Distributor, arrival: Arrival, onward: tuple[Onward, ...]) -> tuple[list[Onward], list[str]]:
    """A relay is left out where the message has been; what would turn back to an earlier stage is dropped."""
    if not onward:
        return [], []
    have = {host.name, arrival.origin, *arrival.served}
    fresh = [item for item in onward if item.peer not in have or (item.stage != RELAY and item.peer != host.name)]
    allowed = [item for item in fresh if may_follow(arrival.stage, item.stage)]
    return allowed, [item.peer for item in fresh if not may_follow(arrival.stage, item.stage)]


def _through(
    host: Distributor, arrival: Arrival, middle: str, peers: tuple[str, ...], onward: list[Onward]
) -> tuple[tuple[str, ...], list[Onward]]:
    """One copy for the broker in the middle, if somebody wants it, or may: it knows more of brokers that are away."""
    have = {host.name, arrival.origin, *arrival.served}
    is_sure = all(peer in host.up for peer in host.peers)
    if middle in have:  # as it published the message itself, we serve those we know of
        return peers, onward if is_sure else [
            *onward,
            Onward(middle, HANDOVER, "knows what brokers that are away want"),
        ]
    if is_sure and all(peer in have for peer in peers):
        return (), onward
    return (), [*onward, Onward(middle, RELAY, "serves the brokers that want it")]


def _serve(
    host: Distributor, arrival: Arrival, onward: list[Onward], peers: tuple[str, ...], shares: list[str]
) -> tuple[list[Hop], tuple[str, ...]]:
    """This broker distributes: a copy for each peer that wants it, and one broker for each shared subscription."""
    origin, served, limit = arrival.origin, arrival.served, arrival.limit - 1
    check = arrival.check or arrival.stage == HANDOVER
    further = {item.peer for item in onward}
    have = {host.name, origin, *served}
    final = [peer for peer in peers if peer not in have and peer not in further]
    picked = _pick_all(host, shares, origin, arrival.number)
    done = (*arrival.shares_done, *shares)
    # Whoever may stand in for us one day must know that we have chosen.
    told = done if done and host.router.key(arrival.topic) is not None else ()
    hops: list[Hop] = []
    straight = final
    if host.router.ways.leads:
        carried = host.router.ways.carriers(arrival.topic, tuple(final), have)
        hops, behind = _carried(carried, final, have, limit, picked)
        straight = [peer for peer in final if peer not in behind]
    hops += [Hop(peer, FINAL, check, (), picked.pop(peer, ()), told, limit=limit) for peer in straight]
    own_shares = picked.pop(host.name, ())
    if onward:
        names = tuple(dict.fromkeys((host.name, origin, *served, *final)))
        for item in onward:
            known = names + _other_relays(onward, item)
            hops.append(Hop(item.peer, item.stage, check, known, picked.pop(item.peer, ()), done, limit=limit))
    # A broker that has the message already, or does not want it otherwise, may still hold the chosen member.
    hops += [Hop(peer, FINAL, check, (peer,), chosen, told, limit=limit) for peer, chosen in picked.items()]
    return hops, own_shares


def _carried(
    carried: tuple[Carry, ...],
    peers: Collection[str],
    have: Collection[str],
    limit: int,
    picked: dict[str, tuple[str, ...]],
) -> tuple[list[Hop], set[str]]:
    """Copies for relays, each with the brokers that it serves, and all that need no copy of their own: a link takes a
    message once, so whatever a relay is to do with it goes with one copy.

    A copy names everybody else that gets the message in `served`, so that a relay that knows of one more broker can
    tell that its sender did not. It is marked: when a relay is lost, the same message is sent around it.
    """
    hops: list[Hop] = []
    for item in carried:
        served = tuple(sorted({*peers, *have} - {*item.targets, item.peer}))
        chosen = picked.pop(item.peer, ())
        hops.append(Hop(item.peer, RELAY, True, served, chosen, limit=limit, targets=item.targets))
    return hops, {name for item in carried for name in (item.peer, *item.targets)}


def _carry(host: Distributor, arrival: Arrival) -> Distribution:
    """This broker is a relay: a copy for each broker that the message names, and, of what can be recognised when it
    comes twice, for those that want it now and that the sender did not know of: a session may have moved there."""
    limit = arrival.limit - 1
    have = {host.name, arrival.origin, *arrival.served}
    named = [peer for peer in arrival.targets if peer in host.peers]
    if arrival.limit < 1:
        return Distribution((), (), tuple(named))
    fresh = [peer for peer in host.interest.peers_for(arrival.topic) if peer not in have and peer not in named]
    carried = host.router.ways.carriers(arrival.topic, tuple(named), have)
    hops, behind = _carried(carried, (*named, *fresh), have, limit, {})
    hops += [Hop(peer, FINAL, True, limit=limit) for peer in named if peer not in behind]
    hops += [Hop(peer, FINAL, True, durable_only=True, limit=limit) for peer in fresh if peer not in behind]
    return Distribution(tuple(hops), serves=True)


def _pass_on(
    host: Distributor, arrival: Arrival, onward: list[Onward], shares: list[str]
) -> tuple[list[Hop], tuple[str, ...]]:
    """Someone else distributes. While it is out of reach, our own members need not wait for its choice."""
    own: tuple[str, ...] = ()
    if arrival.stage == CLIENT and onward and not any(item.peer in host.up for item in onward):
        own = tuple(share for share in shares if host.announcer.members(share))
    names: tuple[str, ...] = ()
    if arrival.stage > CLIENT or arrival.served:
        names = tuple(dict.fromkeys((*arrival.served, host.name, arrival.origin)))
    done = arrival.shares_done + own
    check = arrival.check or arrival.stage in (OWNER, HANDOVER)
    hops: list[Hop] = []
    for place, item in enumerate(onward):
        known = names + _other_relays(onward, item)
        durable_only = place > 0 and item.stage != RELAY  # relays are branches, others are two ways to one place
        hops.append(Hop(item.peer, item.stage, check, known, (), done, durable_only, arrival.limit - 1))
    return hops, own


def _other_relays(onward: list[Onward], own: Onward) -> tuple[str, ...]:
    """They get the message from us, so none need send it to another."""
    return tuple(item.peer for item in onward if item.stage == RELAY and item.peer != own.peer)


def pass_shares(host: Distributor, shares: tuple[str, ...], arrival: Arrival, sender: str) -> tuple[Hop, ...]:
    """For shared subscriptions whose members have left since this broker was chosen: another one that has members.

    Where this broker knows of none, the sender may: brokers are told of members only if they distribute the topic. It
    gets the message back, once. Who has passed it to us has none.
    """
    chosen: dict[str, tuple[str, ...]] = {}
    returned: tuple[str, ...] = ()
    for share in shares if arrival.limit > 0 else ():
        members = _members(host, share, {host.name, sender} if arrival.passed else {host.name})
        if members:
            broker = pick(share, members, arrival.origin, arrival.number)
            chosen[broker] = (*chosen.get(broker, ()), share)
            continue
        told = host.router.announce_to(share)
        if sender in told and sender not in arrival.served:
            returned = (*returned, share)
        elif told and sender not in told and not (arrival.passed and told.intersection(arrival.served)):
            # The sender was responsible when it chose us, or we when we chose it, or nobody sent it: others know.
            broker = min([peer for peer in told if peer in host.up] or told)
            chosen[broker] = (*chosen.get(broker, ()), share)
    limit = arrival.limit - 1
    hops = [Hop(peer, FINAL, True, (peer,), picked, limit=limit, passed=True) for peer, picked in chosen.items()]
    if returned:
        hops.append(Hop(sender, FINAL, True, (sender, host.name), returned, limit=limit, passed=True))
    return joined(hops)


def joined(hops: Iterable[Hop]) -> tuple[Hop, ...]:
    """One copy for each peer: two of one message have one sequence, and the peer would take the second for a repeat."""
    by_peer: dict[str, Hop] = {}
    for hop in hops:
        known = by_peer.get(hop.peer)
        by_peer[hop.peer] = hop if known is None else _join(known, hop)
    return tuple(by_peer.values())


def _join(one: Hop, passed: Hop) -> Hop:
    """The peer has the message already only if both say so."""
    peer, names = one.peer, dict.fromkeys((*one.served, *passed.served))
    if peer not in one.served or peer not in passed.served:
        names.pop(peer, None)
    shares = tuple(dict.fromkeys((*one.shares, *passed.shares)))
    limit = min(one.limit, passed.limit)
    return replace(one, check=True, served=tuple(names), shares=shares, limit=limit, passed=True)


def shares_for(host: Distributor, topic: str) -> list[str]:
    """The shared subscriptions that this broker knows of and that match."""
    return list(dict.fromkeys((*host.announcer.shares_for(topic), *host.interest.shares_for(topic))))


def _pick_all(host: Distributor, shares: list[str], origin: str, number: int) -> dict[str, tuple[str, ...]]:
    picked: dict[str, tuple[str, ...]] = {}
    for share in shares:
        broker = pick(share, _members(host, share), origin, number)
        picked[broker] = (*picked.get(broker, ()), share)
    return picked


def _members(host: Distributor, share: str, without: Collection[str] = ()) -> dict[str, int]:
    """Brokers within reach that have members, or, when there are none, all that have."""
    members = dict(host.interest.members_of(share))
    own = host.announcer.members(share)
    if own:
        members[host.name] = own
    for broker in without:
        members.pop(broker, None)
    reachable = {broker: count for broker, count in members.items() if broker == host.name or broker in host.up}
    return reachable or members


def pick(share: str, members: dict[str, int], origin: str, number: int) -> str:
    """The broker whose member gets the message: by hash, so that everyone who knows the same members picks the same."""
    text = f"{share}\0{origin}\0{number}".encode()
    place = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % sum(members.values())
    for broker in sorted(members):
        place -= members[broker]
        if place < 0:
            return broker
    raise AssertionError("the place lies within the sum of the members")
