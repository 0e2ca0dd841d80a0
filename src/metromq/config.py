"""The configuration of one broker process: every field with its unit, its default and the reason for it."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from metromq.constraints import Range, ReadableFile
from metromq.errors import ConfigError
from metromq.reading import raise_problems
from metromq.settings import check_settings, read_settings

Durability = Literal["memory", "os", "fsync"]
ListenerKind = Literal["tcp", "tls", "ws", "wss"]
LogLevel = Literal["debug", "info", "warning", "error"]

PREFIX = "METROMQ_"
# A city's own settings share the prefix. Switches of the build and of the tests do too, but look like no setting.
NOT_SETTINGS = ("METROMQ_CITY_",)

ExistingFile = Annotated[Path, ReadableFile()]
Port = Annotated[int, Range(0, 65535)]
Count = Annotated[int, Range(1)]
CountOrNone = Annotated[int, Range(0)]
Seconds = Annotated[float, Range(0)]

ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address that clients connect to."""

    # tls and wss are tcp and ws inside TLS.
    kind: ListenerKind = "tcp"
    # Loopback: a broker that nobody configured must not be open to the network.
    host: str = "127.0.0.1"
    # 1883 is registered for MQTT; 0 lets the system choose, for tests.
    port: Port = 1883
    # The server's certificate chain and key (PEM); both or neither.
    cert_file: ExistingFile | None = None
    key_file: ExistingFile | None = None
    # Authorities that client certificates must come from.
    ca_file: ExistingFile | None = None
    # Off: most sensors have a password, not a certificate.
    require_certificate: bool = False
    # The certificate's common name becomes the username, as Mosquitto's use_identity_as_username.
    use_identity_as_username: bool = False
    # Origins ("https://board.example.org") whose pages may connect, besides pages of the same host; "*": all pages.
    # A browser connects for any page that its user opens, with the user's place in the network.
    websocket_origins: tuple[str, ...] = ()
    # None: what [auth] says, and where that says nothing, only on loopback and only without a password file.
    allow_anonymous: bool | None = None

    @property
    def is_secure(self) -> bool:
        return self.kind in ("tls", "wss")

    @property
    def is_websocket(self) -> bool:
        return self.kind in ("ws", "wss")

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.is_secure:
            for name in ("cert_file", "key_file"):
                if getattr(self, name) is None:
                    yield name, f"is missing: a {self.kind} listener needs it"
        else:
            for name in ("cert_file", "key_file", "ca_file"):
                if getattr(self, name) is not None:
                    yield name, f"is only for tls and wss listeners, and this one is {self.kind}"
        if self.websocket_origins and not self.is_websocket:
            yield "websocket_origins", f"is only for ws and wss listeners, and this one is {self.kind}"
        for origin in self.websocket_origins:
            if origin not in ("*", "null") and not ORIGIN.fullmatch(origin):
                yield "websocket_origins", f"{origin!r} does not look like https://board.example.org:8443, * or null"
        if self.require_certificate and (not self.is_secure or self.ca_file is None):
            yield "require_certificate", "needs a tls or wss listener with a ca_file to check certificates against"
        if self.use_identity_as_username and not self.require_certificate:
            yield "use_identity_as_username", "needs require_certificate = true: without it there is no identity to use"


