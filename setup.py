"""Compiles the hot modules with mypyc when a C compiler is there; METROMQ_PURE=1 leaves them as plain Python."""

import os
import shutil
import sysconfig

from setuptools import setup

HOT_MODULES: list[str] = [
    "src/metromq/broker/journal/codec.py",
    "src/metromq/broker/journal/commit.py",
    "src/metromq/broker/journal/journal.py",
    "src/metromq/broker/journal/segment.py",
    "src/metromq/broker/journal/shelf.py",
    "src/metromq/broker/journal/snapshot.py",
    "src/metromq/broker/stream.py",
    "src/metromq/broker/turns.py",
    "src/metromq/protocol/session/access.py",
    "src/metromq/protocol/session/city.py",
    "src/metromq/protocol/session/commitment.py",
    "src/metromq/protocol/session/connection.py",
    "src/metromq/protocol/session/counters.py",
    "src/metromq/protocol/session/delivery.py",
    "src/metromq/protocol/session/forwarding.py",
    "src/metromq/protocol/session/handshake.py",
    "src/metromq/protocol/session/hub.py",
    "src/metromq/protocol/session/incoming.py",
    "src/metromq/protocol/session/log.py",
    "src/metromq/protocol/session/message.py",
    "src/metromq/protocol/session/outlet.py",
    "src/metromq/protocol/session/packing.py",
    "src/metromq/protocol/session/publishing.py",
    "src/metromq/protocol/session/records.py",
    "src/metromq/protocol/session/recovery.py",
    "src/metromq/protocol/session/routes.py",
    "src/metromq/protocol/session/session.py",
    "src/metromq/protocol/session/settings.py",
    "src/metromq/protocol/session/store.py",
    "src/metromq/protocol/topics/names.py",
    "src/metromq/protocol/topics/retained.py",
    "src/metromq/protocol/topics/tree.py",
    "src/metromq/protocol/wire/connecting.py",
    "src/metromq/protocol/wire/decode.py",
    "src/metromq/protocol/wire/encode.py",
    "src/metromq/protocol/wire/framer.py",
    "src/metromq/protocol/wire/packets.py",
    "src/metromq/protocol/wire/properties.py",
    "src/metromq/protocol/wire/reader.py",
    "src/metromq/protocol/wire/reasons.py",
    "src/metromq/protocol/wire/values.py",
]


def compiled() -> list[object]:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.environ.get("METROMQ_PURE") == "1" or not shutil.which(compiler):
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    return mypycify(HOT_MODULES, opt_level="3", debug_level="0") if HOT_MODULES else []


setup(ext_modules=compiled())
