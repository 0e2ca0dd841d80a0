"""What the broker and its replay process say to each other, over a pair of pipes.

A note is: length of the rest, kind, number of the job, body. The broker opens jobs and gives them leave to go on; the
process sends what clients are to get, and asks for the moment at which a replay becomes live.
"""

import asyncio
import struct
from typing import Final

# The broker says:
SETUP: Final = 0  # what the process needs to know, as JSON; the first note
FETCH: Final = 1  # a request, as JSON
STREAM: Final = 2  # a replay for a client, as JSON
GO_ON: Final = 3  # the client took what was sent: some more
STOP: Final = 4  # the client is gone
SWITCHED: Final = 5  # live messages wait from now on; the journal's next offset, as JSON
# The process says:
ANSWER: Final = 6  # to a FETCH
PACKETS: Final = 7  # MQTT packets for the client
SWITCH: Final = 8  # nearly everything has been sent: let live messages wait
LIVE: Final = 9  # everything has been sent: let them go, as JSON says
FAILED: Final = 10  # a replay cannot go on; why

_HEAD: Final = struct.Struct("<IBI")


def note(kind: int, job: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) + 5, kind, job) + body


async def read_note(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Kind, job and body; IncompleteReadError when the other side is gone."""
    size, kind, job = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return kind, job, await reader.readexactly(size - 5)
