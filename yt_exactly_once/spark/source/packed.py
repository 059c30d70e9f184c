"""An opened queue or table on its way between the Python processes that Spark starts for a source.

Spark starts one that opens the queue, one that plans batches, one that only passes the reader on, and those
of the tasks. Each unpickles the source. To unpickle the queue imports the client and the codec. In the one
that passes the reader on, this would take more time than all the rest.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from yt_exactly_once.spark.compat.failures import require_version
from yt_exactly_once.spark.tuning.acknowledge import Sent
from yt_exactly_once.spark.tuning.collector import uncollected
from yt_exactly_once.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.spark.source.opening import OpenedQueue, OpenedTable


class PackedQueue(Sent):
    """An opened queue or table that is unpickled where it is used first; its schema is known before."""

    def __init__(self, opened: OpenedQueue | OpenedTable) -> None:
        self.spark_schema: StructType = opened.spark_schema
        self.is_queue = opened.is_queue
        self._version = VERSION
        self._opened: OpenedQueue | OpenedTable | bytes = opened

    @property
    def opened(self) -> OpenedQueue | OpenedTable:
        """The queue or the table; `ConfigError` if this process has another version of the package."""
        if isinstance(self._opened, bytes):
            require_version(self._version)
            with uncollected():
                self._opened = pickle.loads(self._opened)  # noqa: S301 - Spark unpickles the rest alike
            assert not isinstance(self._opened, bytes)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        """Travel with the queue as bytes."""
        opened = self._opened
        packed = opened if isinstance(opened, bytes) else pickle.dumps(opened)
        return {**vars(self), "_opened": packed}
