"""Ways into the JVM of a session that PySpark does not promise. Spark Connect has none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCES = "org.apache.spark.sql.execution.datasources.v2.python"

_OF_PYTHON = f"{_SOURCES}.PythonDataSourceV2"
"""What Spark finds under the name of a data source in Python."""


def jvm_of(session: SparkSession) -> Any | None:
    """Return the JVM that this process talks to; `None` on Spark Connect."""
    return getattr(session, "_jvm", None)


def pins_threads(session: SparkSession) -> bool:
    """Return whether each Python thread has a thread of the JVM of its own (`PYSPARK_PIN_THREAD`)."""
    from py4j.clientserver import ClientServer  # noqa: PLC0415 - Spark Connect may have none

    gateway = getattr(session.sparkContext, "_gateway", None)
    return gateway is None or isinstance(gateway, ClientServer)


def session_in(frame: DataFrame) -> Any:
    """Return the session of a DataFrame, without a call to the JVM."""
    return frame.sparkSession._jsparkSession  # noqa: SLF001


def queries_in(frame: DataFrame) -> Any:
    """Return the streaming queries that are active, by id."""
    return session_in(frame).sharedState().activeStreamingQueries()


def execution_of(frame: DataFrame) -> Any:
    """Return how Spark would compute a DataFrame."""
    return frame._jdf.queryExecution()  # noqa: SLF001


def hadoop_of(session: SparkSession) -> Any | None:
    """Return the settings of Hadoop that a session's jobs get; `None` on Spark Connect."""
    context = getattr(session, "_jsc", None)
    return None if context is None else context.hadoopConfiguration()


def owner_of_format(session: SparkSession, name: str) -> str | None:
    """Return the class of the JAR that has the name of a format; `None` without one, or on Spark Connect."""
    jvm = jvm_of(session)
    if jvm is None:
        return None
    conf = session._jsparkSession.sessionState().conf()  # noqa: SLF001
    sources = jvm.org.apache.spark.sql.execution.datasources
    try:
        loaded = sources.DataSource.lookupDataSourceV2(name, conf)
    except Exception:  # noqa: BLE001 - Spark raises when it finds none
        return None
    owner = str(loaded.get().getClass().getName()) if loaded.isDefined() else _OF_PYTHON
    return None if owner == _OF_PYTHON else owner


def make_active(session: SparkSession) -> None:
    """Make a session the active one of this thread, as `createDataFrame` does; nothing on Spark Connect."""
    jvm, own = jvm_of(session), session
    if jvm is not None:
        own._get_j_spark_session_class(jvm).setActiveSession(own._jsparkSession)  # noqa: SLF001


def open_format(session: SparkSession, function: Any, name: str) -> None:
    """Let Spark's Python processes open a data source as for a query, and pass its reader on."""
    jvm: Any = jvm_of(session)
    source = getattr(jvm, f"{_SOURCES}.UserDefinedPythonDataSource")(function)
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty()
    created = source.createDataSourceInPython(name, options, jvm.scala.Option.empty())
    source.createReadInfoInPython(created, created.schema(), False)


def copy_folder(session: SparkSession, location: str, folder: str) -> None:
    """Copy a folder to this machine, from any file system that Spark can read; raise what Hadoop raises."""
    jvm, conf = jvm_of(session), hadoop_of(session)
    assert jvm is not None
    fs = jvm.org.apache.hadoop.fs
    source, target = fs.Path(location), fs.Path(f"file://{folder}")
    removes = False
    files = source.getFileSystem(conf), source, target.getFileSystem(conf), target
    fs.FileUtil.copy(*files, removes, conf)
