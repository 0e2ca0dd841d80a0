"""Output formats of `metromq sub`: the -F strings that mosquitto_sub understands, as functions of a message and now."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from metromq.client import Message
from metromq.errors import UsageError
from metromq.protocol.wire import Properties

Piece = Callable[[Message, int], bytes]

ESCAPES = {"\\": "\\", "0": "\0", "a": "\a", "e": "\033", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# Which parameters take a width, a maximum width and zeros, as mosquitto_sub documents it.
WIDTH, MAXIMUM, ZEROS = "ACEFIlmpRStxX", "CIRt", "AEFlmSxX"
SEQUENCE = re.compile(r"%([-0]*)(\d*)(?:\.(\d+))?(.)|@(.)|\\(.)|([^%@\\]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Style:
    """How a parameter is padded."""

    left: bool
    zeros: bool
    width: int
    maximum: int | None

    def apply(self, letter: str, value: bytes) -> bytes:
        if self.maximum is not None and letter in MAXIMUM:
            value = value.decode("utf-8", "replace")[: self.maximum].encode()
        if letter not in WIDTH:
            return value
        if self.left:
            return value.ljust(self.width)
        return value.rjust(self.width, b"0" if self.zeros and letter in ZEROS else b" ")


class OutputFormat:
    """A format string, parsed once."""

    def __init__(self, text: str, pretty: bool = False) -> None:
        self.problem = ""
        self._pretty = pretty
        self._pieces: list[Piece] = []
        position = 0
        for found in SEQUENCE.finditer(text):
            if found.start() != position:
                break
            position = found.end()
            self._pieces.append(self._piece(found))
        if position != len(text):
            raise UsageError(
                f"the format ends in the middle of {text[position:]!r}; write %%, @@ or \\\\ for a literal %, @ or \\"
            )

    def render(self, message: Message, now_ns: int) -> bytes:
        """The line for a message; `problem` then says what could not be shown."""
        self.problem = ""
        return b"".join(piece(message, now_ns) for piece in self._pieces)

    def _piece(self, found: re.Match[str]) -> Piece:
        flags, width, maximum, letter, time_letter, escape, literal = found.groups()
        if literal is not None:
            return _constant(literal)
        if escape is not None:
            if escape not in ESCAPES:
                raise UsageError(f"the format has the unknown escape \\{escape}")
            return _constant(ESCAPES[escape])
        if time_letter is not None:
            return _constant("@") if time_letter == "@" else _time(time_letter)
        if letter == "%":
            return _constant("%")
        style = Style("-" in flags, "0" in flags, int(width or 0), int(maximum) if maximum else None)
        if letter == "j":
            return lambda message, now_ns: as_json(
                message, now_ns, self._pretty, message.payload.decode("utf-8", "replace")
            )
        if letter == "J":
            return self._json_payload
        if letter not in PARAMETERS:
            raise UsageError(f"the format has the unknown sequence %{letter}")
        parameter = PARAMETERS[letter]
        return lambda message, now_ns: style.apply(letter, parameter(message, now_ns))

    def _json_payload(self, message: Message, now_ns: int) -> bytes:
        try:
            value = json.loads(message.payload)
        except ValueError:
            self.problem = f"the payload is not valid JSON on topic {message.topic}"
            return b""
        return as_json(message, now_ns, self._pretty, value)


def as_json(message: Message, now_ns: int, pretty: bool, payload: Any) -> bytes:
    """All that is known of a message as JSON, with `payload` as its payload."""
    known: dict[str, Any] = {
        "tst": _stamp(now_ns).strftime("%Y-%m-%dT%H:%M:%S.%f%z"),
        "topic": str(message.topic),
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        known["mid"] = message.mid
    properties = json_properties(message.properties)
    if properties:
        known["properties"] = properties
    known["payload"] = payload
    if pretty:
        return json.dumps(known, indent="\t", ensure_ascii=False).encode()
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False).encode()


def json_properties(properties: Properties) -> dict[str, Any]:
    data = properties.correlation_data
    shown: dict[str, Any] = {
        "content-type": properties.content_type,
        "user-properties": dict(properties.user) or None,
        "response-topic": properties.response_topic,
        "correlation-data": None if data is None else data.decode("utf-8", "replace"),
        "payload-format-indicator": properties.payload_format,
        "message-expiry-interval": properties.message_expiry_s,
        "subscription-identifier": list(properties.subscription_identifiers) or None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def _stamp(now_ns: int) -> datetime:
    return (
        datetime.fromtimestamp(now_ns // 1_000_000_000, UTC)
        .astimezone()
        .replace(microsecond=now_ns // 1000 % 1_000_000)
    )


def _constant(text: str) -> Piece:
    data = text.encode()
    return lambda message, now_ns: data


def _time(letter: str) -> Piece:
    if letter == "N":
        return lambda message, now_ns: b"%09d" % (now_ns % 1_000_000_000)
    return lambda message, now_ns: _stamp(now_ns).strftime(f"%{letter}").encode()


def _text(value: object) -> bytes:
    return b"" if value is None else str(value).encode()


PARAMETERS: dict[str, Piece] = {
    "A": lambda message, now_ns: b"",  # the client resolves topic aliases, so none is left to show
    "C": lambda message, now_ns: _text(message.properties.content_type),
    "D": lambda message, now_ns: message.properties.correlation_data or b"",
    "E": lambda message, now_ns: _text(message.properties.message_expiry_s),
    "F": lambda message, now_ns: _text(message.properties.payload_format),
    "I": lambda message, now_ns: _stamp(now_ns).strftime("%Y-%m-%dT%H:%M:%S%z").encode(),
    "l": lambda message, now_ns: b"%d" % len(message.payload),
    "m": lambda message, now_ns: b"%d" % message.mid,
    "P": lambda message, now_ns: " ".join(f"{name}:{value}" for name, value in message.properties.user).encode(),
    "p": lambda message, now_ns: message.payload,
    "q": lambda message, now_ns: b"%d" % message.qos,
    "R": lambda message, now_ns: _text(message.properties.response_topic),
    "r": lambda message, now_ns: b"%d" % message.retain,
    "S": lambda message, now_ns: " ".join(map(str, message.properties.subscription_identifiers)).encode(),
    "t": lambda message, now_ns: message.topic.encode(),
    "U": lambda message, now_ns: b"%d.%09d" % divmod(now_ns, 1_000_000_000),
    "x": lambda message, now_ns: message.payload.hex().encode(),
    "X": lambda message, now_ns: message.payload.hex().upper().encode(),
}
