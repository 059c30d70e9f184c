"""`register_source`: makes the format yt known to a session, on the versions of PySpark that have such."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.tuning import SWITCH
from yt_exactly_once.spark.tuning.start import started_sooner
from yt_exactly_once.spark.versions import require_formats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENVIRONMENT = ("YT_PROXY", "YT_TOKEN")
"""What Spark must pass on: its Python workers have the environment of the JVM, not that of the driver."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_OF_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
"""What Spark finds under the name of a data source in Python: this one, registered before."""


def register_source(spark: SparkSession, *, name: str = "yt", warm_up: bool = True) -> None:
    """Register the format `yt` in a session. Spark also finds it without this.

    What the call adds: the format takes `YT_PROXY` and `YT_TOKEN` as they are now, even if Spark was started
    before they were set.

    Spark looks for a format in the active session of the thread, and a new thread has none. To start a query
    that writes with the format on another thread, call this there.

    Args:
        name: of the format; without a registration it has the names `yt` and `yt_exactly_once`. A JAR
            on the class path may have the name `yt`, as SPYT's has.
        warm_up: start the Python processes that a source needs, and a job of one row, once for each Spark
            context. This runs in the background, while Spark prepares the query. So the first batch takes
            less time. Python processes for the format and for tasks of the sink then start with this
            package's `sitecustomize`. With `YT_EXACTLY_ONCE_TUNING=off` nothing of that happens.

    Raises:
        ConfigError: PySpark is older than 4.0; or Spark has a format of that name, which it would take
            instead of this one.
    """
    require_formats()
    from yt_exactly_once.spark.data_source import named  # noqa: PLC0415 - PySpark 3.5 cannot import them
    from yt_exactly_once.spark.tuning.warm_up import warm_up as start_warm_up  # noqa: PLC0415

    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The name of the format is {name!r}",
            remedy="Use letters, digits and underscores, beginning with a letter: 'yt_exactly_once'",
        )
    # Spark Connect has no context: there the workers have what the server gives them.
    environment = getattr(getattr(spark, "sparkContext", None), "environment", {})
    for variable in _ENVIRONMENT:
        environment.pop(variable, None)
        if variable in os.environ:
            environment[variable] = os.environ[variable]
    if SWITCH in os.environ:
        environment[SWITCH] = os.environ[SWITCH]
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is not None and warm_up:
        # Now, since Spark takes its time to look for the format.
        start_warm_up(spark)
    owner = _owner(spark, name)
    if owner is not None:
        raise _taken(name, owner)
    try:
        with started_sooner(spark):
            spark.dataSource.register(named(name))
    except AnalysisException as error:
        # PySpark 4.0 keeps a format that it has found by itself: this one.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise _taken(name, str(error)) from error
    if jvm is not None:
        session: Any = spark
        session._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001 - as createDataFrame does


def _owner(spark: SparkSession, name: str) -> str | None:
    """Return the class of a JAR that has the name; Spark Connect does not show it."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    sources = jvm.org.apache.spark.sql.execution.datasources
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - no other way to the class path
    try:
        loaded = sources.DataSource.lookupDataSourceV2(name, conf)
    except Exception:  # noqa: BLE001 - Spark raises when it finds none
        return None
    owner = str(loaded.get().getClass().getName()) if loaded.isDefined() else _OF_PYTHON
    return None if owner == _OF_PYTHON else owner


def _taken(name: str, owner: str) -> ConfigError:
    return ConfigError(
        f"Spark has a format {name} already: {owner}",
        remedy="Use format('yt_exactly_once'), which Spark finds without a registration. Or take "
        "the JAR off the class path",
        option="name",
    )
