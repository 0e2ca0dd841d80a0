"""An object store on loopback that speaks the protocol of Azure's Blob Storage: `azurite`, Microsoft's own emulator.

It must be 3.37: 3.35 gave every listing from its beginning, wherever it was asked to start, and the second commit to a
table failed ("Invalid table version: 1"). Three packages that it needs for its telemetry and for databases are left
out, so that it is installed in seconds.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import AzureFileSystem

from metromq.control.data_directory import hold_port
from tests.peers import npm_install, require

CONTAINER = "metromq"
ACCOUNT = "devstoreaccount1"  # which azurite has from the beginning, with this key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = 60.0
_PACKAGE = Path(__file__).parent / "azure"


@contextmanager
def azure_store(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of a program that uses it."""
    node, program = require("node"), _installed(folder / "node")
    with hold_port("127.0.0.1") as free:
        port: int = free.getsockname()[1]
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "objects")]
    with open(folder / "azure-store.log", "wb") as log:
        command = [node, str(program), *options, "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await(port, server)
        place = {f"{service}_authority": f"127.0.0.1:{port}" for service in ("blob_storage", "dfs_storage")}
        schemes = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        AzureFileSystem(ACCOUNT, account_key=KEY, **place, **schemes).create_dir(CONTAINER)
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}",
        }
    finally:
        server.kill()
        server.wait()


def _installed(directory: Path) -> Path:
    shutil.copytree(_PACKAGE, directory)
    npm_install(directory, "azurite")
    return directory / "node_modules/azurite/dist/src/blob/main.js"


def _await(port: int, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"azurite did not start (status {server.returncode}): see its log") from None
            time.sleep(0.05)
