"""The decoder as it was before it knew the notes of links: for tests of the checks that must find what it did."""

from typing import Any

import pytest

from metromq.pipeline import decode


def without_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip_nothing(data: Any, position: Any, *rest: Any) -> Any:
        return position

    monkeypatch.setattr(decode, "_skip_notes", skip_nothing)
