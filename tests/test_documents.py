"""Files of settings and data: what cannot be read is named with what to do about it, never a traceback."""

from pathlib import Path

import pytest

from metromq.city_file import load_city
from metromq.config import check_config
from metromq.documents import parse_document, read_document
from metromq.errors import ConfigError

DEEP = 100_000


@pytest.mark.parametrize(
    ("name", "content", "where", "problem"),
    [
        ("f.json", b'\xef\xbb\xbf{"a": 1}', "", "begins with a byte order mark; save it as UTF-8 without one"),
        ("f.toml", b"\xef\xbb\xbfa = 1", "", "begins with a byte order mark; save it as UTF-8 without one"),
        ("f.json", b'{"a": "\xff"}', "", "is not text in UTF-8 (byte 7); save it as UTF-8"),
        ("f.json", b"", "", "is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("f.toml", b"a = ", "", "is not TOML: Invalid value (at end of document)"),
        ("f.json", b"[1]", "", "must be a table of named values"),
        ("f.json", b'{"a": ' + b"[" * DEEP, ": a[0][0][0][0][0]...", "is nested too deeply to be read as JSON"),
        ("f.json", b'{"a":' * DEEP, ": a.a.a.a.a.a...", "is nested too deeply to be read as JSON"),
        ("f.toml", b"a = " + b"[" * DEEP, "", "is nested too deeply to be read as TOML"),
        ("f.json", b'{"a": 1,\n "b": ' + b"9" * 5000 + b"}", ": b", "line 2 has a number of more than 4300 digits"),
        (
            "f.json",
            b'{"x": "}\\"[", "b": [{"c": [1, 2]}, {"d": -' + b"9" * 5000 + b"}]}",
            ": b[1].d",
            "line 1 has a number of more than 4300 digits",
        ),
        ("f.toml", b"a = 1\nb = " + b"9" * 5000, "", "line 2 has a number of more than 4300 digits"),
        ("f.json", b'{"a": 1, "a": 2}', ": a", "is given more than once; keep only one of them"),
        ("f.json", b'{"b": [{}, {"c": {"a": 1, "d": 1, "a": 1}}]}', ": b[1].c.a", "is given more than once"),
        ("f.toml", b"a = 1\na = 2", "", "is not TOML: Cannot overwrite a value"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, where: str, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_document(path)
    assert caught.value.where == f"{path}{where}"
    assert caught.value.problem.startswith(problem)


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    for path, problem in ((tmp_path / "no.json", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError) as caught:
            read_document(path)
        assert (caught.value.where, caught.value.problem) == (str(path), f"cannot be read: {problem}")


def test_the_name_decides_unless_the_form_is_known(tmp_path: Path) -> None:
    path = tmp_path / "settings.conf"
    path.write_text("a = 1")
    assert read_document(path, "TOML") == {"a": 1}
    with pytest.raises(ConfigError, match="is not JSON"):
        read_document(path)


def test_deep_tables_by_dotted_names_are_read_and_refused_later(tmp_path: Path) -> None:
    """They need no recursion to be parsed, so nothing behind the parser may need one either."""
    text = ".".join(["a"] * 3_000) + " = 1"
    assert parse_document(text, "TOML", "f")
    path = tmp_path / "f.toml"
    path.write_text(text)
    [problem] = check_config(path, {})
    assert problem.where == f"{path}: a"
    with pytest.raises(ConfigError, match="a: is not a setting"):
        load_city(path)


@pytest.mark.parametrize(
    ("line", "where", "problem"),
    [
        ("sys_interval_s = " + "9" * 400, "sys_interval_s", "must be at most 1e+15"),
        ("sys_interval_s = 1e300", "sys_interval_s", "must be at most 1e+15, not 1e+300"),
        ("sys_interval_s = inf", "sys_interval_s", "must be a finite number, not inf"),
        ("sys_interval_s = nan", "sys_interval_s", "must be a finite number, not nan"),
        ("limits.max_connections = " + "9" * 400, "limits.max_connections", "must be at most 9223372036854775807"),
        ("limits.max_qos = " + "9" * 400, "limits.max_qos", "must be one of 0, 1, 2, not a number with more than 40"),
        ("auth.acl_file = '" + "x" * 5000 + "'", "auth.acl_file", "cannot be looked at: File name too long"),
        ('data_dir = "a\\u0000b"', "data_dir", r'must be a path, not "a\x00b"'),
    ],
)
def test_bad_numbers_and_names_in_a_configuration(tmp_path: Path, line: str, where: str, problem: str) -> None:
    path = tmp_path / "f.toml"
    path.write_text(line)
    [found] = check_config(path, {})
    assert found.where == f"{path}: {where}"
    assert problem in found.problem


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("METROMQ_LIMITS__MAX_INFLIGHT", "9" * 5000, "must be a whole number"),
        ("METROMQ_SYS_INTERVAL_S", "1e400", "must be a finite number, not inf"),
        ("METROMQ_LISTENERS", "[" * DEEP, "is not a TOML array: is nested too deeply"),
        ("METROMQ_LISTENERS", "[{port = " + "9" * 5000 + "}]", "is not a TOML array: line 1 has a number of more"),
        ("METROMQ_LIMITS__" + "X" * 100_000, "1", "is not a setting"),
    ],
)
def test_bad_variables(name: str, value: str, problem: str) -> None:
    [found] = check_config(None, {name: value})
    assert found.where.startswith(f"environment variable {name}"[:100])
    assert problem in found.problem
