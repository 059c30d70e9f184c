"""Creating queues and consumers, as a pipeline needs them. A second call changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.schema import SYSTEM_COLUMNS
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, TableError
from yt_exactly_once.operations.create_table import create_table
from yt_exactly_once.ytsaurus.browsing import attributes_of, registration
from yt_exactly_once.ytsaurus.queues import RemoteQueue, register_consumer
from yt_exactly_once.ytsaurus.tables import ensure_object

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from yt_exactly_once.ytsaurus.client import Connection


def create_queue(
    connection: Connection,
    path: str,
    schema: StructType | pa.Schema | Sequence[Mapping[str, Any]],
    *,
    partitions: int = 1,
    auto_trim: bool = False,
) -> bool:
    """Create and mount a queue: an ordered dynamic table with the time and the size of its rows.

    Args:
        schema: see `create_table`; its key, if it has one, is left out.
        partitions: number of partitions.
        auto_trim: let the cluster trim the rows that all vital consumers have read.

    Returns:
        Whether this call created the queue. A queue that exists and fits stays as it is.

    Raises:
        ConfigError: an argument is impossible, or the queue exists with another number of partitions.
        SchemaMismatchError: the queue exists, and rows of this schema do not fit.
        TableError: there is something else at the path.
    """
    attributes = {"auto_trim_config": {"enable": True}} if auto_trim else {}
    created = create_table(
        path,
        schema,
        tablet_count=partitions,
        attributes=attributes,
        extra_columns=SYSTEM_COLUMNS,
        connection=connection,
    )
    if created:
        return True
    info = RemoteQueue(connection, path).describe()
    if info.tablet_count != partitions:
        raise ConfigError(
            f"The queue exists with {info.tablet_count} partitions instead of {partitions}",
            remedy=f"Give --partitions {info.tablet_count}, or choose another path",
            path=path,
        )
    return False


def create_consumer(
    connection: Connection, path: str, queue: str, *, vital: bool = True
) -> tuple[bool, bool]:
    """Create and mount a consumer, and register it for a queue.

    Args:
        vital: whether the queue must keep rows until the consumer has passed them.

    Returns:
        Whether this call created the consumer, and whether it registered it. A registration that is
        there with another `vital` is changed.

    Raises:
        NotAQueueError: the queue is a sorted table.
        TableError: there is no such queue, or something else at the path of the consumer.
        AccessError: the token may not register consumers of the queue.
    """
    check_path(path, "path")
    RemoteQueue(connection, queue).describe()
    found = attributes_of(connection, path, ["treat_as_queue_consumer"])
    if found is not None and not found.get("treat_as_queue_consumer"):
        raise TableError(
            "There is something at the path that is no consumer",
            remedy="Choose another path",
            path=path,
        )
    ensure_object(connection, "queue_consumer", path)
    known = registration(connection, queue, path)
    if known is not None and bool(known["vital"]) == vital:
        return found is None, False
    register_consumer(connection, queue, path, vital=vital)
    return found is None, True
