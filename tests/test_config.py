"""The configuration: defaults, TOML, environment, and an error for everything that is wrong, named by place."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from metromq.config import Auth, Config, Limits, Listener, check_config, load_config, parse_listener, validate
from metromq.errors import ConfigError

EXAMPLE = Path(__file__).parent.parent / "docs" / "metromq.example.toml"


def written(directory: Path, text: str) -> Path:
    file = directory / "broker.toml"
    file.write_text(text)
    return file


def problems(file: Path | None, **environ: str) -> dict[str, str]:
    return {problem.where: problem.problem for problem in check_config(file, environ)}


def test_defaults_stand_alone() -> None:
    config = load_config(None, {"PATH": "/bin", "METROMQ_PURE": "1", "METROMQ_SEED": "1", "METROMQ_CITY_AREAS__K": "3"})
    assert config == Config()
    assert config.listeners == (Listener("tcp", "127.0.0.1", 1883),)
    assert config.durability == "os"
    validate(config)


def test_example_file_tells_every_setting_with_its_default() -> None:
    config = load_config(EXAMPLE, {})
    assert replace(config, data_dir=Config().data_dir) == Config()
    assert config.data_dir == EXAMPLE.parent / "metromq-data"
    text = EXAMPLE.read_text()

    def names(section: Any) -> list[str]:
        found = []
        for field in fields(section):
            value = getattr(section, field.name)
            found += [field.name, *(names(value) if is_dataclass(value) else [])]
        return found

    for name in [*names(Config()), *names(Listener())]:
        assert name in text, f"{name} is not documented in {EXAMPLE.name}"


def test_file_then_environment(tmp_path: Path) -> None:
    file = written(tmp_path, 'name = "a"\n[limits]\nmax_qos = 1\nmax_inflight = 5\n[auth]\nallow_anonymous = true')
    environ = {
        "METROMQ_NAME": "b",
        "METROMQ_LIMITS__MAX_QOS": "0",
        "METROMQ_METRICS__PORT": "9883",
        "METROMQ_JOURNAL__RECORD_QOS0": "true",
        "METROMQ_JOURNAL__SEGMENT_BYTES": "1_000_000",
        "METROMQ_SYS_INTERVAL_S": "2.5",
        "METROMQ_LISTENERS": '[{host = "0.0.0.0", port = 0}, {kind = "ws", port = 8080}]',
        "METROMQ_AUTH__ALLOW_ANONYMOUS": "",
        "METROMQ_DATA_DIR": "elsewhere",
    }
    config = load_config(file, environ)
    assert (config.name, config.limits.max_qos, config.limits.max_inflight) == ("b", 0, 5)
    assert (config.metrics.port, config.journal.record_qos0, config.sys_interval_s) == (9883, True, 2.5)
    assert config.journal.segment_bytes == 1_000_000
    assert config.listeners == (Listener(host="0.0.0.0", port=0), Listener(kind="ws", port=8080))
    assert config.auth.allow_anonymous is None
    assert config.data_dir == Path("elsewhere"), "a variable's path is relative to the working directory"


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    config = load_config(written(tmp_path, 'data_dir = "/abs"\n[auth]\npassword_file = "passwords"'), {})
    assert config.data_dir == Path("/abs")
    assert config.auth.password_file == tmp_path / "passwords"


def test_all_problems_are_collected_and_named(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        nmae = "x"
        durability = "disk"
        sys_interval_s = -1
        [[listeners]]
        port = 70000
        [[listeners]]
        kind = "tls"
        use_identity_as_username = true
        [limits]
        max_qos = 3
        max_conections = 5
        max_inflight = "many"
        retain_available = 1
        [auth]
        acl_file = "nowhere"
        [log]
        level = 3
        """,
    )
    found = problems(file, METROMQ_LIMITS__MAX_TOPIC_ALIAS="lots", METROMQ_LIMIT__MAX_QOS="1", METROMQ_DURABILTY="os")
    assert found == {
        f"{file}: nmae": "is not a setting; did you mean name?",
        f"{file}: durability": 'must be one of memory, os, fsync, not "disk"',
        f"{file}: sys_interval_s": "must be at least 0, not -1",
        f"{file}: listeners[0].port": "must be from 0 to 65535, not 70000",
        f"{file}: listeners[1].cert_file": "is missing: a tls listener needs it",
        f"{file}: listeners[1].key_file": "is missing: a tls listener needs it",
        f"{file}: listeners[1].use_identity_as_username": (
            "needs require_certificate = true: without it there is no identity to use"
        ),
        f"{file}: limits.max_qos": "must be one of 0, 1, 2, not 3",
        f"{file}: limits.max_conections": "is not a setting; did you mean max_connections?",
        f"{file}: limits.max_inflight": 'must be a whole number, not "many"',
        f"{file}: limits.retain_available": "must be true or false, not 1",
        f"{file}: auth.acl_file": f"there is no file {tmp_path / 'nowhere'}",
        f"{file}: log.level": "must be one of debug, info, warning, error, not 3",
        "environment variable METROMQ_LIMITS__MAX_TOPIC_ALIAS": 'must be a whole number, not "lots"',
        "environment variable METROMQ_DURABILTY": "is not a setting; did you mean METROMQ_DURABILITY?",
        "environment variable METROMQ_LIMIT__MAX_QOS": "is not a setting; did you mean METROMQ_LIMITS__MAX_QOS?",
    }
    with pytest.raises(ConfigError, match="13 problems") as raised:
        load_config(file, {})
    assert "limits.max_conections: is not a setting; did you mean max_connections?" in str(raised.value)


