"""`register_source`: makes the format yt known to a session, on the versions of PySpark that have such."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.jvm import jvm_of, make_active, owner_of_format
from yt_exactly_once.spark.compat.versions import is_known_format, require_formats
from yt_exactly_once.spark.tuning import SWITCH
from yt_exactly_once.spark.tuning.start import started_sooner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENVIRONMENT = ("YT_PROXY", "YT_TOKEN")
"""What Spark must pass on: its Python workers have the environment of the JVM, not that of the driver."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


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
    if jvm_of(spark) is not None and warm_up:
        # Now, since Spark takes its time to look for the format.
        start_warm_up(spark)
    owner = owner_of_format(spark, name)
    if owner is not None:
        raise _taken(name, owner)
    try:
        with started_sooner(spark):
            spark.dataSource.register(named(name))
    except AnalysisException as error:
        if not is_known_format(error):
            raise _taken(name, str(error)) from error
    make_active(spark)


def _taken(name: str, owner: str) -> ConfigError:
    return ConfigError(
        f"Spark has a format {name} already: {owner}",
        remedy="Use format('yt_exactly_once'), which Spark finds without a registration. Or take "
        "the JAR off the class path",
        option="name",
    )
