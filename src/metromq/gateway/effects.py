"""What a proxy's core wants done, in order."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ToClient:
    data: bytes


@dataclass(frozen=True, slots=True)
class ToWay:
    way: str
    data: bytes


@dataclass(frozen=True, slots=True)
class OpenWay:
    way: str
    is_stand_in: bool = False  # to the central broker, in place of the edge broker


@dataclass(frozen=True, slots=True)
class CloseWay:
    way: str


@dataclass(frozen=True, slots=True)
class CloseClient:
    """After everything before it has been written."""


Effect = ToClient | ToWay | OpenWay | CloseWay | CloseClient


def merged(effects: list[Effect]) -> list[Effect]:
    """The same with fewer writes: what goes the same way in a row goes at once."""
    found: list[Effect] = []
    parts: list[bytes] = []
    for effect in effects:
        last = found[-1] if found else None
        if isinstance(effect, ToClient | ToWay) and last is not None and _goes_with(effect, last):
            parts.append(effect.data)
        else:
            _close(found, parts)
            parts = [effect.data] if isinstance(effect, ToClient | ToWay) else []
            found.append(effect)
    _close(found, parts)
    return found


def _goes_with(one: ToClient | ToWay, other: Effect) -> bool:
    if isinstance(one, ToWay):
        return isinstance(other, ToWay) and one.way == other.way
    return isinstance(other, ToClient)


def _close(found: list[Effect], parts: list[bytes]) -> None:
    if len(parts) > 1:
        last = found[-1]
        assert isinstance(last, ToClient | ToWay)
        found[-1] = replace(last, data=b"".join(parts))
