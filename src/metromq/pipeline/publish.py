"""Rows to MQTT messages: published by a client of our own, and acknowledged, before a batch may commit."""

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from metromq.client import Client
from metromq.errors import MqttError, UsageError
from metromq.pipeline.option_values import truth, whole_number

_COLUMNS: Final = {"topic", "payload", "qos", "retain"}


@dataclass(frozen=True, slots=True)
class Sink:
    """Where and how to publish."""

    host: str
    port: int
    username: str | None
    password: str | None
    qos: int
    max_inflight: int
    tls: bool = False
    cafile: str | None = None  # whom to trust; None: whom the system trusts

    @classmethod
    def from_options(cls, options: dict[str, str]) -> "Sink":
        given = {key.lower(): value for key, value in options.items()}
        tls = truth(given, "tls", "cafile" in given)
        if given.get("qos", "1") not in ("1", "2"):
            raise UsageError(f"qos must be 1 or 2, not {given['qos']}: a batch commits only what was acknowledged")
        return cls(
            given.get("host", "localhost"),
            whole_number(given, "port", 8883 if tls else 1883, most=65535),
            given.get("username"),
            given.get("password"),
            int(given.get("qos", "1")),
            whole_number({"maxInflight": given.get("maxinflight", "1000")}, "maxInflight", 1000),
            tls,
            given.get("cafile"),
        )

    def context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.cafile) if self.tls else None

    def check(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not {"topic", "payload"} <= set(columns) or not set(columns) <= _COLUMNS:
            raise UsageError(
                "rows to publish have the columns topic and payload, and may have qos and retain;"
                f" these have {', '.join(columns)}"
            )
        return columns


def publish_rows(sink: Sink, columns: tuple[str, ...], rows: Iterator[Any]) -> int:
    """Publish every row and wait for every acknowledgement; how many."""
    return asyncio.run(_publish(sink, columns, rows))


async def _publish(sink: Sink, columns: tuple[str, ...], rows: Iterator[Any]) -> int:
    count = 0
    waiting: set[asyncio.Task[None]] = set()
    password = sink.password.encode() if sink.password is not None else None
    client = Client(
        sink.host,
        sink.port,
        username=sink.username,
        password=password,
        tls=sink.context(),
        max_inflight=sink.max_inflight,
    )
    async with client:
        for row in rows:
            waiting.add(asyncio.ensure_future(_publish_row(client, sink.qos, dict(zip(columns, row, strict=True)))))
            count += 1
            if len(waiting) >= sink.max_inflight:
                waiting = await _settle(waiting, asyncio.FIRST_COMPLETED)
        await _settle(waiting, asyncio.ALL_COMPLETED)
    return count


async def _settle(waiting: set[asyncio.Task[None]], when: str) -> set[asyncio.Task[None]]:
    if not waiting:
        return waiting
    done, rest = await asyncio.wait(waiting, return_when=when)
    for task in done:
        task.result()
    return rest


async def _publish_row(client: Client, qos: int, row: dict[str, Any]) -> None:
    payload = row["payload"]
    data = payload.encode() if isinstance(payload, str) else bytes(payload or b"")
    if row["topic"] is None:
        raise UsageError("a row to publish has no topic")
    try:
        await client.publish(row["topic"], data, qos=row.get("qos") or qos, retain=bool(row.get("retain")))
    except MqttError as error:
        raise UsageError(f"the broker did not accept a message to {row['topic']}: {error}") from error
