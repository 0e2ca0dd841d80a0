"""One at a time on a lake. On a path the system's lock does it; on an object store a lease, which its holder renews.

The lease is a Delta table without rows: a commit to it is a conditional put, so that of two who try one succeeds, on
every store that has tables. It keeps people from starting two runs. That rows come only once does not hang on it:
a holder that slept through its lease is told so by its next commit to `messages` (see `Ingest`).
"""

import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import CommitProperties, Transaction

from metromq.errors import LakeConflict, UsageError
from metromq.pipeline.store import Store

LEASE_SECONDS: Final = 15.0  # a lease that was not renewed for so long is free
RENEW_SECONDS: Final = 3.0
_APPLICATION: Final = "metromq-lease"
_SCHEMA: Final = pa.schema([("holder", pa.string())])
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}

Held = Callable[[], None]  # raises LakeConflict when the lease is no longer ours


@contextmanager
def held(store: Store, name: str, what: str) -> Iterator[Held]:
    """The lock `name` of a store, or UsageError: `what` is at work there already."""
    holder = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "run": uuid.uuid4().hex[:8]})
    with (_locked if store.local else _leased)(store, name, what, holder) as still:
        yield still


@contextmanager
def _locked(store: Store, name: str, what: str, holder: str) -> Iterator[Held]:
    folder = Path(store.root.removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _refused(store, what, file.read().strip()) from None
        file.truncate(0)
        file.write(holder)
        file.flush()
        try:
            yield lambda: None
        finally:
            file.truncate(0)


@contextmanager
def _leased(store: Store, name: str, what: str, holder: str) -> Iterator[Held]:
    lease = Lease(store, name, holder)
    other = lease.take()
    if other:
        raise _refused(store, what, other)
    lease.start()
    try:
        yield lease.check
    finally:
        lease.release()


def _refused(store: Store, what: str, holder: str) -> UsageError:
    return UsageError(f"another `{what}` is working on {store.root} ({holder}); stop it first")


class Lease(Thread):
    """A lease on an object store: taken, then renewed by a thread of its own until it is released or lost."""

    def __init__(self, store: Store, name: str, holder: str, sleep: Callable[[float], object] = time.sleep) -> None:
        super().__init__(name="metromq-lease", daemon=True)
        self._store = store
        self._holder = holder
        self._sleep = sleep
        self._address = store.at(f"{name}.lease")
        self._end = Event()
        self._lost: str | None = None
        self._table = self._open()
        self._turn = -1

    def _open(self) -> DeltaTable:
        options = self._store.delta_options
        try:
            return DeltaTable(self._address, storage_options=options)
        except TableNotFoundError:
            made: dict[str, Any] = {"mode": "ignore", "configuration": _CONFIGURATION, "storage_options": options}
            return DeltaTable.create(self._address, _SCHEMA, **made)

    def take(self) -> str:
        """Empty, if it is ours now; else who has it. One whose holder has died is waited for."""
        turn, holder = self._look()
        waited = 0.0
        while holder and waited < LEASE_SECONDS:
            self._sleep(RENEW_SECONDS / 2)
            waited += RENEW_SECONDS / 2
            before, (turn, holder) = turn, self._look()
            if turn != before and holder:
                return holder
        return "" if self._commit(turn, self._holder) else self._look()[1]

    def _look(self) -> tuple[int, str]:
        """How often it was taken or renewed, and by whom at last; empty: it is free."""
        self._table.update_incremental()
        turn = self._table.transaction_version(_APPLICATION)
        if turn is None:
            return -1, ""
        return int(turn), str(self._table.history(1)[0].get("holder", ""))

    def _commit(self, seen: int, holder: str) -> bool:
        """Whether nobody else did since `seen`."""
        if self._look()[0] != seen:
            return False
        transactions = [Transaction(_APPLICATION, seen + 1)]
        properties = CommitProperties({"holder": holder}, max_commit_retries=0, app_transactions=transactions)
        try:
            self._table.create_write_transaction([], "append", _SCHEMA, [], commit_properties=properties)
        except CommitFailedError:
            return False
        self._turn = seen + 1
        return True

    def run(self) -> None:
        renewed = time.monotonic()
        while not self._end.wait(RENEW_SECONDS):
            try:
                if not self._commit(self._turn, self._holder) and not self._was_ours():
                    self._lost = f"another run took over {self._store.root} meanwhile"
                    return
                renewed = time.monotonic()
            except OSError as error:
                if time.monotonic() - renewed > LEASE_SECONDS:
                    self._lost = f"{self._store.root} cannot be reached: {str(error).splitlines()[0]}"
                    return

    def _was_ours(self) -> bool:
        """The commit came through, only its answer did not."""
        turn, holder = self._look()
        if holder != self._holder:
            return False
        self._turn = turn
        return True

    def check(self) -> None:
        if self._lost is not None:
            raise LakeConflict(f"{self._lost}; this one ends")

    def release(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()
        if self._lost is None:
            self._commit(self._turn, "")
