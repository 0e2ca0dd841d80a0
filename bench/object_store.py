"""An object store on loopback that speaks the S3 protocol, for benches and tests."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import S3FileSystem

from metromq.control.data_directory import hold_port

BUCKET = "metromq"
START_S = 120.0


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running server with an empty bucket, and the environment of a program that uses it."""

    environment: dict[str, str]
    pid: int


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """`ministack`, with its objects in a folder."""
    with hold_port("127.0.0.1") as free:
        port: int = free.getsockname()[1]
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3", "LOG_LEVEL": "WARNING"}
    settings |= {"S3_PERSIST": "1", "S3_DATA_DIR": str(folder / "objects")}
    with open(folder / "object-store.log", "wb") as log:
        command = [sys.executable, "-m", "ministack"]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | settings)
    endpoint = f"http://127.0.0.1:{port}"
    environment = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    try:
        _await(endpoint, server)
        S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            endpoint_override=endpoint,
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        yield ObjectStore(environment | {"AWS_ENDPOINT_URL": endpoint}, server.pid)
    finally:
        server.kill()
        server.wait()


def _await(endpoint: str, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S
    while not _answers(endpoint):
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the object store did not start (status {server.returncode}): see its log")
        time.sleep(0.05)


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
