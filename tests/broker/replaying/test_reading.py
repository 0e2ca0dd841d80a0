"""What a broker answers of a journal in which offsets are missing: everything that is there, and what is not."""

from pathlib import Path

import pytest

from metromq.broker.replaying.reading import ReplayReader
from metromq.journal import Journal, reservation
from metromq.protocol.replay import GONE, FetchAnswer, FetchRequest
from metromq.protocol.session import Message, records

GAP_TO = 100
pytestmark = pytest.mark.parametrize("topic_filter", ["", "#", "wanted"], ids=["all", "every topic", "some"])


def _write(journal: Journal, texts: list[str]) -> None:
    for text in texts:
        topic = "wanted" if text.startswith("wanted") else "other"
        journal.append_message(records.encode_message(Message(topic, text.encode(), 1, time_us=1), []))


def _cut(directory: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]) -> Journal:
    """A journal after a power cut: offsets that may have been given out are left out."""
    monkeypatch.setattr(reservation, "BLOCK", GAP_TO)
    monkeypatch.setattr(reservation, "boot", lambda: "first")
    journal = Journal.open(directory)
    _write(journal, texts)
    journal.flush()
    journal.abandon()
    monkeypatch.setattr(reservation, "boot", lambda: "second")
    return Journal.open(directory)


def _all(reader: ReplayReader, topic_filter: str, to: int) -> tuple[list[str], list[FetchAnswer]]:
    """As a replay asks: on and on from where the last answer ended; the payloads, and answers that told of a gap."""
    found: list[str] = []
    gaps: list[FetchAnswer] = []
    start = 0
    while start < to:
        answer = reader.answer(FetchRequest(start, to, topic_filter=topic_filter), None)
        if answer.code:
            gaps.append(answer)
        found += [records.decode_message(body).message.payload.decode() for _, body in answer.bodies_list()]
        assert answer.next > start, "nothing goes on"
        start = answer.next
    return found, gaps


def test_what_lies_before_a_gap_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_filter: str) -> None:
    before, after = ["wanted 0", "other 1", "wanted 2"], ["wanted 3", "other 4"]
    journal = _cut(tmp_path, monkeypatch, before)
    _write(journal, after)
    journal.flush()
    reader = ReplayReader("b1", tmp_path)
    found, gaps = _all(reader, topic_filter, journal.next_offset)
    assert found == [text for text in before + after if topic_filter != "wanted" or text.startswith("wanted")]
    assert [(gap.code, gap.first, gap.unused) for gap in gaps] == [(GONE, GAP_TO, True)]
    reader.close()
    journal.close()


def test_a_gap_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_filter: str) -> None:
    """The journal's end is behind it, although nothing was written there yet: who reads as far must get there."""
    journal = _cut(tmp_path, monkeypatch, ["wanted 0", "wanted 1"])
    reader = ReplayReader("b1", tmp_path)
    assert reader.answer(FetchRequest(max_bytes=0), None).end == GAP_TO
    found, gaps = _all(reader, topic_filter, GAP_TO)
    assert found == ["wanted 0", "wanted 1"]
    assert [(gap.code, gap.first, gap.unused) for gap in gaps] == [(GONE, GAP_TO, True)]
    reader.close()
    journal.close()
