"""What people and programs see of delegations."""

from dataclasses import dataclass

from metromq.federation.coordination.facts import FILTER, Book
from metromq.federation.coordination.steps import candidate, phase_of


@dataclass(frozen=True, slots=True)
class Delegation:
    """`phase` and `to` are empty unless the filter is changing hands."""

    filter: str
    broker: str
    epoch: int
    phase: str = ""
    to: str = ""


def delegations_of(book: Book) -> tuple[Delegation, ...]:
    facts = sorted((fact for fact in book.of_kind(FILTER) if fact.owner), key=lambda fact: fact.key)
    return tuple(Delegation(fact.key, fact.owner, fact.epoch, phase_of(fact), candidate(fact)) for fact in facts)
