"""Every public call of Spark's `DataStreamReader` and `DataStreamWriter`, judged for the format yt.

A call of a new version of PySpark fails `tests/unit/test_stream_calls.py` until it is judged here.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter


def calls() -> set[str]:
    """Return what the installed version has: methods, triggers, and named arguments of a start."""
    found = {
        f"{kind.__name__}.{name}"
        for kind in (DataStreamReader, DataStreamWriter)
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    for name in ("trigger", "start", "toTable"):
        arguments = inspect.signature(getattr(DataStreamWriter, name)).parameters
        found |= {f"{name}({argument}=)" for argument in arguments if argument != "self"}
    return found


class Chain(NamedTuple):
    """Calls that work together.

    Attributes:
        start: makes the calls and starts the query into a target.
        calls: which they are.
        ends: whether the query ends by itself.
    """

    name: str
    start: Callable[[Any, str], Any]
    calls: str
    ends: bool = True


class Refusal(NamedTuple):
    """A call that is refused.

    Attributes:
        run: makes it with a path.
        message: begins the reason, or is a part of it.
    """

    name: str
    call: str
    run: Callable[[Any, str], Any]
    message: str


CHAINS = (
    Chain(
        "available-now",
        lambda writer, path: (
            writer.option("MODE", "transactional")
            .options(Dyn_Batch_Size=50)
            .outputMode("append")
            .partitionBy("key")  # Spark keeps it from such sinks.
            .queryName("all calls")
            .trigger(availableNow=True)
            .start(path)
        ),
        "option options outputMode partitionBy queryName format trigger start",
    ),
    Chain(
        "once",
        lambda writer, path: (
            writer.clusterBy("key").trigger(once=True).option("path", path).start()
        ),
        "clusterBy",
    ),
    Chain(
        "processing-time",
        lambda writer, path: writer.trigger(processingTime="0 seconds").start(
            path,
            format="yt",
            outputMode="append",
            partitionBy="key",
            queryName="one",
            digest="true",
        ),
        "start",
        ends=False,
    ),
)

WRITES = (
    Refusal("update", "DataStreamWriter.outputMode",
            lambda writer, path: writer.outputMode("update").start(path),
            "does not support Update mode"),
    Refusal("complete", "DataStreamWriter.outputMode",
            lambda writer, path: writer.outputMode("complete").start(path), "[Cc]omplete"),
    Refusal("misspelt", "DataStreamWriter.option",
            lambda writer, path: writer.option("chekpointLocation", "x").start(path),
            "Did you mean checkpointlocation"),
    Refusal("continuous", "trigger(continuous=)",
            lambda writer, path: writer.trigger(continuous="1 second").start(path),
            "does not support continuous processing"),
    Refusal("real-time", "trigger(realTime=)",
            lambda writer, path: writer.outputMode("update").trigger(realTime="5 minutes").start(path),
            "REAL_TIME|[Rr]eal-time"),
    Refusal("no-path", "DataStreamWriter.start", lambda writer, _: writer.start(),
            "The path of the target is missing.*start\\('//"),
    Refusal("two-paths", "DataStreamWriter.start",
            lambda writer, path: writer.option("path", path).start(path),
            "'path' option set and start\\(\\)"),
    Refusal("to-table", "DataStreamWriter.toTable",
            lambda writer, _: writer.toTable("no_table_of_yt"), "The path of the target is missing"),
)  # fmt: skip

ELSEWHERE = ("foreach", "foreachBatch")
"""Calls that name another sink."""

READS = (
    Refusal("other-schema", "DataStreamReader.schema",
            lambda reader, path: reader.schema("id long").load(path), "Leave .schema\\(...\\) out"),
    Refusal("no-path", "DataStreamReader.load", lambda reader, _: reader.load(),
            "The path of the queue is missing"),
    Refusal("two-paths", "DataStreamReader.load",
            lambda reader, path: reader.option("path", path).load(path),
            "'path' option set and load\\(\\)"),
    Refusal("misspelt", "DataStreamReader.options",
            lambda reader, path: reader.options(consumer_pth="//x").load(path),
            "Did you mean consumer_path"),
    Refusal("named-source", "DataStreamReader.name",
            lambda reader, path: reader.name("orders").load(path), "enableSourceEvolution"),
    Refusal("table", "DataStreamReader.table", lambda reader, _: reader.table("no_table"),
            "TABLE_OR_VIEW_NOT_FOUND"),
    Refusal("changes", "DataStreamReader.changes", lambda reader, _: reader.changes("no_table"),
            "CHANGE_DATA_CAPTURE|NOT_FOUND"),
)  # fmt: skip

OTHER_FORMATS = ("csv", "json", "orc", "parquet", "text", "xml")
"""Calls of a reader that name another format, and so never come to ours."""

WORK = {
    *(f"DataStreamReader.{name}" for name in ("format", "load", "option", "options", "schema")),
    *(f"DataStreamWriter.{name}" for chain in CHAINS for name in chain.calls.split()),
    *(f"DataStreamWriter.{name}" for name in ELSEWHERE),
    *(f"trigger({name}=)" for name in ("availableNow", "once", "processingTime")),
    *(f"start({name}=)" for name in ("path", "format", "outputMode", "partitionBy", "queryName")),
    "start(options=)",
}

JUDGED = {
    *WORK,
    *(refusal.call for refusal in (*WRITES, *READS)),
    *(f"DataStreamReader.{name}" for name in OTHER_FORMATS),
    *(f"toTable({name}=)" for name in ("tableName", "format", "outputMode", "partitionBy")),
    *("toTable(queryName=)", "toTable(options=)"),
}


def is_there(asked: Any, call: str) -> bool:
    """Return whether the installed version has a call."""
    return call in calls() or hasattr(asked, call)
