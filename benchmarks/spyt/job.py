"""One Spark driver: SPYT's or ours, with the same queries. Runs by its path, in either environment.

It is told what to do by a JSON file and says what happens as JSON lines on its output. It ends when there
has been nothing to read for a while, when its query fails, or when it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Spec = dict[str, Any]

_LOOK_SECONDS = 0.02
_LOOKS_AT_STATUS = 10
"""How many looks at the last batch there are for one at the state of the query."""

_FOREVER = 3600


def main() -> None:
    spec: Spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmark")
    for name, value in spec["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    say("session")
    if spec["is_ours"]:
        from yt_exactly_once import register_source  # noqa: PLC0415 - SPYT's environment has none

        register_source(spark)
    say("started")
    frames = [read(spark, spec, source) for source in spec["sources"]]
    say("loaded")
    frame = SHAPES[spec["shape"]](frames, spec)
    writer = frame.writeStream.option("checkpointLocation", f"file://{spec['checkpoint']}")
    if spec["is_ours"]:
        query = writer.foreachBatch(our_sink(spec)).start()
    elif spec.get("in_function"):
        query = writer.foreachBatch(their_function(spec)).start()
    else:
        query = writer.format("yt").option("path", spec["target"]).start()
    say("running")
    follow(query, spec.get("batches"), spec["patience"])
    spark.stop()


def read(spark: SparkSession, spec: Spec, source: dict[str, str]) -> DataFrame:
    """Open a queue; both sides call the format and the options alike."""
    reader = spark.readStream.format("yt").option("consumer_path", source["consumer"])
    if spec["is_ours"]:
        reader = reader.option("proxy", spec["proxy"])
        if spec["backend"] == "rpc":
            reader = reader.option("backend", "rpc")
    for name, value in spec["options"].items():
        reader = reader.option(name, value)
    return reader.load(source["queue"])


def our_sink(spec: Spec) -> Any:
    """Return the sink, or a function that calls it and stays where it can be killed."""
    from yt_exactly_once import TransactionalSink  # noqa: PLC0415 - SPYT's environment has none

    sink = TransactionalSink(
        spec["target"],
        proxy=spec["proxy"],
        client_config={"backend": spec["backend"]},
        **spec.get("sink", {}),
    )
    if spec.get("pause_after") is None:
        return sink

    def function(frame: DataFrame, batch: int) -> None:
        sink(frame, batch)
        pause(spec, batch)

    return function


def their_function(spec: Spec) -> Any:
    """Return a function that writes a batch as SPYT's documentation does it."""

    def function(frame: DataFrame, batch: int) -> None:
        writer = (
            frame.write.format("yt").mode("append").option("inconsistent_dynamic_write", "true")
        )
        writer.save("ytTable:/" + spec["target"][1:])
        pause(spec, batch)

    return function


def pause(spec: Spec, batch: int) -> None:
    """Stay between what the function did and what Spark notes of it."""
    if batch == spec.get("pause_after"):
        say("paused", batch=batch)
        time.sleep(_FOREVER)


def copied(frames: list[DataFrame], _spec: Spec) -> DataFrame:
    """Return the rows of all queues as they are."""
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first


def first_tokens(frames: list[DataFrame], spec: Spec) -> DataFrame:
    """Return every token once."""
    return copied(frames, spec).select("token").dropDuplicates(["token"])


def windows(frames: list[DataFrame], spec: Spec) -> DataFrame:
    """Return how many rows every window has, once it is over."""
    return (
        copied(frames, spec)
        .select(sf.expr("timestamp_seconds(at)").alias("moment"))
        .withWatermark("moment", "0 seconds")
        .groupBy(sf.window("moment", f"{spec['window_seconds']} seconds"))
        .count()
        .selectExpr("unix_seconds(window.start) as start", "count as n")
    )


def failing_once(frames: list[DataFrame], spec: Spec) -> DataFrame:
    """Return the rows as they are, through a Python function that fails the first time it sees one."""
    marker, poison = spec["marker"], spec["poison"]

    def check(number: int) -> int:
        if number == poison and not os.path.exists(marker):  # noqa: PTH110 - runs in the workers
            with open(marker, "w"):  # noqa: PTH123
                message = "fails once"
                raise RuntimeError(message)
        return number

    checked = sf.udf(check, LongType())
    return copied(frames, spec).withColumn("id", checked("id"))


SHAPES = {
    "copy": copied,
    "composite": copied,
    "dedup": first_tokens,
    "windows": windows,
    "fail_once": failing_once,
}


def follow(query: Any, left: int | None, patience: float) -> None:
    """Say every batch as it ends. End after so many, or when there was nothing to read for some seconds.

    A listener in Python would take 250 calls to the JVM for each batch, beside the next one. This takes two
    for each look.

    Args:
        left: batches until the end; `None` for no limit.
    """
    said, quiet_since, has_waited, looks = -1, time.monotonic(), False, 0
    while True:
        progress = query._jsq.lastProgress()  # noqa: SLF001 - `lastProgress` asks for all of it
        if progress is not None and progress.batchId() > said:
            told = json.loads(progress.json())
            # A query that waits reports the number of the batch to come, without its rows.
            if "addBatch" in told["durationMs"]:
                said, took = told["batchId"], told["durationMs"]
                at = datetime.fromisoformat(told["timestamp"]).timestamp()
                at += took["triggerExecution"] / 1000
                say("batch", at=at, id=said, rows=told["numInputRows"], ms=took)
                quiet_since = time.monotonic()
                left = None if left is None else left - 1
        if looks % _LOOKS_AT_STATUS == 0:
            if not query.isActive:
                say("failed", error=str(query.exception()))
                return
            status = query.status
            has_waited = has_waited or status["message"].startswith("Waiting for data")
            if status["isDataAvailable"] or not has_waited:
                quiet_since = time.monotonic()
        if left == 0 or time.monotonic() - quiet_since > patience:
            query.stop()
            say("idle")
            return
        looks += 1
        time.sleep(_LOOK_SECONDS)


def say(event: str, **fields: Any) -> None:
    """Tell the parent."""
    print(json.dumps({"event": event, "at": time.time()} | fields), flush=True)


if __name__ == "__main__":
    main()
