"""The steps by which a key of the topic table changes hands, as the values of its facts say them."""

from typing import Final

from metromq.federation.coordination.facts import Fact

PREPARE: Final = "prepare"
DRAINS: Final = ("drain1", "drain2", "drain3")
STEPS: Final = (PREPARE, *DRAINS)


def phase_of(fact: Fact) -> str:
    """The step of a change; empty: the key is where it should be."""
    return fact.value.partition(" ")[0]


def candidate(fact: Fact) -> str:
    """The broker that is about to get the key; empty: nobody is. The value is the phase and that broker."""
    return fact.value.partition(" ")[2]
