"""What a queue gives out that was opened: a reader of its rows as they are."""

from types import SimpleNamespace

import pytest
from pyspark.sql.types import LongType, StructType

from yt_exactly_once.errors import SchemaMismatchError
from yt_exactly_once.spark.source import reader
from yt_exactly_once.spark.source.opening import OpenedQueue
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.packed import PackedQueue
from yt_exactly_once.spark.source.reader import QueueStreamReader, SelfLimitingReader, reader_of
from yt_exactly_once.ytsaurus.browsing import Cluster

LOCAL = Cluster("local", "1-2-3-4")
COLUMNS = StructType().add("id", LongType())
OPTIONS = SourceOptions.parse({"path": "//queue", "proxy": "localhost:80"})
OPENED = OpenedQueue(OPTIONS, None, LOCAL, None, SimpleNamespace(spark_schema=COLUMNS))
PACKED = PackedQueue(OPENED)


@pytest.mark.parametrize(
    ("has_admission_control", "kind"), [(True, QueueStreamReader), (False, SelfLimitingReader)]
)
def test_reader_is_of_the_kind_that_spark_asks(monkeypatch, has_admission_control, kind):
    """Older versions do not ask for a limit."""
    monkeypatch.setattr(reader.versions, "HAS_ADMISSION_CONTROL", has_admission_control)
    assert type(reader_of(PACKED, COLUMNS, {})) is kind


def test_schema_of_the_users_own_is_refused():
    """It could only rename or retype silently."""
    with pytest.raises(SchemaMismatchError, match="Leave"):
        reader_of(PACKED, StructType().add("other", LongType()), {})
