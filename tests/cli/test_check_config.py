"""`metromq check-config`: one look tells everything, inside the named files too."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from metromq.city_file import city_text
from metromq.cli.check_config import command
from metromq.federation import grid_city
from tests.certificates import make_certificates


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], env={"COLUMNS": "300"})


def test_a_good_file(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    file = tmp_path / "metromq.toml"
    (tmp_path / "acl").write_text("topic read news/#\n")
    file.write_text(
        f"""
        [[listeners]]
        kind = "tls"
        cert_file = "server.crt"
        key_file = "server.key"
        ca_file = "{certificates.ca}"
        [auth]
        acl_file = "acl"
        """
    )
    result = check(file)
    assert result.output.strip() == f"{file} is valid."
    assert result.exit_code == 0
    assert json.loads(check(file, "--json").stdout) == {"ok": True, "problems": []}


def test_a_file_of_a_city_is_checked_as_one(tmp_path: Path) -> None:
    file = tmp_path / "city.toml"
    file.write_text(city_text(grid_city("delegation", count=3)))
    assert check(file).output.strip() == f"{file} is valid."
    file.write_text(file.read_text().replace('central = "', 'central = "x'))
    (problem,) = json.loads(check(file, "--json").stdout)["problems"]
    assert problem["where"] == f"{file}: central"


def test_no_file_checks_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check().exit_code == 0
    monkeypatch.setenv("METROMQ_LIMITS__MAX_QOS", "9")
    result = check("--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["problems"] == [
        {"where": "environment variable METROMQ_LIMITS__MAX_QOS", "problem": 'must be one of 0, 1, 2, not "9"'}
    ]


def test_problems_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "metromq.toml"
    file.write_text("[limits]\nmax_qs = 1\n[jurnal]\n")
    result = check(file)
    assert result.exit_code == 1
    assert "2 problems" in result.output
    assert f"{file}: limits.max_qs" in result.output
    assert "did you mean max_qos?" in result.output


def test_problems_inside_the_named_files(tmp_path: Path) -> None:
    file = tmp_path / "metromq.toml"
    for name in ("server.crt", "server.key", "ca.crt"):
        (tmp_path / name).write_text("no certificate")
    (tmp_path / "acl").write_text("topic read a/#/b\n")
    (tmp_path / "pw").write_text("alice:plain\n")
    (tmp_path / "scram").write_text("alice:plain\n")
    file.write_text(
        """
        [[listeners]]
        kind = "tls"
        cert_file = "server.crt"
        key_file = "server.key"
        ca_file = "ca.crt"
        [auth]
        acl_file = "acl"
        password_file = "pw"
        scram_file = "scram"
        """
    )
    problems = json.loads(check(file, "--json").stdout)["problems"]
    assert [problem["where"] for problem in problems] == [
        str(tmp_path / "pw"),
        str(tmp_path / "acl"),
        str(tmp_path / "scram"),
        "listeners[0].cert_file",
        "listeners[0].ca_file",
    ]
    assert problems[1]["problem"].startswith("line 1: 'a/#/b' is not a topic filter")
