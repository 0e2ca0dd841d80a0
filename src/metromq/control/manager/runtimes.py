"""What programs run in: plain processes, which outlive the manager and are found again, or containers of podman."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from metromq.control.core import ResourceLimits
from metromq.errors import MetroError

STOP_S = 10.0
LOOK_S = 0.05
FOLLOW_S = 0.2
CHUNK_BYTES = 1 << 16
PODMAN_S = 120.0


class RuntimeFailed(MetroError):
    """A program cannot be started or stopped; the message says why."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A program to run under a name of its own."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    image: str = ""
    rootfs: str = ""
    shared: str = ""  # a directory that a container sees under the same path


class Runtime(Protocol):
    """Doing anything twice does no harm."""

    async def prepare(self, unit: Unit) -> None: ...

    async def start(self, unit: Unit) -> None: ...

    async def stop(self, name: str) -> None: ...

    async def is_running(self, name: str) -> bool: ...

    async def begin_log(self, name: str) -> None:
        """Another program gets the name: what the earlier one printed is not its own."""
        ...

    async def how_it_ended(self, name: str) -> str:
        """Such as "with status 3"; empty: nobody knows, as a manager before us started it."""
        ...

    def logs(self, name: str, follow: bool) -> AsyncIterator[bytes]: ...


# The shell writes its number down before it becomes the program, so that a manager that dies between the two leaves
# nothing behind that the next one cannot stop.
_LAUNCH = 'echo $$ > "$0" && exec "$@"'
_LAUNCH_LIMITED = 'ulimit -v "$1" && shift && echo $$ > "$0" && exec "$@"'


