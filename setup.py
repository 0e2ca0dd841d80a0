"""Compiles the hot rooms with mypyc when a C compiler is there; METROMQ_PURE=1 leaves them as plain Python."""

import os
import shutil
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORES = os.cpu_count() or 1

# Everything that a message passes on its way through a broker, and the planner's millions of small steps; the rest
# stays plain Python.
HOT_MODULES: list[str] = [
    *(str(path) for path in sorted(Path("src/metromq/protocol").rglob("*.py")) if path.name != "__init__.py"),
    "src/metromq/journal/codec.py",
    "src/metromq/journal/commit.py",
    "src/metromq/journal/journal.py",
    "src/metromq/journal/segment.py",
    "src/metromq/journal/shelf.py",
    "src/metromq/journal/snapshot.py",
    "src/metromq/broker/stream.py",
    "src/metromq/broker/vigil.py",
    "src/metromq/broker/write_cycle.py",
    *(f"src/metromq/gateway/{name}.py" for name in ("core", "effects", "packet_ids", "runs", "table", "tunnel")),
    *(f"src/metromq/client/core/{name}.py" for name in ("client_core", "effects", "outbox", "unsettled")),
    *(f"src/metromq/planning/{name}.py" for name in ("device_bound", "device_proof", "device_sets", "long_anneal")),
]

# What brokers do all the time though nothing happens: they greet each other, and look whose time has come. A storm of
# simulated brokers spends most of its time here. Classes in which tests plant bugs are compiled as plain classes
# (`native_class=False`), so that they can.
HOT_MODULES += [
    *(
        f"src/metromq/federation/{name}.py"
        for name in (
            *(
                "announcer",
                "city_changes",
                "clean_starts",
                "clock_skew",
                "descriptions",
                "directory",
                "distribution",
                "effects",
            ),
            *("greetings", "handover", "hop", "hybrid_clock", "interest", "interest_exchange", "node"),
            *("outgoing_frames", "reach", "route_book", "silences", "stages", "summaries", "takeover", "wills"),
        )
    ),
    *(
        f"src/metromq/federation/coordination/{name}.py"
        for name in ("contacts", "coordinator", "embedded", "facts", "following", "rumours", "steps", "watch")
    ),
    *(
        f"src/metromq/federation/links/{name}.py"
        for name in (
            *("batch", "frame_bytes", "frames", "inbox", "link", "mqtt_transport", "relay", "routing_slip", "runs"),
            *("transport", "versions"),
        )
    ),
    *(
        f"src/metromq/federation/host/{name}.py"
        for name in (
            *("arrivals", "catch_up", "copies", "departures", "draining", "host", "hub_answers", "last_wills"),
            *("leaving", "marks", "peer_links", "receiving", "retained_versions", "roaming", "session_parcels"),
            "timers",
        )
    ),
    *(f"src/metromq/lab/sim/{name}.py" for name in ("clock", "disk", "network", "sim_broker", "sim_client")),
]


def compiled() -> list[Extension]:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if os.environ.get("METROMQ_PURE") == "1" or not shutil.which(compiler):
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    # A C file per module takes less time than one that has them all, and every core can compile some of them.
    extensions: list[Extension] = mypycify(HOT_MODULES, opt_level="3", debug_level="0", multi_file=True)
    for extension in extensions:
        # Modules call each other directly: nobody outside of the extension may stand in for their functions.
        extension.extra_compile_args.append("-fvisibility=hidden")
    return extensions


class BuildOnEveryCore(build_ext):
    """One large extension has nearly all the code, and each module a small one, which are compiled beside it."""

    def build_extension(self, extension: Extension) -> None:
        def compiled(source: str) -> list[str]:
            objects: list[str] = self.compiler.compile(
                [source],
                self.build_temp,
                include_dirs=extension.include_dirs,
                extra_postargs=extension.extra_compile_args,
            )
            return objects

        if len(extension.sources) > 1:
            with ThreadPoolExecutor(CORES) as pool:
                extension.extra_objects += chain.from_iterable(pool.map(compiled, extension.sources))
            extension.sources = []
        super().build_extension(extension)


setup(ext_modules=compiled(), cmdclass={"build_ext": BuildOnEveryCore}, options={"build_ext": {"parallel": CORES}})
