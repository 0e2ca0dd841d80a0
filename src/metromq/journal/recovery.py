"""What happens before a journal is written to again: cut a torn tail, find damage, step over damage if accepted."""

import os
import secrets
import shutil
from pathlib import Path
from typing import final

from metromq.errors import JournalDamaged, JournalError
from metromq.files import UNFINISHED, replace_file, replacing, sync_directory
from metromq.journal.codec import (
    GAP_BYTES,
    HEAD_BYTES,
    HEADER_BYTES,
    SKIP,
    encode_gap,
    encode_header,
    find_record,
)
from metromq.journal.index import remove_index
from metromq.journal.segment import Segment, list_segments, open_segment, segment_name
from metromq.journal.snapshot import Position, list_snapshots, read_snapshot


@final
class Recovered:
    """A directory whose files are whole: what the journal starts from."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.snapshot: Position | None = None
        self.state: bytes | None = None
        self.snapshot_numbers: list[int] = []  # segments that kept snapshots point into, newest first
        self.damage: list[str] = []
        self.cut_bytes = 0

    def replay_from(self) -> Position:
        """Where replay starts: at the snapshot, or after the gap that took the snapshot's place in its segment."""
        start, first = self.snapshot, self.segments[0]
        if start is None or start.number < first.number:
            return Position(first.number, HEADER_BYTES, first.base)
        segment = self.segments[start.number - first.number]
        if segment.resume >= 0 and start.byte > segment.size - GAP_BYTES:
            return Position(segment.number + 1, HEADER_BYTES, segment.resume)
        return start


def recover(directory: Path, accept_damage: bool) -> Recovered:
    found = Recovered()
    for leftover in directory.glob(f"*{UNFINISHED}"):
        leftover.unlink()
    _load_snapshot(directory, found)
    names = list_segments(directory)
    if names:
        _drop_unborn_segment(directory, names, found)
        _check_first(directory, names, found, accept_damage)
    for index, (number, base, name) in enumerate(names):
        following = names[index + 1] if index + 1 < len(names) else None
        segment = _load_segment(directory, number, base, name, following, found, accept_damage)
        found.segments.append(segment)
        must_walk = accept_damage or found.snapshot is None or number >= found.snapshot.number
        if must_walk or following is None:
            _check_records(segment, following, found, accept_damage)
            segment.close()
        if following is not None and following[0] != number + 1:
            _check_missing(directory, segment, following, found, accept_damage)
    _check_end(directory, found, accept_damage)
    return found


def create_segment(directory: Path, number: int, base: int, gap_to: int = -1) -> Segment:
    """It appears with its header, never without."""
    salt = secrets.randbits(32)
    data = encode_header(number, base, salt)
    if gap_to >= 0:
        data += encode_gap(gap_to, salt)
    path = directory / segment_name(number, base)
    replace_file(path, data, durable=False)  # nothing in it counts before its records are synced
    segment = Segment(str(path), number, base, salt)
    segment.size = len(data)
    segment.walked = len(data)
    segment.resume = gap_to
    return segment


def skip(segment: Segment, resume: int) -> None:
    """Leave out the offsets before `resume`: a power cut may have lost them after they were given out."""
    remove_index(segment)
    fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, encode_gap(resume, segment.salt, SKIP), segment.size)
        os.fsync(fd)
    finally:
        os.close(fd)
    segment.size += GAP_BYTES
    segment.walked = segment.size
    segment.resume = resume
    segment.skipped = True


def _load_snapshot(directory: Path, found: Recovered) -> None:
    candidates = list_snapshots(directory)
    for number, _, name in candidates:
        snapshot = read_snapshot(directory / name)
        if snapshot is None:
            found.damage.append(f"snapshot {directory / name} is damaged; an older one or the whole journal is used")
            continue
        found.snapshot_numbers.append(number)
        if found.snapshot is None:
            found.snapshot, found.state = snapshot


def _drop_unborn_segment(directory: Path, names: list[tuple[int, int, str]], found: Recovered) -> None:
    """After a power cut the newest segment can exist with none of its bytes: nothing in it was ever durable."""
    number, _, name = names[-1]
    path = directory / name
    with open(path, "rb") as file:
        if len(names) == 1 or file.read(HEADER_BYTES).strip(b"\x00") or file.read().strip(b"\x00"):
            return
    if found.snapshot is None or found.snapshot.number < number:
        found.cut_bytes += path.stat().st_size
        path.unlink()
        names.pop()


def _check_first(directory: Path, names: list[tuple[int, int, str]], found: Recovered, accept: bool) -> None:
    """Retention removes the oldest segments, but only those that a snapshot stands for."""
    number, base, name = names[0]
    needed = 1 if found.snapshot is None else found.snapshot.number
    if number <= needed or _is_only_gap(directory, number, base, name):
        return
    what = "and no whole snapshot stands for them" if found.snapshot is None else "though the snapshot needs them"
    problem = f"segments {needed} to {number - 1} before it are missing {what}; offsets before {base} are lost"
    _report(JournalDamaged(str(directory / name), 0, problem), found, accept)
    marker = create_segment(directory, number - 1, base, base)  # says to the next start that this was accepted
    sync_directory(directory)
    names.insert(0, (marker.number, base, marker.name))


def _is_only_gap(directory: Path, number: int, base: int, name: str) -> bool:
    if (directory / name).stat().st_size != HEADER_BYTES + GAP_BYTES:
        return False
    try:
        segment = open_segment(directory, number, base, name)
    except JournalDamaged:
        return False
    segment.follow(segment.size)
    segment.close()
    return segment.resume >= 0


