"""The file of SCRAM's users: what is read, and the line that every refusal names."""

import pytest

from metromq.broker.auth.scram_file import parse_keys, parse_scram
from metromq.errors import ConfigError
from metromq.protocol.scram import decode64, derive_keys

SALT = decode64("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_store_file() -> None:
    keys = derive_keys("pencil", SALT)
    assert parse_keys(str(keys)) == keys
    assert parse_scram(f"# users\nu:{keys}\n", "f", b"").find("u") == keys
    text = f"u:{keys}\nu:{keys}\nplain:x\nnocolon\nv:SCRAM-SHA-256$1:c2FsdA==$AAAA:AAAA\nw:SCRAM-SHA-256$4096:c$x:y"
    with pytest.raises(ConfigError) as raised:
        parse_scram(text, "f", b"")
    assert [f"line {number}" in str(raised.value) for number in range(1, 7)] == [False, True, True, True, True, True]
