"""Who decided where a filter is: a person, a service's entry, or the loop. What a person decided only people change.

A decision stands until the next one, also while its broker is away. It is handed back by returning the filter: then
nobody has decided, and the manager may.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metromq.protocol.topics import narrowest

PERSON: Final = "person"
SERVICE: Final = "service"
LOOP: Final = "loop"


@dataclass(frozen=True, slots=True)
class Decision:
    """`by` is "person NAME", "service NAME" or "loop"; "person": somebody, without the manager."""

    broker: str  # empty: the central one
    by: str


def by_person(name: str) -> str:
    return f"{PERSON} {name}"


def by_service(name: str) -> str:
    return f"{SERVICE} {name}"


def is_persons(by: str) -> bool:
    return by.split(" ", 1)[0] == PERSON


def is_services(by: str) -> bool:
    return by.split(" ", 1)[0] == SERVICE


def decided_by(by: str) -> str:
    """As people read it."""
    kind, _, name = by.partition(" ")
    if kind == PERSON:
        return f"delegated by {name}" if name else "delegated by somebody without the manager"
    return f"delegated for service {name}" if kind == SERVICE else "delegated by the loop"


def stands(known: Decision | None, broker: str, central: str) -> Decision | None:
    """What is decided on a filter whose own entry says `broker` (empty: it has none). One that is elsewhere than the
    manager knows was delegated by somebody who did not ask it."""
    if not broker or (known is not None and (known.broker or central) == broker):
        return known
    return Decision(broker, PERSON)


def standing(decisions: Mapping[str, Decision], delegations: Mapping[str, str], central: str) -> dict[str, Decision]:
    """The same for all filters."""
    names = dict.fromkeys((*decisions, *delegations))
    found = ((one, stands(decisions.get(one), delegations.get(one, ""), central)) for one in names)
    return {one: decision for one, decision in found if decision is not None}


def overruled(now: Decision | None, before: Decision | None) -> bool:
    """Whether a person has decided since a plan was made that meant to change what was decided then."""
    return now is not None and is_persons(now.by) and now != before


def holder(topic_filter: str, delegations: Mapping[str, str], central: str) -> str:
    """Who is responsible for a filter: it need not have an entry of its own, if the owner of a wider one is."""
    name = narrowest(topic_filter, delegations)
    return delegations[name] if name is not None else central


def fallen(decisions: Mapping[str, Decision], delegations: Mapping[str, str], central: str) -> dict[str, str]:
    """Filters that are not where it was decided, because their broker was lost or a wider one took them along."""
    return {
        one: decision.broker or central
        for one, decision in decisions.items()
        if one not in delegations and holder(one, delegations, central) != (decision.broker or central)
    }
