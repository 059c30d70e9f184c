"""What a session is told when the source is registered."""

import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark.errors import AnalysisException

from yt_exactly_once import register_source
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat import versions
from yt_exactly_once.spark.data_source import YtDataSource
from yt_exactly_once.spark.tuning import SWITCH


def session(**context):
    registered = []
    return SimpleNamespace(
        dataSource=SimpleNamespace(register=registered.append), registered=registered, **context
    )


def test_workers_get_the_variables_of_the_driver(monkeypatch):
    """Their own environment is that of the JVM, which may have been started before."""
    monkeypatch.setenv("YT_PROXY", "proxy.example:80")
    monkeypatch.delenv("YT_TOKEN", raising=False)
    environment = {"YT_TOKEN": "of-an-earlier-registration", "OTHER": "kept"}
    monkeypatch.setenv(SWITCH, "off")
    spark = session(sparkContext=Mock(environment=environment))
    register_source(spark)
    assert environment == {"YT_PROXY": "proxy.example:80", "OTHER": "kept", SWITCH: "off"}
    assert spark.registered == [YtDataSource]


def test_session_without_a_context_is_registered_too():
    """Spark Connect: the server's environment counts there."""
    spark = session()
    register_source(spark)
    assert spark.registered == [YtDataSource]


def test_another_name_can_be_taken():
    """For a session whose class path has a format yt."""
    spark = session()
    register_source(spark, name="yt_exactly_once")
    (registered,) = spark.registered
    assert registered.name() == "yt_exactly_once"
    assert issubclass(registered, YtDataSource)
    assert YtDataSource.name() == "yt"


def test_name_that_is_no_name_is_refused():
    """Spark would look for a class."""
    with pytest.raises(ConfigError, match="letters, digits"):
        register_source(session(), name="tech.ytsaurus.yt")


def test_name_that_spark_refuses_is_an_error_with_another_name():
    """A session without a JVM cannot look for the name before."""

    def refuse(_source):
        raise AnalysisException("FOUND_MULTIPLE_DATA_SOURCES")

    spark = SimpleNamespace(dataSource=SimpleNamespace(register=refuse))
    with pytest.raises(ConfigError, match=r"a format yt already.*format\('yt_exactly_once'\)"):
        register_source(spark)


class FoundBySparkError(AnalysisException):
    def getCondition(self):  # noqa: N802 - Spark's name
        return "DATA_SOURCE_ALREADY_EXISTS"


def test_format_that_spark_has_found_by_itself_is_no_error():
    """PySpark 4.0 takes no other one of its name then."""
    register = Mock(side_effect=FoundBySparkError("Data source 'yt' already exists"))
    register_source(SimpleNamespace(dataSource=SimpleNamespace(register=register)))
    register.assert_called_once_with(YtDataSource)


def test_old_spark_is_refused_with_a_way_out(monkeypatch):
    """3.5 has no data sources in Python."""
    monkeypatch.setattr(versions, "SPARK", (3, 5))
    with pytest.raises(ConfigError, match=r"pyspark>=4.0.*foreachBatch"):
        register_source(session())


def test_sink_needs_no_data_sources_in_python():
    """PySpark 3.5 has none, and there the sink works without the format."""
    old = (
        "import sys, pyspark; pyspark.__version__ = '3.5.5'; "
        "sys.modules['pyspark.sql.datasource'] = None; "
        "import yt_exactly_once.spark.doors.transactional_sink, yt_exactly_once.spark.registration"
    )
    subprocess.run([sys.executable, "-c", old], check=True)
