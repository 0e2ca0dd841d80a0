"""The same job on a Spark cluster: a master and two workers of the pip package, on loopback.

One cluster for all tests: with the right to mount, no worker sees the other's directory for work, and the second sees
an empty directory in place of the lake on a path that is called blind.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from metromq.pipeline.keys import JournalKey
from metromq.pipeline.lake import Lake
from metromq.pipeline.landing import Landing
from metromq.pipeline.spark import find_java
from tests.pipeline.data import land
from tests.pipeline.processes import COMMAND, Program, until
from tests.pipeline.settings import LIGHT

pytestmark = pytest.mark.timeout(3600)
LAUNCHES = "Asked to launch executor"
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


LIGHT_JAVA = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True)
class Cluster:
    master: str
    workers: list[Program]
    blind: Path  # a directory in whose place the second worker sees an empty one


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.clean_up()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    work, blind = folder / "work", folder / "blind"
    for place in (work, blind):
        place.mkdir()
    made: list[Program] = []
    try:
        yield start_cluster(folder, made, {1: [work], 2: [work, blind]} if may_mount() else {}, blind)
    finally:
        for program in made:
            program.clean_up()


def start_cluster(folder: Path, programs: list[Program], hide: dict[int, list[Path]], blind: Path) -> Cluster:
    """`hide`: directories in whose place workers, by their number, see empty ones of their own. No worker knows
    how to reach an object store, unless the driver tells it."""
    environment = {"JAVA_HOME": find_java(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_DAEMON_JAVA_OPTS": LIGHT_JAVA}
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

    def hidden(places: list[Path]) -> tuple[str, ...]:
        command = "".join(f"mount -t tmpfs none {place} && " for place in places) + 'exec "$@"'
        return ("unshare", "--mount", "sh", "-c", command, "sh") if places else ()

    workers = [
        start(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            *address,
            *size,
            found[1],
            prefix=hidden(hide.get(number, [])),
        )
        for number in (1, 2)
    ]
    for worker in workers:
        until(lambda worker=worker: worker.says("Successfully registered with master"), "a worker's start")  # type: ignore[misc]
    return Cluster(found[1], workers, blind)


def start_job(folder: Path, lake: Lake, landing: Landing, master: str, programs: list[Program]) -> Program:
    settings = [
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.memory=512m",
        "spark.executor.cores=1",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",  # both executors, or the second may come too late
        "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
        "spark.cores.max=2",
        f"spark.executor.extraJavaOptions={LIGHT_JAVA}",
        *(f"{name}={value}" for name, value in LIGHT.items()),
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
def test_the_same_job_on_a_cluster(
    tmp_path: Path, lake: Lake, landing: Landing, cluster: Cluster, programs: list[Program]
) -> None:
    """With an object store the workers share nothing else."""
    for broker in ("b1", "b2"):
        for first in range(0, 200, 50):
            land(landing, broker, first, 50)
    before = [worker.text().count(LAUNCHES) for worker in cluster.workers]
    job = start_job(tmp_path, lake, landing, cluster.master, programs)
    assert job.wait() == 0, job.text()
    covered = {key: list(ranges) for key, ranges in lake.coverage().items()}
    assert covered == {JournalKey("b1"): [(0, 199)], JournalKey("b2"): [(0, 199)]}
    assert landing.files() == []
    for worker, launches in zip(cluster.workers, before, strict=True):
        assert worker.text().count(LAUNCHES) > launches


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_worker_that_does_not_see_the_lake(tmp_path: Path, cluster: Cluster, programs: list[Program]) -> None:
    """It writes to a disk of its own, and Spark calls that a success: nothing may be loaded or removed."""
    lake, landing = Lake(cluster.blind), Landing(str(tmp_path / "landing"))
    for first in range(0, 400, 50):
        land(landing, "b1", first, 50)
    files = landing.files()
    job = start_job(tmp_path, lake, landing, cluster.master, programs)
    assert job.wait() != 0, job.text()
    assert re.search(r"metromq: Spark wrote 400 rows of messages, but \d+ of them are in", job.text()), job.text()
    assert landing.files() == files
    assert lake.coverage() == {}
