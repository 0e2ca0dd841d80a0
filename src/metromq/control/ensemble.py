"""A ZooKeeper ensemble of one or three servers on this machine, for cities that name none."""

import asyncio
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from metromq.control.data_directory import hold_port, is_free
from metromq.control.processes import ProcessSpec
from metromq.errors import UsageError
from metromq.federation import City, split_address

JARS = (Path("/usr/share/java/slf4j-simple.jar"), Path("/usr/share/java/zookeeper.jar"))
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
LOG_FILE = "zookeeper.log"
# A server does not look at its standard input, so a shell waits there until whoever started it has ended.
UNTIL_EOF = (
    'exec 3<&0; "$@" 3<&- & server=$!; { while read -r line <&3; do :; done; kill $server; } & watcher=$!; '
    'trap "kill $server" TERM; wait $server; code=$?; wait $server; kill $watcher 2>/dev/null; exit $code'
)


def is_needed(city: City) -> bool:
    return city.coordination == "zookeeper" and not city.zookeeper.servers


def check_package() -> None:
    if shutil.which("java") is None or not all(jar.exists() for jar in JARS):
        raise UsageError(
            'coordination = "zookeeper" without servers starts an ensemble here, which needs the Debian package: '
            "apt install zookeeper; or name the servers of an ensemble in [zookeeper]"
        )


def with_local_ensemble(city: City, earlier: City | None) -> City:
    """The city with the addresses of servers on this machine; those of an earlier start, if there was one."""
    count = city.zookeeper.local_servers
    servers = earlier.zookeeper.servers if earlier is not None else ()
    if len(servers) != count or not all(is_free(*split_address(server)) for server in servers):
        servers = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    return replace(city, zookeeper=replace(city.zookeeper, servers=servers))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        return [stack.enter_context(hold_port("127.0.0.1")).getsockname()[1] for _ in range(count)]


def server_programs(servers: tuple[str, ...], data: Path) -> tuple[ProcessSpec, ...]:
    """Writes the servers' files, and says how each is started."""
    check_package()
    among = free_ports(2 * len(servers))
    quorum = [f"server.{one}=127.0.0.1:{among[2 * one - 2]}:{among[2 * one - 1]}" for one in range(1, len(servers) + 1)]
    return tuple(
        _program(number, address, quorum if len(servers) > 1 else [], data / f"zookeeper-{number}")
        for number, address in enumerate(servers, 1)
    )


def _program(number: int, address: str, quorum: Iterable[str], place: Path) -> ProcessSpec:
    host, port = split_address(address)
    (place / "data").mkdir(parents=True, exist_ok=True)
    (place / "data" / "myid").write_text(f"{number}\n")
    settings = (
        f"dataDir={(place / 'data').absolute()}",
        f"clientPortAddress={host}",
        f"clientPort={port}",
        *("tickTime=250", "initLimit=40", "syncLimit=20", "maxClientCnxns=0"),
        *("admin.enableServer=false", "4lw.commands.whitelist=srvr"),
        *("minSessionTimeout=500", "maxSessionTimeout=600000"),
        *("autopurge.snapRetainCount=3", "autopurge.purgeInterval=1"),
        *quorum,
    )
    file = place / "zoo.cfg"
    file.write_text("\n".join((*settings, "")))
    paths = ":".join(map(str, (place.absolute(), *JARS)))
    # Servers of one city live on little: the quick compiler is enough, and a second one would cost more than it saves.
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    java = ("java", "-Xmx256m", *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", paths, MAIN, str(file))
    command = ("sh", "-c", UNTIL_EOF, "sh", *java)

    async def is_ready(pid: int) -> bool:
        return "Mode:" in await asked(host, port)

    return ProcessSpec(f"zookeeper-{number}", "coordination", command, place / LOG_FILE, is_ready)


async def asked(host: str, port: int) -> str:
    """A server's own account of itself; empty: it does not answer."""
    try:
        async with asyncio.timeout(2.0):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"srvr")
                return (await reader.read()).decode()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return ""
