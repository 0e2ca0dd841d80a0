"""The bytes of a journal: segment headers, records and their checksums.

A record is `u32 length of body, u8 kind, u16 check, u32 crc, body` (little endian). `check` covers length and kind,
`crc` covers all of it. Both start from a random number in the segment's header, so that no client can put a valid
record inside a payload and no block of an older file can pass for one of this segment.
"""

import struct
from typing import Final
from zlib import crc32

from metromq.errors import JournalError

MESSAGE: Final = 1  # the only kind that gets an offset
GAP: Final = 63  # written when damage was accepted: the next message has the offset in its body
SKIP: Final = 62  # the same, written after a power cut: no message is known to have had the offsets before it
LAST_KIND: Final = 63
MAX_BODY_BYTES: Final = 1 << 29  # the largest MQTT packet has 2^28 bytes; the rest is room for targets
HEAD_BYTES: Final = 11
GAP_BYTES: Final = HEAD_BYTES + 8

MAGIC: Final = b"MetroMQ\x00"
VERSION: Final = 1
HEADER_BYTES: Final = 32

_FRONT: Final = struct.Struct("<IB")
_BACK: Final = struct.Struct("<HI")
_HEAD: Final = struct.Struct("<IBHI")
_HEADER: Final = struct.Struct("<8sIIQI")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


def encode_record(kind: int, body: bytes, salt: int) -> bytes:
    length = len(body)
    if length > MAX_BODY_BYTES or not 0 < kind <= LAST_KIND:
        raise JournalError(f"a record of kind {kind} with {length} bytes does not fit into the journal")
    front: bytes = _FRONT.pack(length, kind)
    check = crc32(front, salt)
    back: bytes = _BACK.pack(check & 0xFFFF, crc32(body, check))
    return front + back + body


def peek_record(data: bytes, at: int, salt: int) -> int:
    """`length << 8 | kind` of the record whose head is at `at`; -1 when the head is not a valid one."""
    length, kind, check, _ = _HEAD.unpack_from(data, at)
    if crc32(data[at : at + 5], salt) & 0xFFFF != check or length > MAX_BODY_BYTES or not 0 < kind <= LAST_KIND:
        return -1
    return int(length) << 8 | int(kind)


def record_body(data: bytes, at: int, salt: int) -> bytes | None:
    """The body of the whole record at `at`; None when its checksum is wrong."""
    length, _, _, crc = _HEAD.unpack_from(data, at)
    body = data[at + HEAD_BYTES : at + HEAD_BYTES + length]
    return body if crc32(body, crc32(data[at : at + 5], salt)) == crc else None


def walk_records(data: bytes, base: int, salt: int) -> tuple[list[tuple[int, int, bytes]], int, int]:
    """Whole valid records of `data` as (base + where, kind, body); where the next one starts; the bytes that one needs.

    The last number is 0 when the bytes there can be no record, however many follow.
    """
    records: list[tuple[int, int, bytes]] = []
    at = 0
    size = len(data)
    while size - at >= HEAD_BYTES:
        length, kind, check, crc = _HEAD.unpack_from(data, at)
        head_crc = crc32(data[at : at + 5], salt)
        if head_crc & 0xFFFF != check or length > MAX_BODY_BYTES or not 0 < kind <= LAST_KIND:
            return records, at, 0
        end = at + HEAD_BYTES + length
        if end > size:
            return records, at, HEAD_BYTES + length
        body = data[at + HEAD_BYTES : end]
        if crc32(body, head_crc) != crc:
            return records, at, 0
        records.append((base + at, kind, body))
        at = end
    return records, at, HEAD_BYTES


def gather_messages(data: bytes, salt: int, skip: int, most: int, room: int) -> tuple[list[bytes], list[bytes], int]:
    """The bodies of messages at the start of `data`, after the first `skip` of them, and where the next record starts.

    At most `most`, and no more once they have `room` bytes together; none beyond a gap in the offsets. Of each the
    length too, as it is written. It is `walk_records` for those who want many bodies in a row and nothing else.
    """
    lengths: list[bytes] = []
    bodies: list[bytes] = []
    heads: dict[bytes, tuple[int, int, int, bytes]] = {}  # bodies are of few lengths: most heads were seen before
    at = 0
    taken = 0
    size = len(data)
    while size - at >= HEAD_BYTES and len(bodies) < most and taken < room:
        front = data[at : at + 7]
        head = heads.get(front)
        if head is None:
            length, kind, check, _ = _HEAD.unpack_from(data, at)
            head_crc = crc32(data[at : at + 5], salt)
            if head_crc & 0xFFFF != check or kind in (GAP, SKIP):
                break
            head = heads[front] = (length, kind, head_crc, data[at : at + 4])
        end = at + HEAD_BYTES + head[0]
        if end > size:
            break
        body = data[at + HEAD_BYTES : end]
        # Byte by byte, which is faster than `struct` where this is compiled.
        if crc32(body, head[2]) != (data[at + 7] | data[at + 8] << 8 | data[at + 9] << 16 | data[at + 10] << 24):
            break
        if head[1] == MESSAGE:
            if skip:
                skip -= 1
            else:
                lengths.append(head[3])
                bodies.append(body)
                taken += head[0]
        at = end
    return lengths, bodies, at


def find_record(data: bytes, start: int, salt: int) -> int:
    """Where the first whole valid record at or after `start` begins, at any byte; -1 when there is none.

    This is what tells a torn tail from damage: after a torn write nothing valid follows.
    """
    size = len(data.rstrip(b"\x00"))  # a record never starts in a run of zeros: its kind is not zero
    whole = len(data)
    top = whole >> 24
    at = start
    last = min(size, whole - HEAD_BYTES + 1)
    while at < last:
        if data[at + 3] <= top and 0 < data[at + 4] <= LAST_KIND:
            head = peek_record(data, at, salt)
            if head >= 0 and at + HEAD_BYTES + (head >> 8) <= whole and record_body(data, at, salt) is not None:
                return at
        at += 1
    return -1


def encode_header(number: int, base: int, salt: int) -> bytes:
    header: bytes = _HEADER.pack(MAGIC, VERSION, number, base, salt)
    crc: bytes = _U32.pack(crc32(header))
    return header + crc


def decode_header(data: bytes) -> tuple[int, int, int]:
    """(number, base offset, salt); JournalError says why a header is none of ours."""
    if len(data) < HEADER_BYTES:
        raise JournalError(f"the header has {len(data)} of {HEADER_BYTES} bytes")
    magic, version, number, base, salt = _HEADER.unpack_from(data, 0)
    if magic != MAGIC:
        raise JournalError("the header does not start with the journal's magic bytes")
    if crc32(data[: HEADER_BYTES - 4]) != _U32.unpack_from(data, HEADER_BYTES - 4)[0]:
        raise JournalError("the header's checksum is wrong")
    if version != VERSION:
        raise JournalError(f"the header has version {version}, this program reads version {VERSION}")
    return int(number), int(base), int(salt)


def encode_gap(next_offset: int, salt: int, kind: int = GAP) -> bytes:
    body: bytes = _U64.pack(next_offset)
    return encode_record(kind, body, salt)


def decode_gap(body: bytes) -> int:
    return int(_U64.unpack_from(body, 0)[0])
