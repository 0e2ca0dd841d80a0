"""Compiles the hot rooms with mypyc when a C compiler is there; METROMQ_PURE=1 leaves them as plain Python."""

import os
import shutil
import sysconfig
from pathlib import Path

from setuptools import setup

ROOT = Path("src/metromq")
HOT_ROOMS = ("protocol/wire", "protocol/session", "broker/journal")
HOT_MODULES = ("protocol/topics/names", "protocol/topics/retained", "protocol/topics/tree", "broker/stream", "broker/turns")
COLD = {"__init__.py", "reader.py:broker/journal", "recovery.py:broker/journal"}


def hot_files() -> list[str]:
    files = [ROOT / f"{module}.py" for module in HOT_MODULES]
    for room in HOT_ROOMS:
        files += [
            path for path in (ROOT / room).glob("*.py") if path.name not in COLD and f"{path.name}:{room}" not in COLD
        ]
    return sorted(str(path) for path in files)


def compiled() -> list[object]:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.environ.get("METROMQ_PURE") == "1" or not shutil.which(compiler):
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    return mypycify(hot_files(), opt_level="3", debug_level="0")


setup(ext_modules=compiled())
