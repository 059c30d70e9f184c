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
    Judgement,
    NotExactError,
    OtherRowsError,
    Rehearsal,
    Rehearsed,
    Survival,
    Trial,
    rehearse,
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


def compare() -> None:
    """So is what a rehearsal has found."""
    found = rehearse(job, "/checkpoint", batches=2, conf={})
    assert_type(found, Rehearsal)
    assert_type(found.judgement, Judgement)
    assert_type(found.may_change_in_mid_batch, bool | None)
    for one in found.batches:
        assert_type(one, Rehearsed)
        assert_type(one.only_new, int | None)
    try:
        found.assert_same()
    except OtherRowsError as error:
        assert_type(error.details, tuple[str, ...])
