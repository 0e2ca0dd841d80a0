"""Compiles the hot rooms with mypyc when a C compiler is there; METROMQ_PURE=1 leaves them as plain Python."""

import os
import shutil
import sysconfig
from pathlib import Path

from setuptools import setup

# Everything that a message passes on its way through a broker; the rest stays plain Python.
HOT_MODULES: list[str] = [
    *(str(path) for path in sorted(Path("src/metromq/protocol").rglob("*.py")) if path.name != "__init__.py"),
    "src/metromq/journal/codec.py",
    "src/metromq/journal/commit.py",
    "src/metromq/journal/journal.py",
    "src/metromq/journal/segment.py",
    "src/metromq/journal/shelf.py",
    "src/metromq/journal/snapshot.py",
    "src/metromq/broker/stream.py",
    "src/metromq/broker/write_cycle.py",
]


def compiled() -> list[object]:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.environ.get("METROMQ_PURE") == "1" or not shutil.which(compiler):
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    return mypycify(HOT_MODULES, opt_level="3", debug_level="0")


setup(ext_modules=compiled())
