"""The queue between a client's connection and the application that iterates over its messages."""

import asyncio
from collections import deque
from collections.abc import Callable

from metromq.client.core.messages import Message
from metromq.errors import MqttError


class Messages:
    """The messages of a client, in order: `async for message in client.messages`."""

    def __init__(self, taken: Callable[[Message], None]) -> None:
        self._taken = taken
        self._queue: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = True
        self._error: MqttError | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> "Messages":
        return self

    async def __anext__(self) -> Message:
        """The next message; raises ConnectionLost when the connection was lost, stops when we ended it."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake()  # a message came for someone who left: the next one gets it
                raise
        return self._take()

    def take_nowait(self) -> Message | None:
        """The next message if there is one."""
        return self._take() if self._queue else None

    def begin(self) -> None:
        self._ended = False
        self._error = None

    def put(self, message: Message) -> None:
        self._queue.append(message)
        self._wake()

    def end(self, error: MqttError | None) -> None:
        self._ended = True
        self._error = error
        while self._waiting:
            self._wake()

    def _take(self) -> Message:
        message = self._queue.popleft()
        self._taken(message)
        if self._queue:
            self._wake()
        return message

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
