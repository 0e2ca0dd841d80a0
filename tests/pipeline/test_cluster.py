"""The same job on a Spark cluster: a master and two workers of the pip package, on loopback."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.spark import find_java
from tests.pipeline.data import land
from tests.pipeline.processes import COMMAND, Program, until

pytestmark = pytest.mark.timeout(900)
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.clean_up()


def cluster(folder: Path, programs: list[Program], blind: dict[int, Path] | None = None) -> tuple[str, list[Program]]:
    """`blind`: directories in whose place workers, by their number, see an empty one of their own. No worker knows
    how to reach an object store, unless the driver tells it."""
    environment = {"JAVA_HOME": find_java(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local")}
    unset = ["env", *(word for name in os.environ if name.startswith("AWS_") for word in ("-u", name))]

    def start(name: str, *arguments: str, prefix: tuple[str, ...] = ()) -> Program:
        program = Program([*unset, *prefix, SPARK_CLASS, *arguments], folder / f"{name}.log", environment)
        programs.append(program)
        return program

    address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master = start("master", "org.apache.spark.deploy.master.Master", *address)
    until(lambda: master.says("Starting Spark master at spark://"), "the master's start")
    found = re.search(r"Starting Spark master at (spark://\S+)", master.text())
    assert found is not None
    size = ["--cores", "1", "--memory", "600m"]

    def hidden(place: Path | None) -> tuple[str, ...]:
        command = f'mount -t tmpfs none {place} && exec "$@"'
        return ("unshare", "--mount", "sh", "-c", command, "sh") if place is not None else ()

    workers = [
        start(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            *address,
            *size,
            found[1],
            prefix=hidden((blind or {}).get(number)),
        )
        for number in (1, 2)
    ]
    for worker in workers:
        until(lambda worker=worker: worker.says("Successfully registered with master"), "a worker's start")  # type: ignore[misc]
    return found[1], workers


def start_job(folder: Path, lake: Lake, landing: Landing, master: str, programs: list[Program]) -> Program:
    settings = [
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.memory=512m",
        "spark.executor.cores=1",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",  # both executors, or the second may come too late
        "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
        "spark.cores.max=2",
        "spark.sql.files.openCostInBytes=0",
        "spark.sql.files.maxPartitionBytes=10000",  # several tasks, so that both executors write
    ]
    arguments = ["--once", "--refresh", "0", "--lake", lake.root, "--landing", landing.root]
    arguments += ["--master", master, "--memory", "512m"]
    for setting in settings:
        arguments += ["--conf", setting]
    job = Program([*COMMAND, "pipeline", "run", *arguments], folder / "job.log")
    programs.append(job)
    return job


@pytest.mark.parametrize("lake", ["path", "s3"], indirect=True)
def test_the_same_job_on_a_cluster(tmp_path: Path, lake: Lake, landing: Landing, programs: list[Program]) -> None:
    """With an object store the workers share nothing else."""
    for broker in ("b1", "b2"):
        for first in range(0, 200, 50):
            land(landing, broker, first, 50)
    own = tmp_path / "work"
    own.mkdir()
    alone = not lake.store.local and may_mount()
    master, workers = cluster(tmp_path, programs, {1: own, 2: own} if alone else {})
    job = start_job(tmp_path, lake, landing, master, programs)
    assert job.wait() == 0, job.text()
    covered = {key: list(ranges) for key, ranges in lake.coverage().items()}
    assert covered == {JournalKey("b1"): [(0, 199)], JournalKey("b2"): [(0, 199)]}
    assert landing.files() == []
    for worker in workers:
        assert "Asked to launch executor" in worker.text()


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_worker_that_does_not_see_the_lake(tmp_path: Path, programs: list[Program]) -> None:
    """It writes to a disk of its own, and Spark calls that a success: nothing may be loaded or removed."""
    lake, landing = Lake(tmp_path / "lake"), Landing(str(tmp_path / "landing"))
    root = Path(lake.root)
    root.mkdir()
    for first in range(0, 400, 50):
        land(landing, "b1", first, 50)
    files = landing.files()
    master, _ = cluster(tmp_path, programs, blind={2: root})
    job = start_job(tmp_path, lake, landing, master, programs)
    assert job.wait() != 0, job.text()
    assert re.search(r"metromq: Spark wrote 400 rows of messages, but \d+ of them are in", job.text()), job.text()
    assert landing.files() == files
    assert lake.coverage() == {}
