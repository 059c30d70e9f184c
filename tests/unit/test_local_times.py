"""Local times become instants: they order nothing where the clocks of the session change."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampNTZType

from tests.unit.test_preparation import ID, KEY, Cluster
from yt_exactly_once import Changes, Target
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.doors import frame_rows
from yt_exactly_once.spark.doors.frame_rows import FrameRows
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.targets import prepare_target, require_no_local_times

AT = {"name": "at", "type_v3": "timestamp"}
INSTANTS = spark_schema_of(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
LOCAL = StructType([StructField("id", LongType()), StructField("at", TimestampNTZType())])


@pytest.mark.parametrize(
    ("zone", "local"),
    [
        ("Europe/Paris", ["at"]),
        ("Europe/Moscow", ["at"]),
        ("CET", ["at"]),
        (None, ["at"]),
        ("UTC", []),
        ("Z", []),
        ("Etc/UTC", []),
        ("+03:00", []),
        ("UTC+3", []),
        ("GMT-08:30", []),
    ],
)
def test_zone_of_the_session_says_whether_its_clocks_change(monkeypatch, zone, local):
    """A zone with a name may have changed them at some time."""
    monkeypatch.setattr(frame_rows, "written", lambda frame: frame)
    conf = {} if zone is None else {"spark.sql.session.timeZone": zone}
    frame = SimpleNamespace(schema=LOCAL, sparkSession=SimpleNamespace(conf=conf))
    assert list(FrameRows(frame).local_times(Target("//t"))) == local


@pytest.mark.parametrize(
    ("columns", "options", "is_refused"),
    [
        ([ID, AT], {}, False),
        ([KEY, AT], {}, False),
        ([{**AT, "sort_order": "ascending"}, ID], {}, True),
        ([KEY, AT], {"changes": Changes(sequence="at")}, True),
    ],
)
def test_local_time_is_refused_in_a_key_and_in_a_sequence(columns, options, is_refused):
    cluster = Cluster()
    cluster.table("//t", columns)
    prepared = prepare_target(
        cluster, Target("//t", **options), INSTANTS, SinkOptions("//t", proxy="x")
    )
    require_no_local_times(prepared, [])
    if not is_refused:
        require_no_local_times(prepared, ["at"])
        return
    with pytest.raises(ConfigError, match="at is a local time") as raised:
        require_no_local_times(prepared, ["at"])
    assert "spark.sql.session.timeZone=UTC" in raised.value.remedy
