"""What Spark tells about queries as events of this package, and events of its Python workers on the driver.

A query may end with an error of its source, of another operator or of Spark itself, which no sink sees.
Spark's listener sees all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.errors import without_secrets
from yt_exactly_once.observability import Event, channel, emitter, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

_OUR_ERROR = re.compile(r"yt_exactly_once\.errors\.(\w+): ([^\n]*)")

_MILLISECONDS = 1000


class QueryWatcher(StreamingQueryListener):
    """Turns Spark's events about queries into ours: started, progressed, stopped.

    Spark calls it for every query of the session, on a thread of its own.
    """

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Emit that a run has begun."""
        self._names[str(event.runId)] = event.name
        self._emit(event, Event.QUERY_STARTED)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Emit that a batch has ended."""
        progress = event.progress
        self._emit(
            progress,
            Event.QUERY_PROGRESSED,
            batch=progress.batchId,
            rows=progress.numInputRows,
            seconds=progress.batchDuration / _MILLISECONDS,
            idle=False,
            **_behind(progress.sources),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Emit that there was nothing to do; Spark says so every ten seconds."""
        self._emit(event, Event.QUERY_PROGRESSED, idle=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Emit that a run has ended, and why."""
        failed = {} if event.exception is None else _reason(event)
        self._emit(event, Event.QUERY_STOPPED, **failed)
        self._names.pop(str(event.runId), None)

    def _emit(self, of: Any, event: Event, **fields: Any) -> None:
        run = str(of.runId)
        emitter(query=str(of.id), run=run, name=self._names.get(run))(event, **fields)


def _behind(sources: Iterable[SourceProgress]) -> dict[str, int]:
    """Return how many offsets the topics of Kafka had after the batch; nothing if no source says so."""
    rows = [
        OtherSources.from_log((), [one.endOffset]).rows_until(
            OtherSources.from_log((), [one.latestOffset])
        )
        for one in sources
        if one.latestOffset not in {None, "null"} and one.endOffset
    ]
    known = [each for each in rows if each is not None]
    return {"rows_behind": sum(known)} if known else {}


def _reason(event: QueryTerminatedEvent) -> dict[str, str]:
    """Return the class and the text of the error that ended a query: ours if there is one."""
    text = without_secrets(str(event.exception))
    ours = _OUR_ERROR.search(text)
    if ours is not None:
        return {"reason": ours[1], "error": ours[2]}
    first = text.strip().partition("\n")[0]
    return {"reason": event.errorClassOnException or first.partition(":")[0], "error": first}


class Monitor:
    """Watches the queries of a session, and receives the events of its workers, until it is closed.

    Workers learn the address through their environment. Spark copies it when a query is defined and when the
    source is registered, so queries that were defined before send nothing.

    Args:
        spark: a session. Without a context (Spark Connect) only its queries are watched.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._streams = spark.streams
        self._watcher = QueryWatcher()
        self._streams.addListener(self._watcher)
        self._environment: dict[str, str] = {}
        self._receiver: channel.Receiver | None = None
        context = getattr(spark, "sparkContext", None)
        if context is not None:
            self._environment = context.environment
            host = context.getConf().get("spark.driver.host", "127.0.0.1")
            bind = context.getConf().get("spark.driver.bindAddress", host)
            # Inside a container the driver's name may lead to another address than its own.
            with suppress(OSError):
                self._receiver = channel.Receiver(bind, host, publish)
                self._environment[channel.ADDRESS_VARIABLE] = self._receiver.address

    def close(self) -> None:
        """Stop watching and receiving."""
        self._streams.removeListener(self._watcher)
        if self._receiver is not None:
            if self._environment.get(channel.ADDRESS_VARIABLE) == self._receiver.address:
                del self._environment[channel.ADDRESS_VARIABLE]
            self._receiver.close()
