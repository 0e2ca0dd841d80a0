"""The one error tree: what our user did wrong, what a peer did wrong, what the disk did."""


class MetroError(Exception):
    """Base of every error that MetroMQ raises on purpose."""


class UsageError(MetroError):
    """Our own side was called or configured wrongly; the message says what to do."""


class ConfigError(UsageError):
    """A configuration value is wrong: `where` names the file and field."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class PeerViolation(MetroError):
    """A peer broke the standard; `reason_code` is what MQTT 5 calls it."""

    def __init__(self, reason_code: int, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class MalformedPacket(PeerViolation):
    """Bytes that are no packet of the standard (reason 0x81 unless said otherwise)."""

    def __init__(self, message: str, reason_code: int = 0x81) -> None:
        super().__init__(reason_code, message)


class ProtocolViolation(PeerViolation):
    """A well-formed packet at the wrong moment or with a forbidden value (reason 0x82 unless said otherwise)."""

    def __init__(self, message: str, reason_code: int = 0x82) -> None:
        super().__init__(reason_code, message)


class ScramError(PeerViolation):
    """A message of a SCRAM exchange breaks RFC 5802 or proves the wrong key (reason 0x87)."""

    def __init__(self, message: str) -> None:
        super().__init__(0x87, message)


class BytesDamaged(MetroError, ValueError):
    """Bytes of one of our own formats end early, run on or hold no text; who reads them says what they were."""


class JournalError(MetroError):
    """The journal cannot be read or written."""


class JournalUnusable(JournalError):
    """What the journal holds cannot be used as it is: a broker does not start with it unless told what to do."""


class JournalDamaged(JournalUnusable):
    """A segment is damaged before its tail; `segment` names the file and `position` the byte."""

    def __init__(self, segment: str, position: int, problem: str) -> None:
        super().__init__(f"{segment} is damaged at byte {position}: {problem}")
        self.segment = segment
        self.position = position
        self.problem = problem


class JournalFull(JournalError):
    """No room is left on the disk; messages from `first_refused` on were not written and are refused (reason 0x97)."""

    def __init__(self, message: str, first_refused: int = -1) -> None:
        super().__init__(message)
        self.first_refused = first_refused


class OffsetsGone(JournalError):
    """The asked offsets are not in the journal; `first` is the next one that is. `unused`: nobody need miss them."""

    def __init__(
        self, directory: str, start: int, first: int, reason: str = "retention removed them", unused: bool = False
    ) -> None:
        super().__init__(f"{directory}: offsets {start} to {first - 1} are gone ({reason}); continue at {first}")
        self.first = first
        self.unused = unused


class TelemetryDamaged(MetroError):
    """A window of telemetry that a broker left for its recorder cannot be read; the message names the file."""


class MqttError(MetroError):
    """What our client could not do; `reason_code` is the server's (None where no packet gave one)."""

    def __init__(self, message: str, reason_code: int | None = None, server_reference: str | None = None) -> None:
        super().__init__(message)
        self.reason_code = reason_code
        self.server_reference = server_reference


class ConnectRefused(MqttError):
    """The server answered CONNECT with a CONNACK that says no."""


class ConnectionLost(MqttError):
    """The connection ended before its time: a DISCONNECT of the server, silence, or the network."""


class LakeConflict(MetroError):
    """Two programs changed the same rows of the lake at once; the later one must look again."""


class TableDamaged(MetroError):
    """A file of a table of the lake is gone, or cannot be read: its rows are lost from the table."""


class RowsElsewhere(MetroError):
    """Workers of a cluster wrote rows where this process does not see them."""