def _load_segment(
    directory: Path,
    number: int,
    base: int,
    name: str,
    following: tuple[int, int, str] | None,
    found: Recovered,
    accept: bool,
) -> Segment:
    try:
        return open_segment(directory, number, base, name)
    except JournalDamaged as error:
        size = (directory / name).stat().st_size
        resume = following[1] if following else base + size // HEAD_BYTES + 1
        error = JournalDamaged(error.segment, 0, f"{error.problem}; offsets {base} to {resume - 1} are lost")
        _report(error, found, accept)
        _copy_aside(directory / name)
        segment = create_segment(directory, number, base, resume)
        sync_directory(directory)
        return segment


def _check_records(segment: Segment, following: tuple[int, int, str] | None, found: Recovered, accept: bool) -> None:
    size = segment.file_size()
    stop = segment.follow(size)
    segment.size = stop
    if stop == size:
        if following is None or following[0] != segment.number + 1 or segment.end_offset == following[1]:
            return
        problem = f"records are missing at its end; offsets {segment.end_offset} to {following[1] - 1} are lost"
        _report(JournalDamaged(segment.path, stop, problem), found, accept)
        _close_gap(segment, following[1])
        return
    tail = os.pread(segment.handle(), size - stop, stop)
    after = find_record(tail, 1, segment.salt)
    snapshot = found.snapshot
    in_snapshot = snapshot is not None and (segment.number, stop) < (snapshot.number, snapshot.byte)
    if following is None and after < 0 and not in_snapshot:
        os.truncate(segment.path, stop)
        found.cut_bytes += size - stop
        return
    resume = following[1] if following else segment.end_offset + len(tail) // HEAD_BYTES + 1
    if following is None and snapshot is not None:
        resume = max(resume, snapshot.next_offset)
    more = "newer segments follow" if following else "a snapshot stands for more"
    if after >= 0:
        more = f"whole records follow at byte {stop + after}"
    problem = f"no valid record, but {more}; offsets {segment.end_offset} to {resume - 1} are lost"
    if resume == segment.end_offset:
        problem = f"no valid record, but {more}; no message is lost, but changes of sessions may be"
    _report(JournalDamaged(segment.path, stop, problem), found, accept)
    _close_gap(segment, resume)


def _check_missing(
    directory: Path, segment: Segment, following: tuple[int, int, str], found: Recovered, accept: bool
) -> None:
    first, last = segment.number + 1, following[0] - 1
    start = segment.end_offset if segment.walked == segment.size else -1
    lost = f"offsets {start} to {following[1] - 1}" if start >= 0 else f"offsets up to {following[1] - 1}"
    problem = f"segments {first} to {last} after it are missing; {lost} are lost"
    _report(JournalDamaged(segment.path, segment.size, problem), found, accept)
    base = segment.end_offset
    for number in range(first, last + 1):
        found.segments.append(create_segment(directory, number, base, following[1]))
        base = following[1]
    sync_directory(directory)


def _check_end(directory: Path, found: Recovered, accept: bool) -> None:
    """The snapshot was written after its records were synced: a journal that ends before it has lost some."""
    snapshot = found.snapshot
    if snapshot is None:
        return
    last = found.segments[-1] if found.segments else None
    if last is not None and (
        last.number > snapshot.number
        or (last.number == snapshot.number and (last.size >= snapshot.byte or last.resume >= snapshot.next_offset))
    ):
        return
    end = last.end_offset if last is not None else 0
    path = last.path if last is not None else str(directory)
    problem = (
        f"the journal ends before its snapshot (segment {snapshot.number}, byte {snapshot.byte}); "
        f"offsets {end} to {snapshot.next_offset - 1} are lost"
    )
    _report(JournalDamaged(path, last.size if last is not None else 0, problem), found, accept)
    if last is None:
        base = snapshot.next_offset
        found.segments.append(create_segment(directory, snapshot.number, base, base))
    else:
        base = max(end, snapshot.next_offset)
        _close_gap(last, base)
        for number in range(last.number + 1, snapshot.number + 1):
            found.segments.append(create_segment(directory, number, base, base))
    sync_directory(directory)


def _report(error: JournalDamaged, found: Recovered, accept: bool) -> None:
    if not accept:
        raise error
    found.damage.append(f"{error} (accepted)")


def _close_gap(segment: Segment, resume: int) -> None:
    """Keep the whole records, say in a GAP record where offsets go on, and set the damaged file aside."""
    remove_index(segment)
    if segment.resume >= 0:
        segment.size -= GAP_BYTES
    path = Path(segment.path)
    with open(path, "rb") as source, replacing(path) as target:
        shutil.copyfileobj(source, target)
        target.truncate(segment.size)
        target.seek(segment.size)
        target.write(encode_gap(resume, segment.salt))
        _copy_aside(path)
    segment.close()
    segment.size += GAP_BYTES
    segment.walked = segment.size
    segment.resume = resume


def _copy_aside(path: Path) -> None:
    """A second name for a damaged file, whose first one is about to be taken."""
    for attempt in range(1, 1000):
        aside = path.with_name(f"{path.name}.damaged-{attempt}")
        try:
            os.link(path, aside)
        except FileExistsError:
            continue
        return
    raise JournalError(f"{path} was damaged and set aside a thousand times; remove the old copies")
