"""What the manager's log holds, a line each: every change, who wanted it, and each step before and after it is done."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from metromq.control.core.words import ActionPlan, Device, ProxyPlace, ServiceSpec
from metromq.errors import ConfigError
from metromq.reading import read_data

BEGUN: Final = "begun"
ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class DeviceSet:
    device: Device


@dataclass(frozen=True, slots=True)
class DeviceGone:
    name: str


@dataclass(frozen=True, slots=True)
class ProxySeen:
    """Registered, or at another address than before."""

    proxy: ProxyPlace


@dataclass(frozen=True, slots=True)
class ProxyGone:
    name: str


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """Written before the first of its steps; from here on it is carried out or taken back, whatever crashes."""

    plan: int
    what: ActionPlan


@dataclass(frozen=True, slots=True)
class StepBegun:
    """Written before the step is done. `back`: it is taken back."""

    plan: int
    step: int
    back: bool = False


@dataclass(frozen=True, slots=True)
class StepEnded:
    plan: int
    step: int
    result: str = ""
    failed: bool = False
    back: bool = False


@dataclass(frozen=True, slots=True)
class PlanEnded:
    plan: int
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class ServiceRestarted:
    """Not a change that somebody wanted, but one that an audit should show."""

    name: str
    times: int


@dataclass(frozen=True, slots=True)
class KeptPlan:
    number: int
    plan: ActionPlan
    author: str
    time: float
    phase: str
    at: int
    results: tuple[tuple[int, str], ...]
    why: str
    ended: float
    failed: int = -1  # older logs do not say


@dataclass(frozen=True, slots=True)
class KeptService:
    spec: ServiceSpec
    device: str
    plan: int
    restarts: int


@dataclass(frozen=True, slots=True)
class KeptDecision:
    filter: str
    broker: str
    by: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the records up to this one's number come to: those are not needed any more, but as history."""

    devices: tuple[Device, ...]
    proxies: tuple[ProxyPlace, ...]
    services: tuple[KeptService, ...]
    plans: tuple[KeptPlan, ...]
    brokers: tuple[str, ...]
    filters: Mapping[str, str]  # of older logs: what the manager had delegated, and to whom
    moved: Mapping[str, float]
    decisions: tuple[KeptDecision, ...] = ()


Change = (
    DeviceSet
    | DeviceGone
    | ProxySeen
    | ProxyGone
    | PlanAccepted
    | StepBegun
    | StepEnded
    | PlanEnded
    | ServiceRestarted
    | Snapshot
)
KINDS: Final[dict[str, type[Any]]] = {
    "device": DeviceSet,
    "device-gone": DeviceGone,
    "proxy": ProxySeen,
    "proxy-gone": ProxyGone,
    "plan": PlanAccepted,
    "step-begun": StepBegun,
    "step-ended": StepEnded,
    "plan-ended": PlanEnded,
    "restarted": ServiceRestarted,
    "snapshot": Snapshot,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Record:
    number: int
    time: float  # Unix time in seconds
    author: str
    change: Change

    @property
    def kind(self) -> str:
        return _NAMES[type(self.change)]


@dataclass(frozen=True, slots=True)
class _Head:
    number: int
    time: float
    author: str
    kind: str


def encode_record(record: Record) -> bytes:
    """One line, without its end."""
    head = {"number": record.number, "time": record.time, "author": record.author, "kind": record.kind}
    return json.dumps({**head, "change": dataclasses.asdict(record.change)}, separators=(",", ":")).encode()


def decode_record(line: bytes) -> Record:
    """Raises ValueError for what no manager wrote."""
    try:
        raw = json.loads(line)
        head = read_data(_Head, raw, ignore_unknown=True)
        if head.kind not in KINDS:
            raise ValueError(f"unknown kind of change {head.kind!r}")
        change = read_data(KINDS[head.kind], raw.get("change"), ignore_unknown=True)
    except (ConfigError, RecursionError, AttributeError) as error:
        raise ValueError(f"it is no record of a manager: {error}") from error
    return Record(head.number, head.time, head.author, change)
