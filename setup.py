"""Compiles the hot modules with mypyc when a C compiler is there; METROMQ_PURE=1 leaves them as plain Python."""

import os
import shutil
import sysconfig

from setuptools import setup

HOT_MODULES: list[str] = []


def compiled() -> list[object]:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.environ.get("METROMQ_PURE") == "1" or not shutil.which(compiler):
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    return mypycify(HOT_MODULES, opt_level="3", debug_level="0") if HOT_MODULES else []


setup(ext_modules=compiled())
