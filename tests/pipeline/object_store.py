"""An object store on loopback that speaks the S3 protocol, for tests and benches."""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import S3FileSystem

from metromq.control.places import hold_port
from tests.pipeline.processes import Program, until

BUCKET = "metromq-tests"


@contextmanager
def object_store(folder: Path) -> Iterator[dict[str, str]]:
    """The environment that names a running server with an empty bucket."""
    with hold_port("127.0.0.1") as free:
        port: int = free.getsockname()[1]
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3", "LOG_LEVEL": "WARNING"}
    settings |= {"S3_PERSIST": "1", "S3_DATA_DIR": str(folder / "objects")}
    server = Program([sys.executable, "-m", "ministack"], folder / "object-store.log", settings)
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    try:
        until(lambda: server.says("") and _answers(environment["AWS_ENDPOINT_URL"]), "the object store's start")
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        files = S3FileSystem(
            access_key="test",
            secret_key="test",
            region="us-east-1",
            endpoint_override=environment["AWS_ENDPOINT_URL"],
            allow_bucket_creation=True,
        )
        files.create_dir(BUCKET)
        yield environment
    finally:
        server.clean_up()


def _answers(endpoint: str) -> bool:
    try:
        urllib.request.urlopen(endpoint, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
