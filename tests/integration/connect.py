"""A client of Spark Connect: does with queries what it is asked to.

`python -m tests.integration.connect sc://HOST:PORT` reads one line of JSON per call of `Queries`, and answers
with the text of the error that it raised, and with its class in this package; both empty where there is none.
"""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.flows import NUMBERED, QUERIES, read_queue
from yt_exactly_once import Target, TransactionalSink, exactly_once_error, register_source

PATIENCE_SECONDS = 280
_LOOK_SECONDS = 0.05

_NO_WORKER = "Python worker failed to connect back"
"""What Spark says on a machine that is too busy to start a process."""


def main(address: str) -> None:
    """Make calls until standard input ends."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    assert not hasattr(spark, "_jvm")
    register_source(spark)
    queries = Queries(spark)
    for line in sys.stdin:
        asked = json.loads(line)
        call = getattr(queries, asked.pop("do"))
        error, kind = _NO_WORKER, ""
        while _NO_WORKER in error:
            try:
                call(**asked)
                error = ""
            except PySparkException as raised:
                error, ours = str(raised), exactly_once_error(raised)
                kind = type(ours).__name__ if ours else ""
        sys.stdout.write(json.dumps([error, kind]) + "\n")
        sys.stdout.flush()


@dataclass(frozen=True)
class Held:
    """A listener that holds a sink at an event, while there is a file `hold` in a folder; it makes `held`."""

    folder: str
    event: str

    def __call__(self, event: str, _fields: dict[str, Any]) -> None:
        hold = Path(self.folder, "hold")
        if event == self.event and hold.exists():
            Path(self.folder, "held").touch()
            while hold.exists():
                time.sleep(_LOOK_SECONDS)


@dataclass(frozen=True)
class Swallowing:
    """A function that lets no error of its sink out."""

    sink: TransactionalSink

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        with suppress(Exception):
            self.sink(frame, batch_id)


class Queries:
    """Queries of one session, by their checkpoints."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: dict[str, Any] = {}

    def run(self, **asked: Any) -> None:
        """Run a query to the end of its queue."""
        self.start(**asked)
        self.finish(asked["checkpoint"])

    def start(
        self,
        *,
        way: str,
        kind: str,
        queue: str,
        consumer: str,
        target: str,
        proxy: str,
        checkpoint: str,
        rows_per_partition: int,
        output_mode: str,
        numbered: bool,
        options: dict[str, Any],
        settings: dict[str, str],
        source_name: str = "",
        held: tuple[str, str] | None = None,
    ) -> None:
        """Start a query, with the format or with the sink; see `tests.flows.Query`."""
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        source = {name: options[name] for name in ("token",) if name in options}
        source["max_rows_per_partition"] = rows_per_partition
        rows = read_queue(self._spark, proxy, queue, consumer, name=source_name, **source)
        frame = (NUMBERED if numbered else QUERIES[kind]).build(rows)
        writer = (
            frame.writeStream.outputMode(output_mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        if way == "format":
            query = writer.format("yt").options(proxy=proxy, **options).start(target)
        else:
            write = {name: options.pop(name) for name in ("write",) if name in options}
            listener = Held(*held) if held else None
            sink = TransactionalSink(
                Target(target, **write), proxy=proxy, listener=listener, **options
            )
            query = writer.foreachBatch(Swallowing(sink) if way == "swallowing" else sink).start()
        self._queries[checkpoint] = query
        for name in settings:
            self._spark.conf.unset(name)

    def finish(self, checkpoint: str) -> None:
        query = self._queries[checkpoint]
        try:
            assert query.awaitTermination(PATIENCE_SECONDS), "The query does not end"
        finally:
            query.stop()

    def stop(self, checkpoint: str) -> None:
        self._queries[checkpoint].stop()

    def close(self) -> None:
        self._spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
