"""The manager's nouns as frozen data: devices, services, proxies, and plans of steps."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from metromq.control.core.deciding import Decision
from metromq.errors import MetroError
from metromq.protocol.topics import validate_filter

RuntimeName = Literal["process", "podman"]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MOST_NUMBER: Final = 1e12
MOST_ITEMS: Final = 1000
MOST_TEXT: Final = 4096

# What a step does. Those without a line in UNDONE_BY leave nothing behind.
MEASURE: Final = "measure"
CHECK: Final = "check"
APPROVE: Final = "approve"
PLACE: Final = "place"
PULL: Final = "pull"
START_BROKER: Final = "start-broker"
START_TUNNEL: Final = "start-tunnel"
DELEGATE: Final = "delegate"
TELL_PROXIES: Final = "tell-proxies"
START_SERVICE: Final = "start-service"
AWAIT_SERVICE: Final = "await-service"
STOP_SERVICE: Final = "stop-service"


def is_name(text: str) -> bool:
    """Names become names of files, containers and sessions."""
    return _NAME.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """HOST:PORT, where somebody can be reached."""
    host, _, port = text.rpartition(":")
    return bool(host) and is_plain(host) and port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536


def _number_problems(fields: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if not 0 <= value <= MOST_NUMBER:  # also what is no number
            yield name, f"must be a number from 0 to {MOST_NUMBER:g}"


def is_plain(text: str) -> bool:
    """Whether a program can get it as an argument: no zero byte, no half characters, not endless."""
    return "\0" not in text and len(text) <= MOST_TEXT and not any("\ud800" <= letter <= "\udfff" for letter in text)


@dataclass(frozen=True, slots=True)
class Device:
    """An edge machine: the broker of the city that runs there, and how much workload it can carry."""

    name: str
    broker: str
    capacity_workload: float = 30_000.0  # the middle of the paper's range
    mw_per_workload: float = 0.19
    tunnel: str = ""  # HOST:PORT of the end of proxies' tunnels there; empty: the manager runs one on this machine

    def problems(self) -> Iterator[tuple[str, str]]:
        if not is_name(self.name):
            yield "name", "must be 1 to 64 letters, digits, dots, dashes and underscores"
        if self.tunnel and not is_address(self.tunnel):
            yield "tunnel", "must look like 10.0.7.2:7000"
        yield from _number_problems(
            {"capacity_workload": self.capacity_workload, "mw_per_workload": self.mw_per_workload}
        )


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """0: no limit. A plain process can only be limited in memory (address space)."""

    cpus: float = 0.0
    memory_mb: int = 0


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A user's program: what runs, which topics it uses, what work traffic makes for it, and what it may take."""

    name: str
    topics: tuple[str, ...]
    command: tuple[str, ...] = ()
    runtime: RuntimeName = "process"
    image: str = ""  # podman: an image by its name
    rootfs: str = ""  # podman: a directory instead of an image
    environment: Mapping[str, str] = field(default_factory=dict)
    mqtt_workload_per_mbps: float = 10.0
    user_workload_per_mbps: float = 10.0
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    device: str = ""  # where it must run; empty: the manager chooses
    delegate: bool = True  # whether its topics are delegated to the broker beside it

    def problems(self) -> Iterator[tuple[str, str]]:
        if not is_name(self.name):
            yield "name", "must be 1 to 64 letters, digits, dots, dashes and underscores"
        if not self.topics:
            yield "topics", "a service needs at least one topic filter"
        for number, topic in enumerate(self.topics):
            problem = filter_problem(topic)
            if problem:
                yield f"topics[{number}]", problem
        if max(len(self.topics), len(self.command), len(self.environment)) > MOST_ITEMS:
            yield "topics", f"topics, command and environment may have {MOST_ITEMS} items each"
        for name, value in self.environment.items():
            if _VARIABLE.fullmatch(name) is None or not is_plain(value):
                yield "environment", "must have names such as LEVEL, and plain values"
        for text in (*self.command, self.image, self.rootfs, self.device):
            if not is_plain(text):
                yield "command", "must be plain text without zero bytes"
        yield from self._runtime_problems()
        yield from _number_problems(
            {
                "mqtt_workload_per_mbps": self.mqtt_workload_per_mbps,
                "user_workload_per_mbps": self.user_workload_per_mbps,
                "limits.cpus": self.limits.cpus,
                "limits.memory_mb": self.limits.memory_mb,
            }
        )

    def _runtime_problems(self) -> Iterator[tuple[str, str]]:
        if self.runtime == "process" and not self.command:
            yield "command", "a process needs a command"
        if self.runtime == "process" and (self.image or self.rootfs):
            yield "runtime", 'must be "podman" for an image or rootfs'
        if self.runtime == "podman" and bool(self.image) == bool(self.rootfs):
            yield "image", "a container needs an image or a rootfs, and not both"
        if self.image.startswith("-") or self.rootfs.startswith("-"):
            yield "image", "must not begin with a dash"
        if self.rootfs and not self.command:
            yield "command", "a container from a rootfs needs a command"


def filter_problem(topic: str) -> str:
    """What is wrong with a filter that is to be delegated; empty: nothing."""
    try:
        validate_filter(topic)
    except MetroError as error:
        return str(error)
    if topic.startswith("$"):
        return "topics of brokers themselves and shared subscriptions cannot be delegated"
    return ""


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """A proxy that has registered."""

    name: str
    listen: str


@dataclass(frozen=True, slots=True)
class Step:
    """`what` is a filter, a service or a broker, as the action needs it; `where` a broker or device, empty: none."""

    action: str
    what: str
    where: str = ""
    before: str = ""  # who had the filter when the plan was made: whoever takes the step back gives it there
    decision: Decision | None = None  # what is decided on the filter when the step is done; None: nothing
    decision_before: Decision | None = None  # and was when the plan was made: this is so again when it is taken back


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """Frozen: what is shown before is what is done. `grounds` say why, in sentences."""

    kind: str  # enter, remove, delegate, loop, undo
    subject: str
    steps: tuple[Step, ...]
    grounds: tuple[str, ...] = ()
    services: tuple[ServiceSpec, ...] = ()  # those that steps start or, undone, start again
    undoes: int = 0  # the plan that this one takes back

    def service(self, name: str) -> ServiceSpec:
        return next(spec for spec in self.services if spec.name == name)


_SAYS: Final = {
    MEASURE: "read the traffic of {what}",
    CHECK: "check that the devices can carry {what}",
    APPROVE: "ask {where} whether {what} can be delegated",
    PLACE: "place {what} on {where}",
    PULL: "get what {what} runs from onto {where}",
    START_BROKER: "start broker {what} unless it runs, and wait until it answers",
    START_TUNNEL: "start the end of proxies' tunnels beside {what} unless it runs",
    TELL_PROXIES: "tell the proxies who has which topics",
    START_SERVICE: "start {what} on {where}",
    AWAIT_SERVICE: "wait until {what} has started",
    STOP_SERVICE: "stop {what} on {where}",
}


def says(step: Step) -> str:
    """The step as a person reads it."""
    if step.action == DELEGATE:
        if not step.where and step.decision is not None:
            return f"hand {step.what} to the central broker, and wait until it has changed hands"
        if not step.where:
            return f"return {step.what}, and wait until it has changed hands"
        return f"hand {step.what} to {step.where}, and wait until its table is there"
    return _SAYS[step.action].format(what=step.what, where=step.where)