class ProcessRuntime:
    """Each program holds a lock on a file for as long as it lives: whoever finds it locked knows that it runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: list[subprocess.Popen[bytes]] = []
        self._last: dict[str, subprocess.Popen[bytes]] = {}  # of each name
        directory.mkdir(parents=True, exist_ok=True)

    def _file(self, name: str, kind: str) -> Path:
        return self._directory / f"{name}.{kind}"

    async def prepare(self, unit: Unit) -> None:
        if shutil.which(unit.command[0]) is None:
            raise RuntimeFailed(f"there is no program {unit.command[0]} on this machine")

    async def start(self, unit: Unit) -> None:
        self._reap()
        lock = os.open(self._file(unit.name, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return  # it runs
        pid_file = str(self._file(unit.name, "pid"))
        self._file(unit.name, "pid").unlink(missing_ok=True)
        limit = [str(unit.limits.memory_mb * 1024)] if unit.limits.memory_mb else []
        script = _LAUNCH_LIMITED if limit else _LAUNCH
        command = ["/bin/sh", "-c", script, pid_file, *limit, *unit.command]
        try:
            child = self._last[unit.name] = self._spawned(unit, command, lock)
            self._children.append(child)
        except OSError as error:
            raise RuntimeFailed(f"{unit.name} cannot be started: {error}") from error
        finally:
            os.close(lock)  # the program holds it now

    def _spawned(self, unit: Unit, command: list[str], lock: int) -> subprocess.Popen[bytes]:
        with open(self._file(unit.name, "log"), "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **unit.environment},
                pass_fds=(lock,),
                start_new_session=True,
            )

    async def stop(self, name: str) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = asyncio.get_running_loop().time() + STOP_S
            while await self.is_running(name):
                pid = self._pid(name)
                if pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, number)
                if asyncio.get_running_loop().time() > end:
                    break
                await asyncio.sleep(LOOK_S)
        self._reap()
        if await self.is_running(name):
            raise RuntimeFailed(f"{name} cannot be stopped")

    async def is_running(self, name: str) -> bool:
        self._reap()
        try:
            lock = os.open(self._file(name, "lock"), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    async def begin_log(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._file(name, "log").replace(self._file(name, "log.old"))

    async def how_it_ended(self, name: str) -> str:
        child = self._last.get(name)
        code = child.poll() if child is not None else None
        if code is None:
            return ""
        return f"by signal {-code}" if code < 0 else f"with status {code}"

    def _pid(self, name: str) -> int:
        """0: the shell has not written it yet."""
        try:
            return int(self._file(name, "pid").read_text())
        except (OSError, ValueError):
            return 0

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    async def logs(self, name: str, follow: bool) -> AsyncIterator[bytes]:
        try:
            file = open(self._file(name, "log"), "rb")  # noqa: ASYNC230, SIM115
        except FileNotFoundError:
            return
        with file:
            while True:
                data = file.read(CHUNK_BYTES)
                if data:
                    yield data
                elif not follow:
                    return
                else:
                    await asyncio.sleep(FOLLOW_S)


class PodmanRuntime:
    """Containers by name, on the machine's own network; without a daemon, they too outlive the manager."""

    def __init__(self, directory: Path) -> None:
        self._mark = f"metromq-{zlib.crc32(str(directory.resolve()).encode()):08x}"

    def _container(self, name: str) -> str:
        return f"{self._mark}-{name}"

    async def _podman(self, *words: str) -> tuple[int, str]:
        program = shutil.which("podman")
        if program is None:
            raise RuntimeFailed("podman is not installed on this machine")
        command = (program, "--cgroup-manager", "cgroupfs", "--runtime", "runc", *words)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), PODMAN_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RuntimeFailed(f"podman {words[0]} takes too long") from None
        return process.returncode or 0, said.decode(errors="replace").strip()

    async def prepare(self, unit: Unit) -> None:
        if unit.rootfs:
            if not os.path.isdir(unit.rootfs):  # noqa: ASYNC240
                raise RuntimeFailed(f"there is no directory {unit.rootfs}")
            await self._podman("--version")
            return
        code, _ = await self._podman("image", "exists", unit.image)
        if code:
            code, said = await self._podman("pull", "--quiet", unit.image)
            if code:
                raise RuntimeFailed(f"image {unit.image} cannot be pulled: {said[-300:]}")

    async def start(self, unit: Unit) -> None:
        if await self.is_running(unit.name):
            return
        await self._podman("rm", "--force", "--ignore", self._container(unit.name))
        options = ["--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        options += ["--cpus", f"{unit.limits.cpus:g}"] if unit.limits.cpus else []
        options += ["--memory", f"{unit.limits.memory_mb}m"] if unit.limits.memory_mb else []
        options += ["--volume", f"{unit.shared}:{unit.shared}"] if unit.shared else []
        for name, value in unit.environment.items():
            options += ["--env", f"{name}={value}"]
        what = ["--rootfs", unit.rootfs] if unit.rootfs else [unit.image]
        code, said = await self._podman(
            "run", "--detach", "--name", self._container(unit.name), *options, *what, *unit.command
        )
        if code:
            raise RuntimeFailed(f"{unit.name} cannot be started: {said[-500:]}")

    async def stop(self, name: str) -> None:
        code, said = await self._podman("rm", "--force", "--ignore", "--time", "5", self._container(name))
        if code:
            raise RuntimeFailed(f"{name} cannot be stopped: {said[-300:]}")

    async def is_running(self, name: str) -> bool:
        code, said = await self._podman("inspect", "--format", "{{.State.Running}}", self._container(name))
        return not code and said == "true"

    async def begin_log(self, name: str) -> None:
        """A container that is started has nothing of those before it."""

    async def how_it_ended(self, name: str) -> str:
        code, said = await self._podman("inspect", "--format", "{{.State.ExitCode}}", self._container(name))
        return "" if code else f"with status {said}"

    async def logs(self, name: str, follow: bool) -> AsyncIterator[bytes]:
        program = shutil.which("podman")
        if program is None:
            return
        words = ("logs", *(("--follow",) if follow else ()), self._container(name))
        process = await asyncio.create_subprocess_exec(
            program, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        try:
            while data := await process.stdout.read(CHUNK_BYTES):
                yield data
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()
