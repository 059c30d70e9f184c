"""A query that is broken and repaired as `tests.local.operated` does it, run by Spark."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.local.operated import Killed, Operated
from yt_exactly_once import register_source

_BUSY = "Python worker failed to connect back"
"""Spark waits ten seconds for a Python process; the page says to start the query again."""

_PAGE = Path("docs/how-to/find-the-cause.md")
_OURS = re.compile(r"\byt_exactly_once\.errors\.(\w+): (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| (.+?) \| .+? \| (.+?) \|$", re.MULTILINE)


class StoppedError(Exception):
    """What a person reads of a query that stopped.

    Attributes:
        name: of our error, in the middle of Spark's text; or the words of Spark that the page has.
        remedy: the text of our error, or what the page says.
        tool: which of the two says it.
        is_busy: whether Spark has given up to wait for a Python process.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.is_busy = _BUSY in text
        found = _OURS.search(text)
        self.tool = "error" if found else "page"
        self.name, self.remedy = found.groups() if found else _what_the_page_says(text)


def _what_the_page_says(text: str) -> tuple[str, str]:
    """Return the words of the page's table that are in a message of Spark, and what to do about them."""
    table = _PAGE.read_text().partition("Some messages are Spark's own:")[2].partition("\n\n## ")[0]
    for names, todo in _ROW.findall(table):
        for name in re.findall("`(.+?)`", names):
            if name in text:
                return name, todo
    return "", ""


@dataclass
class OperatedOnSpark(Operated):
    """The same query, run by Spark.

    Attributes:
        afterwards: what happens after the sink has written the next batch.
    """

    spark: SparkSession = field(kw_only=True)
    afterwards: Callable[[], object] | None = field(default=None, kw_only=True)

    def run(self, *, rows: int | None = None, die_after: str = "") -> None:
        """Run the query to the end of the queue; again where the machine was too busy."""
        waits = self.meanwhile, self.afterwards
        try:
            self._run(rows, die_after)
        except StoppedError as error:
            # What has happened in between does not happen again.
            if not error.is_busy or waits != (self.meanwhile, self.afterwards):
                raise
            self.run(rows=rows, die_after=die_after)

    def _run(self, rows: int | None, die_after: str) -> None:
        died = []

        def function(frame: DataFrame, batch: int) -> None:
            if die_after == "offsets":
                died.append(batch)
                raise ValueError
            happens, self.meanwhile = self.meanwhile, None
            if happens is not None:
                happens()
            sink(frame, batch)
            happens, self.afterwards = self.afterwards, None
            if happens is not None:
                happens()
            if die_after == "sink":
                died.append(batch)
                raise ValueError

        try:
            register_source(self.spark)
            sink = self.make_sink()
            self._frame(rows).writeStream.foreachBatch(function).option(
                "checkpointLocation", str(self.checkpoint)
            ).trigger(availableNow=True).start().awaitTermination()
        except Exception as error:
            if died:
                raise Killed from error
            raise StoppedError(str(error)) from error

    def _frame(self, rows: int | None) -> DataFrame:
        given: dict[str, Any] = self.source_given()
        if rows is not None:
            given["max_rows_per_partition"] = rows
        return self.spark.readStream.format("yt").options(**given).load(self.queue).select("value")

    def follow(self, advice: str, option: str = "") -> str:
        """Do what a text says, and where it says to ask the doctor, what that says."""
        if "--checkpoint LOCATION" not in advice:
            return super().follow(advice, option)
        (repair,) = self.repairs(f"--checkpoint {self.checkpoint}")
        said = super().follow(repair)
        self.checkpoint = self.checkpoint.with_name("another")
        return said