@dataclass(frozen=True, slots=True)
class Auth:
    """Who may enter and what they may do; the password and ACL files have Mosquitto's own formats."""

    # None: no passwords are known, so only anonymous clients and certificates get in.
    password_file: ExistingFile | None = None
    # Users of SCRAM-SHA-256, an enhanced authentication of MQTT 5, made by `metromq passwd -H scram-sha-256`.
    # None: it is not offered.
    scram_file: ExistingFile | None = None
    # None: whoever is in may publish and read everything.
    acl_file: ExistingFile | None = None
    # What a SUBSCRIBE meets whose filter matches nothing that the client may read. grant: as Mosquitto, it just gets
    # nothing; refuse: 0x87 (MQTT 3.1.1: 0x80), so that a wrong filter or a missing right is seen at once.
    unreadable_filters: Literal["grant", "refuse"] = "grant"
    # None: anonymous clients only on loopback listeners and only without a password file.
    allow_anonymous: bool | None = None
    # What a CONNECT meets whose client identifier has a session of another user. refuse: whoever came first keeps it;
    # new-session: the old session ends, with all that waited for it, and the newcomer starts with nothing.
    foreign_client_id: Literal["refuse", "new-session"] = "refuse"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client and all clients together may cost."""

    # At about 4 kB a client this is 40 MB; file descriptors (ulimit -n) must allow it too.
    max_connections: Count = 10_000
    # Connections that have not been let in count apart, and the oldest gives way: silent sockets keep nobody out.
    # More than the 4096 that the system hands over at once when a whole city reconnects; in any case at most a
    # quarter of the file descriptors.
    max_unconnected: Count = 5_000
    # Far above sensor messages, far below what could hurt; the standard's own limit is 268435460.
    max_packet_size_bytes: Annotated[int, Range(64, 268_435_460)] = 1 << 20
    # Messages that wait for one client; they wait in the journal, so each costs an offset, not a copy.
    max_queued_messages: Count = 10_000
    # Bytes that wait for one client, so that few big messages are bounded as many small ones are.
    max_queued_bytes: Count = 64 << 20
    # Unsent output of one client, after which QoS 0 messages to it are dropped and counted.
    max_outgoing_bytes: Count = 1 << 20
    # Unsent output of all clients, after which publishers are paused: the broker's memory stays bounded.
    max_total_outgoing_bytes: Count = 256 << 20
    # Unacknowledged QoS 1 and 2 messages to one client; the client's own receive maximum may lower it.
    max_inflight: Annotated[int, Range(1, 65535)] = 100
    # Unacknowledged QoS 1 and 2 messages from one client: room for pipelining, yet bounded work per client.
    receive_maximum: Annotated[int, Range(1, 65535)] = 1_000
    # Topic aliases a client may set; each keeps one topic in memory while it is connected. 0: none.
    max_topic_alias: Annotated[int, Range(0, 65535)] = 64
    # A client with more filters than this wants a wildcard.
    max_subscriptions_per_client: Count = 10_000
    # Filters can be 64 kB long; ten thousand of those would be 600 MB of one client. Few need more than 100 bytes.
    max_filter_bytes_per_client: Count = 4 << 20
    # A connection that stays silent costs a descriptor, so CONNECT must come soon.
    connect_timeout_s: Annotated[float, Range(0.1)] = 10.0
    # New connections of the whole broker, in bursts of up to one second's worth: a whole city may reconnect at once.
    # 0: no limit.
    max_connects_per_s: Seconds = 1_000.0
    # Longer keepalives are lowered to this (server keep alive); a client that wants none gets it too. 0: no limit.
    max_keepalive_s: Annotated[int, Range(0, 65535)] = 0
    # A month: a device that is away for longer is gone, and its queue with it. 4294967295: sessions may stay for ever.
    max_session_expiry_s: Annotated[int, Range(0, 0xFFFF_FFFF)] = 30 * 86_400
    # All of MQTT; lower it for a broker that only relays measurements.
    max_qos: Literal[0, 1, 2] = 2
    # Most dashboards rely on retained messages.
    retain_available: bool = True
    # Retained messages are held in memory; a new topic beyond this is refused with reason 0x97.
    max_retained_messages: CountOrNone = 100_000
    # So that a few large ones are bounded as many small ones are; counted with what the broker needs to hold them.
    max_retained_bytes: CountOrNone = 256 << 20
    # Deep topics cost time in matching; Mosquitto stops at 200.
    max_topic_levels: Annotated[int, Range(1, 65535)] = 128

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.max_total_outgoing_bytes < self.max_outgoing_bytes:
            yield "max_total_outgoing_bytes", "must be at least max_outgoing_bytes, which a single client may use"


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """The durable log: how it is cut, how long it is kept."""

    # Retention removes whole segments, so smaller ones follow keep_bytes more closely.
    segment_bytes: Annotated[int, Range(1 << 16, 1 << 32)] = 64 << 20
    # Old segments beyond this go, unless a session still waits for a message in them.
    keep_bytes: CountOrNone = 1 << 30
    # A week, so that a recorder that stood still over a weekend misses nothing.
    keep_s: Seconds = 7 * 86_400.0
    # After this much new journal a snapshot is written; a restart replays no more than about this.
    snapshot_bytes: Annotated[int, Range(1 << 16)] = 64 << 20
    # With less free disk than this, new QoS 1 and 2 messages are refused (0x97); what remains is for acknowledgements.
    min_free_bytes: CountOrNone = 64 << 20
    # Off: QoS 0 promises nothing, and writing it halves the rate. On: the recorder sees those messages too.
    record_qos0: bool = False


@dataclass(frozen=True, slots=True)
class RecorderConfig:
    """Shipping journal and telemetry into a lake; needs the extra `pipeline`."""

    # None: nothing is recorded. A directory or a URI (s3://bucket/lake).
    lake: str | None = None
    # Counts per topic are kept in the data directory even without a lake, for a later `metromq pipeline run --data`.
    keep_counts: bool = False
    # Names the place in statistics; empty: the site in the city's file, or the broker's name.
    site: str = ""
    # Counts per topic are closed in windows of this length.
    window_s: Annotated[float, Range(1, 3600)] = 10.0


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    """Handing out what the journal holds to clients that ask for it over MQTT."""

    # Off: whoever may read a topic now could otherwise read everything that was ever published to it.
    enabled: bool = False
    # What all replays of this broker together may read in a second, so that live traffic keeps its share. 0: no limit.
    max_bytes_per_s: CountOrNone = 40 << 20
    # Clients that are being sent old messages, or fetch records, at the same time; the next is refused.
    max_clients: Count = 16


@dataclass(frozen=True, slots=True)
class Metrics:
    """The HTTP listener for /metrics, /healthz and /status."""

    # Loopback: metrics name clients and topics.
    host: str = "127.0.0.1"
    # None: closed. Prometheus users often take 9883.
    port: Port | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """Structured logs on standard error."""

    level: LogLevel = "info"
    # text for people at a terminal, json (one object a line) for collectors.
    format: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything one broker process needs to know."""

    # Names the broker in logs, metrics and towards other brokers.
    name: str = "metromq"
    # Relative to the configuration file that says it; the default is relative to the working directory.
    data_dir: Path = Path("metromq-data")
    # os: survives a crash of the broker; fsync also survives a power cut, at the disk's pace; memory keeps nothing.
    durability: Durability = "os"
    listeners: tuple[Listener, ...] = (Listener(),)
    auth: Auth = field(default_factory=Auth)
    limits: Limits = field(default_factory=Limits)
    journal: JournalConfig = field(default_factory=JournalConfig)
    recorder: RecorderConfig = field(default_factory=RecorderConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    metrics: Metrics = field(default_factory=Metrics)
    # Waking up takes most of the time that a message takes through a broker with little to do. While messages come at
    # least every 1.5 ms and nobody else wants the core, the broker stays awake; it sleeps when they do not.
    adaptive_poll: bool = True
    # So long the broker stays awake after each message in any case, for the price of a core.
    busy_poll_s: Annotated[float, Range(0, 1)] = 0.0
    # Seconds between $SYS updates, as Mosquitto's sys_interval. 0: none.
    sys_interval_s: Seconds = 10.0
    log: Log = field(default_factory=Log)

    def allows_anonymous(self, listener: Listener) -> bool:
        """Whether a client without a username may enter through `listener`."""
        for said in (listener.allow_anonymous, self.auth.allow_anonymous):
            if said is not None:
                return said
        return listener.is_loopback and self.auth.password_file is None and self.auth.scram_file is None

    def problems(self) -> Iterator[tuple[str, str]]:
        if not self.name or not self.name.isprintable() or len(self.name.encode()) > 255:
            yield "name", "must be 1 to 255 bytes of printable text"
        if not self.listeners:
            yield "listeners", "a broker needs at least one"
        if self.recorder.lake is not None and self.durability == "memory":
            yield "recorder.lake", 'cannot record without a journal: set durability to "os" or "fsync", not "memory"'
        if self.replay.enabled and self.durability == "memory":
            yield "replay.enabled", 'there is nothing to replay without a journal: set durability to "os" or "fsync"'
        taken: set[tuple[str, int]] = set()
        for number, listener in enumerate(self.listeners):
            address = (listener.host, listener.port)
            if listener.port and address in taken:
                yield f"listeners[{number}].port", f"{listener.host}:{listener.port} is used by another listener"
            taken.add(address)


def load_config(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The file's configuration with the environment's overrides; raises one ConfigError that tells every problem."""
    config, problems = read_settings(Config, path, environ, PREFIX, NOT_SETTINGS)
    raise_problems(problems)
    assert config is not None
    return config


def check_config(path: Path | None, environ: Mapping[str, str]) -> list[ConfigError]:
    """Every problem that `load_config` would meet."""
    return read_settings(Config, path, environ, PREFIX, NOT_SETTINGS)[1]


def validate(config: Config) -> None:
    """Checks a Config that a program built itself, as `load_config` checks a file."""
    raise_problems(check_settings(config))


def parse_listener(text: str) -> Listener:
    """`HOST:PORT`, `:PORT`, `[IPv6]:PORT` or `KIND://HOST:PORT` as a listener (for `--listen`)."""
    kind, separator, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise ConfigError(f"listener {text}", "must look like 127.0.0.1:1883, [::1]:1883 or ws://127.0.0.1:8080")
    if separator and kind not in ("tcp", "ws"):
        raise ConfigError(
            f"listener {text}",
            "only tcp:// and ws:// work here; a tls listener needs a [[listeners]] table in the file",
        )
    listener = Listener(kind="ws" if kind == "ws" else "tcp", host=host or "0.0.0.0", port=int(port))
    problems = check_settings(listener)
    raise_problems([ConfigError(f"listener {text}", problem.problem) for problem in problems])
    return listener
