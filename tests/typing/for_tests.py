"""Every public name for tests as a typed program uses it. Nobody runs it: mypy reads it with the package."""

from pathlib import Path
from typing import Any, assert_type

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from yt_exactly_once.testing import (
    At,
    Attack,
    Attacked,
    Finding,
    NotExactError,
    Survival,
    Trial,
    sink_job,
    survives,
)


def job(spark: SparkSession, trial: Trial) -> StreamingQuery:
    assert_type(trial.folder, Path)
    rows = spark.readStream.format("rate").load()
    return rows.writeStream.option("checkpointLocation", trial.checkpoint).start()


def rows(trial: Trial) -> list[dict[str, Any]]:
    return [{"name": trial.name}]


def sink(trial: Trial) -> Any:
    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.parquet(f"{trial.folder}/{batch_id}")

    return write


def judge() -> None:
    """What comes back is a value."""
    found = survives(job, rows=rows, at=[At.CALL, 0.5], batch=2, expected=[{"id": 1}], conf={})
    assert_type(found, Survival)
    survives(sink_job(sink, batches=[[{"id": 1}]]), rows=rows, folder=Path("kept"))
    assert_type(found.finding, Finding)
    for attacked in found.of(Finding.DOUBLED):
        assert_type(attacked, Attacked)
        assert_type(attacked.attack, Attack)
    try:
        found.assert_exact()
    except NotExactError as error:
        assert_type(error.details, tuple[str, ...])
    survives(job)  # type: ignore[call-arg]
