"""A query that is broken and repaired as `tests.local.operated` does it, run by Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.local.operated import ATTEMPTS, Killed, Operated
from yt_exactly_once import Target, TransactionalSink, register_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_PAGE = Path("docs/how-to/find-the-cause.md")
_OURS = re.compile(r"\byt_exactly_once\.errors\.\w+: (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| (.+?) \| .+? \| (.+?) \|$", re.MULTILINE)


class StoppedError(Exception):
    """What a person reads of a query that stopped.

    Attributes:
        remedy: the text of our error, in the middle of Spark's; or what the page says of Spark's own.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = _OURS.search(text)
        self.remedy = found[1] if found else _what_the_page_says(text)


def _what_the_page_says(text: str) -> str:
    """Return what to do about a message of Spark, by the table of the page."""
    table = _PAGE.read_text().partition("Some messages are Spark's own:")[2].partition("\n\nIf ")[0]
    for names, todo in _ROW.findall(table):
        if any(name in text for name in re.findall("`(.+?)`", names)):
            return str(todo)
    return ""


@dataclass
class OperatedOnSpark(Operated):
    """The same query, run by Spark.

    Attributes:
        spark: the session.
        pauses: what happens in the first batch when Spark has logged its `offsets`, or after the `sink`.
    """

    spark: SparkSession = field(kw_only=True)
    pauses: dict[str, Callable[[], object]] = field(default_factory=dict)

    def run(self, *, rows: int | None = None, die_after: str = "") -> None:
        """Run the query to the end of the queue."""
        died = []

        def reach(place: str) -> None:
            if place == die_after:
                died.append(place)
                raise ValueError
            self.pauses.pop(place, lambda: None)()

        def function(frame: DataFrame, batch: int) -> None:
            reach("offsets")
            sink(frame, batch)
            reach("sink")

        try:
            register_source(self.spark)
            options = {
                "proxy": self.proxy,
                "token": self.token or None,
                "mode": self.mode,
                "retry": ATTEMPTS,
            }
            sink = TransactionalSink(
                Target(self.target, **self.target_options), **options | self.options
            )
            self._frame(rows).writeStream.foreachBatch(function).option(
                "checkpointLocation", str(self.checkpoint)
            ).trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            if died:
                raise Killed from error
            raise StoppedError(str(error)) from error

    def _frame(self, rows: int | None) -> DataFrame:
        given: dict[str, Any] = {"consumer_path": self.consumer, "proxy": self.proxy}
        if self.token:
            given["token"] = self.token
        if rows is not None:
            given["max_rows_per_partition"] = rows
        if self.loss:
            given["fail_on_data_loss"] = "false"
        return self.spark.readStream.format("yt").options(**given).load(self.queue).select("value")
