"""From a router's suggestion to copies: one per interested peer, and one member for each shared subscription."""

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol

from metromq.federation.announcer import Announcer
from metromq.federation.interest import PeerInterest
from metromq.federation.routing.router import Audience, Router
from metromq.federation.stages import CLIENT, FINAL, HANDOVER, NAMES, OWNER


@dataclass(frozen=True, slots=True)
class Hop:
    """One copy for one peer."""

    peer: str
    stage: int
    check: bool = False  # the copy may reach the receiver by another way too: mark it CHECK
    served: tuple[str, ...] = ()
    shares: tuple[str, ...] = ()  # shared subscriptions that the peer must serve
    shares_done: tuple[str, ...] = ()
    durable_only: bool = False  # not at QoS 0, whose copies carry no number by which a second one is recognised

    @property
    def stage_name(self) -> str:
        return NAMES[self.stage]


@dataclass(frozen=True, slots=True)
class Route:
    """Copies for peers, and the shared subscriptions that this broker itself must serve."""

    hops: tuple[Hop, ...]
    shares: tuple[str, ...] = ()


EMPTY_ROUTE: Final = Route(())


class Host(Protocol):
    """What distribution needs to know of a node."""

    name: str
    peers: tuple[str, ...]
    up: set[str]
    router: Router
    interest: PeerInterest
    announcer: Announcer


def distribute(
    host: Host,
    topic: str,
    stage: int,
    origin: str,
    number: int,
    served: tuple[str, ...],
    shares_done: tuple[str, ...],
    check: bool,
) -> tuple[Route, bool]:
    """The route, and whether it is the same for every message of the topic."""
    decision = host.router.decide(topic, stage)
    check = check or stage == HANDOVER
    shares = [share for share in _shares(host, topic) if share not in shares_done]
    if decision.audience is Audience.NOBODY:
        return _pass_on(host, decision.onward, origin, served, shares, shares_done, check, stage)
    peers = host.peers if decision.audience is Audience.EVERYONE else host.interest.peers_for(topic)
    onward = dict(decision.onward)
    have = {host.name, origin, *served}
    final = [peer for peer in peers if peer not in have and peer not in onward]
    picked = _pick_all(host, shares, origin, number)
    hops = [Hop(peer, FINAL, check, (), picked.pop(peer, ())) for peer in final]
    own_shares = picked.pop(host.name, ())
    for peer, next_stage in onward.items():
        names = tuple(dict.fromkeys((host.name, origin, *served, *final)))
        done = (*shares_done, *shares)
        hops.append(Hop(peer, next_stage, check, names, picked.pop(peer, ()), done))
    # A broker that has the message already, or does not want it otherwise, may still hold the chosen member.
    hops += [Hop(peer, FINAL, check, (peer,), chosen) for peer, chosen in picked.items()]
    return Route(tuple(hops), own_shares), not shares


def _pass_on(
    host: Host,
    onward: tuple[tuple[str, int], ...],
    origin: str,
    served: tuple[str, ...],
    shares: list[str],
    shares_done: tuple[str, ...],
    check: bool,
    stage: int,
) -> tuple[Route, bool]:
    """Someone else distributes. While it is out of reach, our own members need not wait for its choice."""
    own: tuple[str, ...] = ()
    if stage == CLIENT and onward and not any(peer in host.up for peer, _ in onward):
        own = tuple(share for share in shares if host.announcer.members(share))
    names = tuple(dict.fromkeys((*served, host.name, origin))) if stage > CLIENT else ()
    done = shares_done + own
    check = check or stage >= OWNER
    hops = tuple(
        Hop(peer, next_stage, check, names, (), done, durable_only=place > 0)
        for place, (peer, next_stage) in enumerate(onward)
    )
    return Route(hops, own), not shares


def _shares(host: Host, topic: str) -> list[str]:
    return list(dict.fromkeys((*host.announcer.shares_for(topic), *host.interest.shares_for(topic))))


def _pick_all(host: Host, shares: list[str], origin: str, number: int) -> dict[str, tuple[str, ...]]:
    picked: dict[str, tuple[str, ...]] = {}
    for share in shares:
        broker = pick(share, _members(host, share), origin, number)
        picked[broker] = (*picked.get(broker, ()), share)
    return picked


def _members(host: Host, share: str) -> dict[str, int]:
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
