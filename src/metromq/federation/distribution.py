"""From a router's suggestion to copies: one per interested peer, and one member for each shared subscription."""

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol

from metromq.federation.announcer import Announcer
from metromq.federation.hop import Hop
from metromq.federation.interest import PeerInterest
from metromq.federation.routing.router import Audience, Onward, Router
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

    def size_bytes(self) -> int:
        """What it takes in memory, roughly: hops, and the names of shared subscriptions, which may be long."""
        names = [*self.shares, *(name for hop in self.hops for name in (*hop.shares, *hop.shares_done))]
        return 300 * len(self.hops) + sum(100 + len(name) for name in names)


NOWHERE: Final = Distribution(())


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


class Distributor(Protocol):
    """What distribution needs to know of a node."""

    name: str
    peers: tuple[str, ...]
    up: set[str]
    router: Router
    interest: PeerInterest
    announcer: Announcer


def distribute(host: Distributor, arrival: Arrival) -> tuple[Distribution, bool]:
    """Where the message goes, and whether it is the same for every message of the topic."""
    suggestion = host.router.decide(arrival.topic, arrival.stage, arrival.origin)
    shares = [share for share in shares_for(host, arrival.topic) if share not in arrival.shares_done]
    onward, looped = _allowed(host, arrival, suggestion.onward)
    serves = suggestion.audience is not Audience.NOBODY
    if not serves:
        hops, own = _pass_on(host, arrival, onward, shares)
    else:
        everyone = suggestion.audience is Audience.EVERYONE
        peers = host.peers if everyone else host.interest.peers_for(arrival.topic)
        hops, own = _serve(host, arrival, onward, peers, shares)
    if arrival.limit < 1:
        looped += [hop.peer for hop in hops]
        hops = []
    return Distribution(tuple(hops), own, tuple(looped), serves), not shares


def _allowed(host: Distributor, arrival: Arrival, onward: tuple[Onward, ...]) -> tuple[list[Onward], list[str]]:
    """A relay is left out where the message has been; what would turn back to an earlier stage is dropped."""
    if not onward:
        return [], []
    have = {host.name, arrival.origin, *arrival.served}
    fresh = [item for item in onward if item.peer not in have or (item.stage != RELAY and item.peer != host.name)]
    allowed = [item for item in fresh if may_follow(arrival.stage, item.stage)]
    return allowed, [item.peer for item in fresh if not may_follow(arrival.stage, item.stage)]


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
    hops = [Hop(peer, FINAL, check, (), picked.pop(peer, ()), limit=limit) for peer in final]
    own_shares = picked.pop(host.name, ())
    if onward:
        names = tuple(dict.fromkeys((host.name, origin, *served, *final)))
        done = (*arrival.shares_done, *shares)
        for item in onward:
            known = names + _other_relays(onward, item)
            hops.append(Hop(item.peer, item.stage, check, known, picked.pop(item.peer, ()), done, limit=limit))
    # A broker that has the message already, or does not want it otherwise, may still hold the chosen member.
    hops += [Hop(peer, FINAL, check, (peer,), chosen, limit=limit) for peer, chosen in picked.items()]
    return hops, own_shares


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
    gets the message back, once.
    """
    chosen: dict[str, tuple[str, ...]] = {}
    returned: tuple[str, ...] = ()
    for share in shares if arrival.limit > 0 else ():
        members = {peer: count for peer, count in _members(host, share).items() if peer != host.name}
        if members:
            broker = pick(share, members, arrival.origin, arrival.number)
            chosen[broker] = (*chosen.get(broker, ()), share)
        elif sender in host.router.announce_to(share) and sender not in arrival.served:
            returned = (*returned, share)
    limit = arrival.limit - 1
    hops = [Hop(peer, FINAL, True, (peer,), picked, limit=limit, passed=True) for peer, picked in chosen.items()]
    if returned:
        hops.append(Hop(sender, FINAL, True, (sender, host.name), returned, limit=limit, passed=True))
    return tuple(hops)


def shares_for(host: Distributor, topic: str) -> list[str]:
    """The shared subscriptions that this broker knows of and that match."""
    return list(dict.fromkeys((*host.announcer.shares_for(topic), *host.interest.shares_for(topic))))


def _pick_all(host: Distributor, shares: list[str], origin: str, number: int) -> dict[str, tuple[str, ...]]:
    picked: dict[str, tuple[str, ...]] = {}
    for share in shares:
        broker = pick(share, _members(host, share), origin, number)
        picked[broker] = (*picked.get(broker, ()), share)
    return picked


def _members(host: Distributor, share: str) -> dict[str, int]:
    """Brokers within reach that have members, or, when there are none, all that have."""
    members = dict(host.interest.members_of(share))
    own = host.announcer.members(share)
    if own:
        members[host.name] = own
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
