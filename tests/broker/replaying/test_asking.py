"""Peers that are asked for their journals: those that have no time are not away, those that do not answer are."""

import asyncio
from collections.abc import Sequence

import pytest

from metromq.broker.replaying import asking
from metromq.broker.replaying.merging import BrokerAway
from metromq.client import Fetcher
from metromq.errors import ConnectionLost
from metromq.protocol.replay import BUSY, FetchAnswer, FetchRequest, failed

SETUP = {"name": "b1", "peers": {"b2": ("127.0.0.1", 1)}, "secret": "", "journal_id": "j", "tls": None}


class Line(Fetcher):
    """Gives these answers, one for each request; None: the connection is lost."""

    def __init__(self, answers: Sequence[FetchAnswer | None]) -> None:
        self._answers = list(answers)

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        answer = self._answers.pop(0)
        if answer is None:
            raise ConnectionLost("lost")
        return answer

    async def close(self) -> None:
        pass


class Peers(asking.Peers):
    def __init__(self, answers: Sequence[FetchAnswer | None]) -> None:
        super().__init__(SETUP)
        self._line = Line(answers)

    async def _fetcher(self, peer: str) -> Fetcher:
        return self._line


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr(asyncio, "sleep", sleep)


def test_one_that_has_no_time_is_asked_again() -> None:
    busy = failed(BUSY, "too many requests")
    answer = asyncio.run(Peers([*[busy] * 20, None, busy, FetchAnswer("b2", "j")]).ask("b2", FetchRequest()))
    assert (answer.code, answer.broker) == ("", "b2")


def test_one_that_never_has_time_says_so() -> None:
    busy = failed(BUSY, "too many requests")
    assert asyncio.run(Peers([busy] * 1000).ask("b2", FetchRequest())).error == "too many requests"


def test_one_that_is_lost_again_and_again_is_away() -> None:
    with pytest.raises(BrokerAway, match="b2 cannot be reached"):
        asyncio.run(Peers([None] * 10).ask("b2", FetchRequest()))
