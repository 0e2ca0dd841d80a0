"""The build under test is the one that was asked for, and pure rooms stay pure."""

import ast
import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import metromq
from metromq.protocol.wire import decoding

ROOT = Path(metromq.__file__).parent
PURE_ROOMS = ("protocol", "federation", "planning", "client/core", "control/core")
FORBIDDEN = {
    *("asyncio", "socket", "selectors", "ssl", "threading", "subprocess", "signal", "multiprocessing"),
    *("os", "io", "pathlib", "shutil", "tempfile", "importlib"),
    *("time", "datetime", "random", "secrets", "uuid"),
    *("pyspark", "kazoo", "uvloop"),
}
# Which room may import which; ARCHITECTURE.md says why. Small modules of the house stand beside the rooms.
BASE = {"errors", "constraints", "documents", "files", "reading", "settings", "supervising", "config", "moments"}
ROOMS: dict[str, set[str]] = {
    "protocol": set(),
    "journal": set(),
    "telemetry": set(),
    "client": {"protocol"},
    "planning": set(),
    "federation": {"protocol", "client"},
    "city_file": {"federation"},
    "broker": {"protocol", "federation", "client", "journal", "telemetry"},
    "pipeline": {"protocol", "federation", "client", "journal", "telemetry"},
    "control": {"protocol", "federation", "planning", "telemetry", "city_file"},
    "lab": {"protocol", "federation", "client", "control", "planning"},
    "gateway": {"protocol"},
    "cli": {"gateway", "protocol", "federation", "client", "planning", "broker", "pipeline", "control", "lab"},
}
# What a pure room may know of the rest of the house: no room that does things.
KNOWN_TO_FEDERATION = {"errors", "constraints", "reading", "protocol", "federation"}
PURE_CLIENT = {"metromq.client.core"}


def test_the_expected_build_is_tested() -> None:
    expected = os.environ.get("METROMQ_EXPECT", "pure")
    is_compiled = not str(decoding.__file__).endswith(".py")
    assert is_compiled == (expected == "compiled"), decoding.__file__


def imports(source: str) -> list[str]:
    """Every module that the text imports, at its top or inside functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


def forbidden(source: str) -> list[str]:
    return [name for name in imports(source) if name.split(".")[0] in FORBIDDEN]


def files_of(room: str) -> list[Path]:
    place = ROOT / room
    found = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert found, f"{room} is gone"
    return found


def test_rooms_import_only_what_the_table_allows() -> None:
    breaches: list[str] = []
    for room, allowed in ROOMS.items():
        for path in files_of(room if (ROOT / room).is_dir() else f"{room}.py"):
            known = {name.split(".")[1] for name in imports(path.read_text()) if name.startswith("metromq.")}
            too_much = known - allowed - BASE - {room}
            breaches += [f"{path.relative_to(ROOT)} imports {name}" for name in sorted(too_much)]
    assert not breaches
    assert {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()} - {"presets"} <= set(ROOMS)


def offered(package: str) -> set[str]:
    """What a package's door offers: the names in its `__all__`."""
    source = (ROOT / Path(*package.split(".")[1:]) / "__init__.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def past_the_door(room: str, source: str) -> list[str]:
    """What a text of this room imports from other rooms, and not by the name that a package offers."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("metromq.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("metromq."):
            place = str(node.module)
            other = place.split(".")[1]
            if other == room or other in BASE | {"city_file"}:
                continue
            is_package = (ROOT / Path(*place.split(".")[1:]) / "__init__.py").is_file()
            names = [alias.name for alias in node.names]
            found += [f"{place}.{name}" for name in names if not is_package or name not in offered(place)]
    return found


def test_rooms_are_entered_by_their_doors() -> None:
    breaches = [
        f"{path.relative_to(ROOT)} imports {name}: offer it in the package's __init__, or use what it offers"
        for room in ROOMS
        for path in files_of(room if (ROOT / room).is_dir() else f"{room}.py")
        for name in past_the_door(room, path.read_text())
    ]
    assert not breaches, "\n".join(breaches)
    for planted in (
        "from metromq.journal.codec import read",
        "from metromq.journal import codec",
        "import metromq.journal",
    ):
        assert past_the_door("broker", planted), "the check itself finds what is planted"


def test_doors_offer_only_what_is_there() -> None:
    for path in sorted(ROOT.rglob("__init__.py")):
        package = ".".join(("metromq", *path.parent.relative_to(ROOT).parts))
        if offered(package):
            module = importlib.import_module(package)
            missing = {name for name in offered(package) if not hasattr(module, name)}
            assert not {name for name in missing if importlib.util.find_spec(f"{package}.{name}") is None}, package


def test_rooms_without_io_import_none() -> None:
    breaches = [
        f"{path.relative_to(ROOT)}: {forbidden(path.read_text())}"
        for room in PURE_ROOMS
        for path in files_of(room)
        if forbidden(path.read_text())
    ]
    assert not breaches
    for planted in ("import os.path", "from pathlib import Path", "def f():\n    import datetime", "import io, re"):
        assert forbidden(planted), "the check itself finds what is planted"


def test_the_federation_knows_no_room_that_does_things() -> None:
    for path in files_of("federation"):
        own = {name for name in imports(path.read_text()) if name.startswith("metromq.")} - PURE_CLIENT
        assert {name.split(".")[1] for name in own} <= KNOWN_TO_FEDERATION, path


def test_coordination_is_below_links_and_routing() -> None:
    """Frames encode what coordination defines, and routers read it; never the other way round."""
    for path in files_of("federation/coordination"):
        above = [name for name in imports(path.read_text()) if name.startswith("metromq.federation.")]
        allowed = ("metromq.federation.coordination", "metromq.federation.city")
        assert all(name.startswith(allowed) for name in above), path


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


def test_every_package_can_be_the_first_to_be_imported() -> None:
    """A door that leads in a circle shows only when nobody has opened the next one yet."""
    packages = [".".join(("metromq", *path.parent.relative_to(ROOT).parts)) for path in ROOT.rglob("__init__.py")]
    for package in packages:
        done = subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def size(node: ast.ClassDef) -> tuple[int, int]:
    """How many methods and how many attributes a class has."""
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
    stored = {
        item.attr
        for item in ast.walk(node)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and ast.unparse(item.value) == "self"
    }
    return len(methods), len(stored)


def test_a_large_class_says_why() -> None:
    """Over 25 methods or 15 attributes; a table of values without methods is none."""
    silent: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods, attributes = size(node)
                large = methods > 25 or (methods > 2 and attributes > 15)
                if large and "because" not in (ast.get_docstring(node) or ""):
                    silent.append(
                        f"{path.relative_to(ROOT)}: {node.name} has {methods} methods, {attributes} attributes"
                    )
    assert not silent
