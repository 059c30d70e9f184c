"""What the sink promises on every version of PySpark: queries over files, which need no source of ours.

`python -m tests.versions` runs these tests on all versions, and tests of the source where there is one.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.flows import columns, create_table, differences
from tests.integration.streams import finish, forget_last_batch
from tests.tiers import first_of
from yt_exactly_once import Target, TransactionalSink

FILES, ROWS = 3, 200
MODES = ["transactional", "at-least-once", "idempotent"]


@dataclass
class Flow:
    """A query that reads one file per batch."""

    spark: Any
    client: Any
    folder: Path
    path: str
    proxy: str

    def fill(self) -> list[tuple[int, int]]:
        """Write the files; return their rows."""
        source = self.folder / "source"
        source.mkdir()
        rows = [(number, number % 7) for number in range(FILES * ROWS)]
        for file in range(FILES):
            lines = [
                json.dumps({"id": number, "key": key})
                for number, key in rows[file * ROWS : (file + 1) * ROWS]
            ]
            (source / f"{file}.json").write_text("\n".join(lines))
        return rows

    def frame(self) -> DataFrame:
        """Read them as a stream."""
        reader = self.spark.readStream.schema("id long, key long")
        return reader.option("maxFilesPerTrigger", 1).json(str(self.folder / "source"))

    def run(self, frame: DataFrame, output_mode: str = "append", **options: Any) -> None:
        own = {name: options.pop(name) for name in ("write",) if name in options}
        sink = TransactionalSink(Target(self.path, **own), proxy=self.proxy, **options)
        finish(
            frame.writeStream.foreachBatch(sink)
            .outputMode(output_mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def replay(self) -> None:
        """Let the next run repeat the last batch."""
        forget_last_batch(self.folder / "checkpoint")

    def found(self, *names: str) -> list[tuple[Any, ...]]:
        rows = self.client.select_rows(f"{', '.join(names)} from [{self.path}]")
        return [tuple(row[name] for name in names) for row in rows]


@pytest.fixture
def flow(spark, client, cluster, tmp, tmp_path):
    """A flow whose target is still to be created."""
    return Flow(spark, client, tmp_path, f"{tmp}/target", cluster.proxy_urls[0])


@pytest.mark.parametrize("is_sorted", first_of([False, True]))
@pytest.mark.parametrize("mode", first_of(MODES))
def test_every_mode_is_exact_over_a_replay(flow, mode, is_sorted):
    """Each file is a batch; the last one comes twice."""
    rows = flow.fill()
    create_table(
        flow.client, flow.path, columns({"id": "int64?", "key": "int64?"}, ("id",) * is_sorted)
    )
    flow.run(flow.frame(), mode=mode)
    flow.replay()
    flow.run(flow.frame(), mode=mode)
    assert differences(flow.found("id", "key"), rows) == ""
    (entry,) = flow.client.select_rows(f"batch_id from [{flow.path}_ledger]")
    assert entry["batch_id"] == FILES - 1


@pytest.mark.further
@pytest.mark.parametrize("kind", first_of(["update", "complete", "dedup"]))
def test_stateful_replay_is_exact(flow, kind):
    """State and output agree after a replay, and in the batches after it."""
    rows = flow.fill()
    types = {"key": "int64?", "mark" if kind == "dedup" else "count": "int64?"}
    create_table(flow.client, flow.path, columns(types, ("key",)))
    options: dict[str, Any] = {"write": "replace"} if kind == "complete" else {}

    def run() -> None:
        frame = flow.frame()
        if kind == "dedup":
            flow.run(frame.selectExpr("key", "key * 2 as mark").dropDuplicates(), **options)
        else:
            flow.run(frame.groupBy("key").count(), kind, **options)

    run()
    flow.replay()
    run()
    more = flow.folder / "source" / "more.json"
    more.write_text("\n".join(json.dumps({"id": -1, "key": key}) for key in range(3)))
    run()
    counts = Counter([key for _, key in rows] + [0, 1, 2])
    expected = [(key, key * 2) for key in counts] if kind == "dedup" else list(counts.items())
    assert differences(flow.found(*types), expected) == ""


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES[::2])
def test_killed_driver_repeats_nothing(flow, mode, interpreter):
    """It dies when the batch is committed and Spark does not know it yet."""
    rows = flow.fill()
    create_table(flow.client, flow.path, columns({"id": "int64?", "key": "int64?"}))
    code = textwrap.dedent(
        f"""
        import os, signal
        from pyspark.sql import SparkSession
        from yt_exactly_once import TransactionalSink

        def die(event, fields):
            if event == "batch.committed" and fields["batch"] == 1:
                os.killpg(0, signal.SIGKILL)

        spark = (
            SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        )
        frame = (
            spark.readStream.schema("id long, key long").option("maxFilesPerTrigger", 1)
            .json({str(flow.folder / "source")!r})
        )
        sink = TransactionalSink({flow.path!r}, proxy={flow.proxy!r}, mode={mode!r}, listener=die)
        (
            frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
            .option("checkpointLocation", {str(flow.folder / "checkpoint")!r})
            .start().awaitTermination()
        )
        """
    )
    environment = {**os.environ, "PYSPARK_PYTHON": interpreter}
    killed = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        start_new_session=True,
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    flow.run(flow.frame(), mode=mode)
    assert differences(flow.found("id", "key"), rows) == ""
