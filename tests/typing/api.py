"""Every public name as a typed program uses it. Nobody runs it: mypy reads it with the package."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from yt_exactly_once import (
    Audit,
    Changes,
    ClusterConfig,
    DeliveryMode,
    Event,
    ExactlyOnceError,
    LedgerEntry,
    LedgerRow,
    PartitionAudit,
    PartitionStatus,
    QueryStatus,
    QueueStatus,
    RetryPolicy,
    SinkOptions,
    SourceColumns,
    Statuses,
    Tally,
    Target,
    TargetStatus,
    Telemetry,
    TransactionalSink,
    Verdict,
    audit,
    create_consumer,
    create_queue,
    create_table,
    debezium_changes,
    enable_lineage,
    enable_telemetry,
    exactly_once_error,
    history,
    ledger,
    register_source,
    require_java,
    serve_metrics,
    status,
)


def create(frame: DataFrame) -> None:
    """A schema may be that of a DataFrame, of Arrow, DDL, or columns."""
    assert_type(create_queue("//q", "id bigint", tablet_count=4, auto_trim=True), bool)
    assert_type(create_consumer("//c", "//q", vital=False, proxy="host"), bool)
    changes = Changes(sequence=["lsn"], operation="op", tombstone_ttl=timedelta(days=1))
    assert_type(create_table("//t", frame.schema, key_columns=["id"], changes=changes), bool)
    create_table("//t", pa.schema([("id", pa.int64())]), tablet_count=2, token="secret")
    create_table("//t", [{"name": "id", "type": "int64"}], client_config={"backend": "rpc"})
    create_table("//t", "id bigint", tablets=3)  # type: ignore[call-arg]


def run(spark: SparkSession, frame: DataFrame) -> None:
    """A sink is what `foreachBatch` takes; it knows its options."""
    require_java()
    register_source(spark)
    target = Target("//t", transform=lambda df: df.limit(1), write="upsert")
    sink = TransactionalSink(
        ["//a", target], mode=DeliveryMode.IDEMPOTENT, retry=RetryPolicy(attempts=3)
    )
    sink.check(frame, output_mode="append")
    frame.writeStream.foreachBatch(sink).start()
    changes = debezium_changes(frame, "value", frame.schema)
    assert_type(changes, DataFrame)
    assert_type(sink.options, SinkOptions)
    assert_type(sink.last_error, ExactlyOnceError | None)
    assert_type(exactly_once_error(RuntimeError()), ExactlyOnceError | None)


def look() -> None:
    """What commands print are values here."""
    found = status("//home/app", query="orders", proxy="host")
    assert_type(found, Statuses)
    one = found[0]
    assert_type(one, QueryStatus)
    assert_type((one.name, one.lag_rows, one.lag_seconds), tuple[str, int, float | None])
    assert_type((one.problems, one.hints), tuple[list[str], list[str]])
    assert_type(one.targets, tuple[TargetStatus, ...])
    assert_type(one.queues, tuple[QueueStatus, ...])
    assert_type(one.queues[0].partitions, tuple[PartitionStatus, ...])
    rows = [*ledger(), *history("//h", since=datetime.now(UTC))]
    assert_type(rows, list[LedgerRow])
    assert_type(rows[0].entry, LedgerEntry)
    assert_type(rows[0].entry.tally, Tally)
    found_rows = audit("//t", by="source", columns=SourceColumns("part", "row"))
    assert_type(found_rows, Audit)
    assert_type(found_rows.verdict, Verdict)
    assert_type(found_rows.partitions, tuple[PartitionAudit, ...])
    status(connection=7)  # type: ignore[arg-type]


def watch(spark: SparkSession) -> None:
    """Telemetry ends with its block; a listener gets events by their names."""
    telemetry = enable_telemetry(spark)
    assert_type(telemetry, Telemetry)
    serve_metrics(spark)
    assert_type(enable_lineage(namespace="shop", cluster="cluster"), Telemetry)
    assert_type(Event.BATCH_COMMITTED.value, str)
    ClusterConfig(proxy="host", request_timeout=timedelta(seconds=5))
