"""Twenty thousand mutated packets through the whole broker, and proof that the fuzzer sees a broker that misbehaves."""

import random

import pytest
from fuzz import packets
from fuzz.corpus import MUTATIONS, VERSIONS, connects, mutate
from fuzz.packets import Found, TwoSteps, run

from metromq.protocol.session.access import AccessDecision, Peer
from metromq.protocol.session.session import Session


def test_mutated_packets_do_no_harm() -> None:
    report = run(20_000, seed=2)
    for kind in ("closed", "Connack", "Publish", "Disconnect", "Ack", "Suback", "Unsuback", "Auth", "Pingresp"):
        assert report.outcomes[kind] > 20, f"the fuzzer hardly reaches {kind}: {report.outcomes}"


class Raises(TwoSteps):
    def may_publish(self, session: Session, topic: str) -> bool:
        raise KeyError(topic)

    def unrestricted(self, session: Session) -> bool:
        return session.client_id.startswith("witness")


class Deaf(TwoSteps):
    """Lets the witnesses in for a while only."""

    calls = 0

    def connect(
        self, peer: Peer, client_id: str, username: str | None, password: bytes | None, method: str | None, data: bytes
    ) -> AccessDecision:
        self.calls += 1
        return (
            super().connect(peer, client_id, username, password, method, data)
            if self.calls > 4
            else AccessDecision(0x87)
        )


@pytest.mark.parametrize("broken", [Raises, Deaf])
def test_a_broker_that_misbehaves_is_found(broken: type[TwoSteps], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "TwoSteps", broken)
    with pytest.raises(Found, match="repeat with --seed"):
        run(2000, seed=3)


def test_runs_repeat() -> None:
    assert run(300, seed=5) == run(300, seed=5)


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_every_mutation_changes_something(number: int) -> None:
    chosen = random.Random(number)
    choices = [packet for version in VERSIONS for packet in connects(version)]
    results = [MUTATIONS[number](chosen, packet, choices) for packet in choices]
    assert all(results)
    assert results != choices


def test_most_mutations_keep_the_length_true() -> None:
    chosen = random.Random(1)
    choices = connects(5)
    whole = 0
    for _ in range(400):
        data = mutate(chosen, choices[0], choices)
        whole += len(data) >= 2 and data[1] < 128 and data[1] == len(data) - 2
    assert whole > 200
