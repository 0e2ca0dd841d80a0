"""The -F formats of `metromq sub`, compared with what mosquitto_sub 2.0.11 printed for the same messages."""

import json
import time
from collections.abc import Iterator

import pytest

from metromq.cli.formats import OutputFormat
from metromq.client.core.messages import Message
from metromq.errors import UsageError
from metromq.protocol.wire.packets import Properties, Publish
from metromq.protocol.wire.properties import encode_raw

NOW_NS = 1_470_818_943_786_368_637  # 2016-08-10T08:49:03 UTC
PROPERTIES = Properties(
    payload_format=1,
    content_type="text",
    response_topic="rt",
    correlation_data=b"cd",
    user=(("k", "v"), ("k2", "v2")),
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def message(payload: bytes = b'{"a":1}', properties: Properties | None = PROPERTIES) -> Message:
    raw = encode_raw(properties) if properties else b""
    packet = Publish("f/abcdef", payload, 1, packet_id=5, properties=raw, expiry_s=60, identifiers=(3, 4))
    return Message("f/abcdef", packet, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t", "f/abcdef"),
        ("%10t|%-10t|%.2t|%5.5t|%2t", "  f/abcdef|f/abcdef  |f/|f/abc|f/abcdef"),
        ("%p %8p", '{"a":1}  {"a":1}'),
        ("%x %X", "7b2261223a317d 7B2261223A317D"),
        ("%l %05l %-3l|", "7 00007 7  |"),
        ("%q %r %m", "1 0 5"),
        ("%C %6C %R %D", "text   text rt cd"),
        ("%E %F %S %A|", "60 1 3 4 |"),
        ("%P", "k:v k2:v2"),
        ("%U", "1470818943.786368637"),
        ("%I", "2016-08-10T08:49:03+0000"),
        ("@Y-@m-@d @H:@M:@S.@N @@", "2016-08-10 08:49:03.786368637 @"),
        ("%% \\\\ \\t \\n \\0 \\e", "% \\ \t \n \0 \033"),
        ("plain ünicode", "plain ünicode"),
        ("", ""),
    ],
)
def test_sequences(text: str, expected: str) -> None:
    assert OutputFormat(text).render(message(), NOW_NS).decode() == expected


def test_absent_properties_print_nothing() -> None:
    packet = Publish("t", b"x")
    assert OutputFormat("[%C%D%E%F%P%R%S]").render(Message("t", packet, 1), NOW_NS) == b"[]"


def test_json() -> None:
    common = {
        "tst": "2016-08-10T08:49:03.786368+0000",
        "topic": "f/abcdef",
        "qos": 1,
        "retain": 0,
        "payloadlen": 7,
        "mid": 5,
        "properties": {
            "content-type": "text",
            "user-properties": {"k": "v", "k2": "v2"},
            "response-topic": "rt",
            "correlation-data": "cd",
            "payload-format-indicator": 1,
            "message-expiry-interval": 60,
            "subscription-identifier": [3, 4],
        },
    }
    line = OutputFormat("%j").render(message(), NOW_NS)
    assert b"\n" not in line
    assert json.loads(line) == {**common, "payload": '{"a":1}'}
    assert json.loads(OutputFormat("%J").render(message(), NOW_NS)) == {**common, "payload": {"a": 1}}
    pretty = OutputFormat("%j", pretty=True).render(message(), NOW_NS)
    assert pretty.startswith(b'{\n\t"tst": ')
    assert json.loads(pretty) == {**common, "payload": '{"a":1}'}


def test_json_of_bytes_that_are_no_text() -> None:
    shown = json.loads(OutputFormat("%j").render(message(b'a"\xff'), NOW_NS))
    assert shown["payload"] == 'a"\ufffd'


def test_payload_that_is_no_json() -> None:
    output = OutputFormat("%J")
    assert output.render(message(b"{no"), NOW_NS) == b""
    assert output.problem == "the payload is not valid JSON on topic f/abcdef"
    output.render(message(b"1"), NOW_NS)
    assert output.problem == ""
    assert json.loads(output.render(message(b"null"), NOW_NS))["payload"] is None


@pytest.mark.parametrize("text", ["%Z", "%", "a%", "\\q", "\\", "@", "%10"])
def test_unknown_sequences_are_told(text: str) -> None:
    with pytest.raises(UsageError, match="format"):
        OutputFormat(text)
