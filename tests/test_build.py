"""The build under test is the one that was asked for, and pure rooms stay pure."""

import ast
import os
import sys
import tomllib
from pathlib import Path

import metromq
from metromq.protocol.wire import decode

ROOT = Path(metromq.__file__).parent
PURE_ROOMS = ("protocol", "federation/routing", "federation/links", "federation/coordination", "planning")
FORBIDDEN = {"asyncio", "socket", "selectors", "ssl", "time", "random", "secrets", "threading", "subprocess", "pyspark"}


def test_the_expected_build_is_tested() -> None:
    expected = os.environ.get("METROMQ_EXPECT", "pure")
    is_compiled = not str(decode.__file__).endswith(".py")
    assert is_compiled == (expected == "compiled"), decode.__file__


def test_rooms_without_io_import_none() -> None:
    breaches: list[str] = []
    for room in PURE_ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names = [node.module]
                breaches += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] in FORBIDDEN]
    assert not breaches


def test_broker_and_lab_do_not_know_each_other() -> None:
    for room, other in (("broker", "metromq.lab"), ("lab", "metromq.broker")):
        for path in (ROOT / room).rglob("*.py"):
            assert f"from {other}" not in path.read_text(), path


def test_the_build_can_do_without_what_is_optional() -> None:
    """A package is compiled, and so type-checked, where no extra is installed."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    known = {requirement.split(">")[0].replace("-", "_") for requirement in project["build-system"]["requires"]}
    known |= {"mypy_extensions", "metromq", *sys.stdlib_module_names}
    for override in project["tool"]["mypy"]["overrides"]:
        if override.get("ignore_missing_imports"):
            known |= {name.removesuffix(".*") for name in override["module"]}
    for path in (ROOT / "broker").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= known, path
