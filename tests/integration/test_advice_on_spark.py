"""What Spark prints when a query stops is done as it is printed; every row is then in the target once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tests.local.operated import Operated
from yt_exactly_once import TransactionalSink

_OURS = re.compile(r"^yt_exactly_once\.errors\.\w+: (.*)$", re.MULTILINE)


class StoppedError(Exception):
    """What a person reads of a query that stopped.

    Attributes:
        remedy: the text of our error, in the middle of Spark's.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        (self.remedy,) = set(_OURS.findall(text))


@dataclass
class OperatedOnSpark(Operated):
    """The same query, run by Spark."""

    spark: Any = None

    def run(self, *, rows: int | None = None, die_after: str = "") -> None:  # noqa: ARG002
        """Run the query to the end of the queue."""
        given = {"consumer_path": self.consumer, "proxy": self.cluster.proxy_urls[0]}
        try:
            read = self.spark.readStream.format("yt").options(**given).load(self.queue)
            sink = TransactionalSink(self.target, proxy=self.cluster.proxy_urls[0])
            (
                read.select("value")
                .writeStream.foreachBatch(sink)
                .option("checkpointLocation", str(self.checkpoint))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )
        except Exception as error:
            raise StoppedError(str(error)) from error


@pytest.mark.further
def test_removed_consumer_is_put_back_by_what_the_errors_say(spark, cluster, tmp, tmp_path):
    """The error names a command; with it the query continues where it was."""
    query = OperatedOnSpark(cluster, tmp, tmp_path / "checkpoint", spark=spark).create()
    query.feed(10)
    query.run()
    query.assert_exact()
    query.client.remove(query.consumer)
    query.feed(5)
    (stopped,) = query.restart_with_advice()
    assert "create-consumer" in stopped
    query.assert_exact()
