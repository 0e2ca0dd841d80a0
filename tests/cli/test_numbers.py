"""Amounts on the command line: what is no number is refused before anybody is asked."""

import pytest
from click.testing import CliRunner

from metromq.cli import devices, service


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
@pytest.mark.parametrize("option", ["--mqtt-workload", "--user-workload", "--cpus"])
def test_a_service_has_finite_amounts(option: str, value: str) -> None:
    said = CliRunner().invoke(service.command, ["add", "x", "--topic", "a", option, value, "--", "true"])
    assert said.exit_code == 2
    assert f"Invalid value for '{option}'" in said.output


def test_a_device_has_finite_amounts() -> None:
    said = CliRunner().invoke(devices.command, ["add", "x", "--broker", "b", "--capacity", "nan"])
    assert said.exit_code == 2
    assert "nan is not a finite number" in said.output
