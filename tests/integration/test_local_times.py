"""Local times are written as the instants that Spark finds for them in the time zone of the session."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import PySparkException

from tests.integration.streams import QUICK, TO_THE_END, finish
from yt_exactly_once import Changes, Target, TransactionalSink, create_table
from yt_exactly_once.errors import ConfigError

pytestmark = pytest.mark.further

ZONE = ZoneInfo("Europe/Paris")
TEXTS = [
    "1960-01-01 00:00:00.000001",
    "2026-03-29 02:30:00",  # skipped
    "2026-10-25 02:30:00",  # there twice
    "2026-07-01 12:00:00",
]


@pytest.fixture
def local(spark, tmp_path):
    """A stream of rows with local times, at the top and inside of other types."""
    spark.conf.set("spark.sql.session.timeZone", ZONE.key)
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "rows.txt").write_text("\n".join(TEXTS))
    at = "cast(value as timestamp_ntz)"
    yield spark.readStream.text(str(folder)).selectExpr(
        "value as text",
        f"{at} as at",
        f"array({at}, null) as several",
        f"named_struct('inner', map('k', {at})) as deep",
    )
    spark.conf.unset("spark.sql.session.timeZone")


def run(writer, tmp_path):
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(**TO_THE_END).start())


def test_local_times_become_instants(cluster, client, tmp, local, tmp_path):
    path, proxy = f"{tmp}/times", cluster.proxy_urls[0]
    create_table(path, local.schema, proxy=proxy)
    sink = TransactionalSink(path, proxy=proxy, retry=QUICK)
    sink.check(local)
    run(local.writeStream.foreachBatch(sink), tmp_path)
    found = {row["text"]: row for row in client.select_rows(f"* from [{path}]")}
    assert list(found) == TEXTS
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    for text, row in found.items():
        instant = dt.datetime.fromisoformat(text).replace(tzinfo=ZONE).astimezone(dt.UTC)
        wanted = (instant - epoch) // dt.timedelta(microseconds=1)
        assert row["at"] == wanted
        assert row["several"] == [wanted, None]
        assert row["deep"] == {"inner": [["k", wanted]]}


@pytest.mark.parametrize("zone", [ZONE.key, "UTC", "+03:00", "Europe/Moscow"])
@pytest.mark.parametrize("role", ["key", "sequence"])
def test_they_order_nothing_where_clocks_change(spark, cluster, tmp, local, zone, role):
    """Two of them would be one instant, or come in another order: a row would replace a newer one."""
    path, proxy = f"{tmp}/times", cluster.proxy_urls[0]
    rows = local.select("text", "at")
    spark.conf.set("spark.sql.session.timeZone", zone)
    create_table(path, rows.schema, key_columns=["at" if role == "key" else "text"], proxy=proxy)
    changes = Changes(sequence="at") if role == "sequence" else None
    sink = TransactionalSink(Target(path, changes=changes), proxy=proxy)
    sink.check(rows.selectExpr("text", "cast(at as timestamp_ltz) as at"))
    if zone in {"UTC", "+03:00"}:
        sink.check(rows)
        return
    with pytest.raises(ConfigError, match="at is a local time") as raised:
        sink.check(rows)
    assert "CAST(at AS TIMESTAMP_LTZ)" in raised.value.remedy


def test_format_refuses_them(cluster, tmp, local, tmp_path):
    """It writes where there is no session."""
    path, proxy = f"{tmp}/times", cluster.proxy_urls[0]
    create_table(path, local.schema, proxy=proxy)
    writer = local.writeStream.format("yt").option("proxy", proxy).option("path", path)
    with pytest.raises(PySparkException, match=r"SchemaMismatchError.*TIMESTAMP_LTZ"):
        run(writer, tmp_path)