def test_problem_inside_a_variable_names_the_field() -> None:
    assert problems(None, METROMQ_LISTENERS="[{prt = 3}]") == {
        "environment variable METROMQ_LISTENERS (listeners[0].prt)": "is not a setting; did you mean port?"
    }
    assert problems(None, METROMQ_LISTENERS="1883") == {
        "environment variable METROMQ_LISTENERS": "must be a list, not 1883"
    }
    assert "is not a TOML array" in problems(None, METROMQ_LISTENERS="[")["environment variable METROMQ_LISTENERS"]


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("name = [", "", "is not TOML"),
        ("limits = 3", ": limits", "must be a table, not 3"),
        ("listeners = {}", ": listeners", "must be a list, not a table"),
        ("listeners = []", ": listeners", "a broker needs at least one"),
        ("[[listeners]]\n[[listeners]]", ": listeners[1].port", "127.0.0.1:1883 is used by another listener"),
        ('name = ""', ": name", "must be 1 to 255 bytes of printable text"),
        ('data_dir = ""', ": data_dir", 'must be a path, not ""'),
        ("[limits]\nconnect_timeout_s = nan", ": limits.connect_timeout_s", "must be a finite number, not nan"),
        ("[limits]\nmax_connections = true", ": limits.max_connections", "must be a whole number, not true"),
        ('[[listeners]]\ncert_file = "."', ": listeners[0].cert_file", "is not a file"),
        (
            "[limits]\nmax_total_outgoing_bytes = 5",
            ": limits.max_total_outgoing_bytes",
            "must be at least max_outgoing_bytes",
        ),
    ],
)
def test_one_problem(tmp_path: Path, text: str, where: str, problem: str) -> None:
    file = written(tmp_path, text)
    [(found_where, found_problem)] = problems(file).items()
    assert found_where == f"{file}{where}"
    assert problem in found_problem


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.toml") == {str(tmp_path / "no.toml"): "cannot be read: No such file or directory"}


def test_a_config_built_by_a_program_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"limits\.max_inflight: must be from 1 to 65535, not 0"):
        validate(Config(limits=Limits(max_inflight=0)))
    with pytest.raises(ConfigError, match=r"listeners\[0\]\.cert_file: is only for tls and wss"):
        validate(Config(listeners=(Listener(cert_file=EXAMPLE),)))


@pytest.mark.parametrize(
    ("host", "listener_says", "auth_says", "has_passwords", "allowed"),
    [
        ("127.0.0.1", None, None, False, True),
        ("::1", None, None, False, True),
        ("localhost", None, None, False, True),
        ("0.0.0.0", None, None, False, False),
        ("", None, None, False, False),
        ("example.org", None, None, False, False),
        ("127.0.0.1", None, None, True, False),
        ("127.0.0.1", None, False, False, False),
        ("0.0.0.0", None, True, True, True),
        ("0.0.0.0", True, False, True, True),
        ("127.0.0.1", False, True, False, False),
    ],
)
def test_anonymous_rule(
    host: str, listener_says: bool | None, auth_says: bool | None, has_passwords: bool, allowed: bool
) -> None:
    listener = Listener(host=host, allow_anonymous=listener_says)
    auth = Auth(password_file=EXAMPLE if has_passwords else None, allow_anonymous=auth_says)
    assert Config(listeners=(listener,), auth=auth).allows_anonymous(listener) is allowed


def test_listen_option() -> None:
    assert parse_listener("127.0.0.1:1884") == Listener(port=1884)
    assert parse_listener("[::1]:0") == Listener(host="::1", port=0)
    assert parse_listener(":1883") == Listener(host="0.0.0.0")
    assert parse_listener("ws://localhost:8080") == Listener("ws", "localhost", 8080)
    for wrong in ("1883", "host", "tls://host:1", "host:x", "host:99999", "udp://h:1"):
        with pytest.raises(ConfigError, match="listener"):
            parse_listener(wrong)
