"""The same job on a Spark cluster: a master and two workers of the pip package, on loopback."""

import re
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


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.clean_up()


def cluster(folder: Path, programs: list[Program]) -> tuple[str, list[Program]]:
    environment = {"JAVA_HOME": find_java(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local")}

    def start(name: str, *arguments: str) -> Program:
        program = Program([SPARK_CLASS, *arguments], folder / f"{name}.log", environment)
        programs.append(program)
        return program

    address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master = start("master", "org.apache.spark.deploy.master.Master", *address)
    until(lambda: master.says("Starting Spark master at spark://"), "the master's start")
    found = re.search(r"Starting Spark master at (spark://\S+)", master.text())
    assert found is not None
    size = ["--cores", "1", "--memory", "600m"]
    workers = [
        start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *address, *size, found[1])
        for number in (1, 2)
    ]
    for worker in workers:
        until(lambda worker=worker: worker.says("Successfully registered with master"), "a worker's start")  # type: ignore[misc]
    return found[1], workers


def test_the_same_job_on_a_cluster(tmp_path: Path, programs: list[Program]) -> None:
    lake = Lake(tmp_path / "lake")
    landing = Landing(lake.landing)
    for broker in ("b1", "b2"):
        for first in range(0, 200, 50):
            land(landing, broker, first, 50)
    master, workers = cluster(tmp_path, programs)
    settings = [
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.memory=512m",
        "spark.executor.cores=1",
        "spark.scheduler.minRegisteredResourcesRatio=1.0",  # both executors, or the second may come too late
        "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
        "spark.cores.max=2",
    ]
    arguments = ["--once", "--refresh", "0", "--lake", str(lake.root), "--master", master, "--memory", "512m"]
    for setting in settings:
        arguments += ["--conf", setting]
    job = Program([*COMMAND, "pipeline", "run", *arguments], tmp_path / "job.log")
    programs.append(job)
    assert job.wait() == 0, job.text()
    covered = {key: list(ranges) for key, ranges in lake.coverage().items()}
    assert covered == {JournalKey("b1"): [(0, 199)], JournalKey("b2"): [(0, 199)]}
    assert landing.files() == []
    for worker in workers:
        assert "Asked to launch executor" in worker.text()
