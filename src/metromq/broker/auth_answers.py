"""From an authenticator's answer, which may come later, to the decision that the protocol acts on."""

import asyncio
from collections.abc import Awaitable

from metromq.broker import logs
from metromq.broker.auth.authenticator import Accept, Continue, Decision, Refuse
from metromq.broker.write_cycle import Writer
from metromq.protocol import reasons
from metromq.protocol.session import Connection, NetworkConnection, access

PATIENCE_S = 2.0  # for questions under way to end when the broker stops

Answer = Decision | Awaitable[Decision]


class Exchange:
    """What is kept between two AUTH packets: the authenticator's state, and whose it is."""

    def __init__(self, client: str, state: object) -> None:
        self.client = client
        self.state = state


class AuthAnswers:
    """Translates answers; those that are still awaited are kept, and ended with the broker."""

    def __init__(self) -> None:
        self.awaited: set[asyncio.Future[Decision]] = set()

    def decision(self, client: str, answer: Answer) -> access.AccessDecision:
        """`client` names it in the log."""
        if isinstance(answer, Accept):
            return access.AccessDecision(0, "", answer.username or "", answer.data)
        if isinstance(answer, Refuse):
            return access.AccessDecision(answer.reason_code, answer.reason, server_reference=answer.server_reference)
        if isinstance(answer, Continue):
            more = access.AccessDecision(reasons.CONTINUE_AUTHENTICATION, "", "", answer.data)
            more.exchange = Exchange(client, answer.state)
            return more
        if not isinstance(answer, Awaitable):
            return self.failed(
                client, TypeError(f"{type(answer).__name__} is not Accept, Refuse, Continue or awaitable")
            )
        undecided = access.AccessDecision(reasons.SERVER_UNAVAILABLE, "this was not decided yet")
        undecided.later = _Question(self, client, answer)
        return undecided

    def failed(self, client: str, error: BaseException) -> access.AccessDecision:
        """The client learns that it is not its fault, the log learns what happened."""
        logs.error("the authenticator failed", client=client, problem=f"{type(error).__name__}: {error}")
        return access.AccessDecision(reasons.SERVER_UNAVAILABLE, "authentication is not available now; try again later")

    async def close(self) -> None:
        questions = list(self.awaited)
        for question in questions:
            question.cancel()
        if questions:
            await asyncio.wait(questions, timeout=PATIENCE_S)


class _Question(access.Later):
    """An answer that is awaited for one connection."""

    def __init__(self, answers: AuthAnswers, client: str, answer: Awaitable[Decision]) -> None:
        self._answers = answers
        self._client = client
        self._answer = answer
        self._connection: Connection | None = None
        self._future: asyncio.Future[Decision] | None = None

    def start(self, connection: NetworkConnection) -> None:
        assert isinstance(connection, Connection)
        self._connection = connection
        self._future = asyncio.ensure_future(self._answer)
        self._answers.awaited.add(self._future)
        self._future.add_done_callback(self._done)

    def abandoned(self, late: bool) -> None:
        self._connection = None
        if late:
            logs.error("the authenticator did not answer in time", client=self._client)
        if self._future is not None:
            self._future.cancel()

    def _done(self, future: asyncio.Future[Decision]) -> None:
        self._answers.awaited.discard(future)
        # Asked for even when nobody waits: asyncio complains of errors that nobody has looked at.
        error = asyncio.CancelledError("cancelled") if future.cancelled() else future.exception()
        connection = self._connection
        if connection is None:
            return
        owner = connection.output.owner
        assert isinstance(owner, Writer)
        owner.cycle.now()
        if error is not None:
            connection.decide(self._answers.failed(self._client, error))
        else:
            connection.decide(self._answers.decision(self._client, future.result()))
        owner.cycle.worked()
