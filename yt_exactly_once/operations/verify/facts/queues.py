"""Facts about queues and consumers: what a pull returns, and how offsets are kept and compared."""

from __future__ import annotations

from yt_exactly_once import errors
from yt_exactly_once.commit.batch import SourceRange
from yt_exactly_once.commit.consumers import advance
from yt_exactly_once.operations.verify.stage import (
    CONFLICT,
    EVERY_MODE,
    SOURCE,
    Facts,
    Stage,
    expect,
)
from yt_exactly_once.ytsaurus.browsing import cluster_of
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

_OFFSET_CONFLICT = errors.OffsetConflictError, 3100
_NOT_REGISTERED = errors.ConsumerNotRegisteredError, 901

_GUIDE = "user guide: queues"
_READS_AND_MODES = (*EVERY_MODE, SOURCE)
_STORE = "yt/yt/server/node/tablet_node/sorted_dynamic_store.cpp"

fact = Facts("Queues and consumers", features=(SOURCE,), source=_GUIDE)


def _registered(stage: Stage) -> tuple[RemoteQueue, float]:
    """Register the consumer, and return the queue and how long the proxy did not know it."""
    queue = RemoteQueue(stage.connection, stage.path("queue"), stage.path("consumer"))
    assert queue.consumer is not None
    stage.register(queue.path, queue.consumer)

    def known() -> bool:
        try:
            with translated("pull rows"):
                stage.client.pull_queue_consumer(queue.consumer, queue.path, 0, 0, max_row_count=1)
        except errors.ConsumerNotRegisteredError:
            return False
        return True

    return queue, stage.wait(
        known, lambda: "the proxy does not know the registration", stage.patience.registered
    )


def _advance(stage: Stage, queue: RemoteQueue, row: int) -> None:
    """Let the server move the consumer in the first partition, wherever it is."""
    with translated("advance the consumer"):
        stage.client.advance_queue_consumer(
            queue.consumer, queue.path, 0, None, row, client_side=False
        )


def _append(stage: Stage, count: int, partition: int = 1) -> int:
    """Append rows to the queue, wait until they are visible, and return the index of the first."""
    offset = stage.end("queue", partition)
    texts = [f"{offset + index}" for index in range(count)]
    stage.insert("queue", *({"v": text, "$tablet_index": partition} for text in texts))
    stage.appears("queue", *texts, partition=partition, offset=offset)
    return offset


@fact(
    "queue.pull",
    features=(SOURCE, *EVERY_MODE),
    source="yt/yt/server/node/tablet_node/fetch_rows.cpp",
)
def _pulls(stage: Stage) -> None:
    """A pull begins at the offset, keeps to the limit, and returns consecutive rows with partition and index.
    Appended rows are in the tablet that they name, in their order.

    The source would skip or repeat rows. Do not read queues of this cluster with it.
    """
    first = _append(stage, 5)
    with translated("pull rows"):
        rows = list(stage.client.pull_queue(stage.path("queue"), first + 1, 1, max_row_count=2))
    found = [(row["$tablet_index"], row["$row_index"], row["v"]) for row in rows]
    wanted = [(1, first + 1, f"{first + 1}"), (1, first + 2, f"{first + 2}")]
    expect(found == wanted, f"a pull of two rows from {first + 1} on returns {found}")
    expect(stage.texts("queue", 1, first + 5) == [], "a pull from the end on returns rows")
    expect(
        all(row["$timestamp"] > 0 for row in rows),
        "the column $timestamp is not filled by the cluster",
    )


@fact("queue.visibility", source="user guide: ordered dynamic tables, commit_ordering")
def _visible_after(stage: Stage) -> str:
    """Rows of an ordered table appear within 20 s of their commit.

    Queries read rows late. Nothing is lost, because offsets follow what is visible.
    """
    offset = stage.end("queue", 0)
    stage.insert("queue", {"v": "late", "$tablet_index": 0})
    seconds = stage.appears("queue", "late", partition=0, offset=offset)
    return f"after {seconds:.1f} s"


@fact("queue.trim")
def _trimmed(stage: Stage) -> None:
    """Trimmed rows are gone and the indexes of the others stay. The bounds tell what was trimmed.

    The source could not detect trimmed rows, and would not report them as lost.
    """
    stage.insert("trimmed", *({"v": f"{index}"} for index in range(6)))
    stage.appears("trimmed", *(f"{index}" for index in range(6)))
    with translated("trim rows"):
        stage.client.trim_rows(stage.path("trimmed"), 0, 4)
    queue = RemoteQueue(stage.connection, stage.path("trimmed"))
    stage.wait(
        lambda: queue.state().partitions[0].lower == 4,  # noqa: PLR2004 - rows were trimmed
        lambda: f"after a trim of 4 of 6 rows the bounds are {queue.state().partitions[0]}",
    )
    expect(queue.state().partitions[0].upper == 6, "a trim moved the end of the queue")  # noqa: PLR2004
    with translated("pull rows"):
        rows = list(stage.client.pull_queue(stage.path("trimmed"), 0, 0))
    found = [(row["$row_index"], row["v"]) for row in rows]
    expect(found == [(4, "4"), (5, "5")], f"a pull from 0 after the trim returns {found}")


@fact("consumer.unregistered", source="yt/yt/ytlib/queue_client/registration_manager_base.cpp")
def _unregistered(stage: Stage) -> None:
    """A pull by an unregistered consumer is refused with code 901 and the text "is not registered for queue".

    The source tells a missing registration from a missing permission by this text. With another text it stops
    with AccessError, also while a proxy does not know a new registration yet.
    """
    stranger = stage.path("stranger")
    with stage.refuses(_NOT_REGISTERED, "a consumer without a registration may pull"):
        list(stage.client.pull_queue_consumer(stranger, stage.path("queue"), 0, 0))


@fact("consumer.registration-lag", source="yt/yt/ytlib/queue_client/registration_manager_new.cpp")
def _registration_lag(stage: Stage) -> str:
    """A proxy knows a new registration within 25 s.

    A query that starts right after the registration stops with ConsumerNotRegisteredError. Start it again
    later.
    """
    queue, seconds = _registered(stage)
    with translated("list the registrations"):
        found = stage.client.list_queue_consumer_registrations(
            queue_path=queue.path, consumer_path=queue.consumer
        )
    expect(found, "a registration that pulls accept is not listed")
    expect(bool(found[0]["vital"]), "a registration as vital is listed as not vital")
    return f"known after {seconds:.1f} s"


def _move(transaction: TabletTransaction, queue: RemoteQueue, cluster: str, row: int) -> None:
    """Move the consumer in the first partition as the sink does."""
    advance(transaction, SourceRange(cluster, queue.path, queue.consumer, ()), {0: row})


@fact(
    "consumer.rows",
    features=_READS_AND_MODES,
    source="yt/yt/client/queue_client/consumer_client.cpp",
)
def _consumer_rows(stage: Stage) -> None:
    """An offset that a transaction writes as a row counts for the server. The row of the server's own advance
    has the same key, with the name of the cluster in //sys/@cluster_name.

    Offsets of the sink and of the server would be different rows. Queues would not be trimmed, and other
    readers of the consumer would see old offsets. Set advance_consumer=False.
    """
    queue, _ = _registered(stage)
    _append(stage, 6, 0)
    _advance(stage, queue, 1)
    cluster = cluster_of(stage.connection).name
    found = queue.stored_offsets(cluster, [0])
    expect(
        found == {0: 1},
        f"after an advance to 1 by the server, the row under the cluster's name {cluster!r} says {found}",
    )
    with stage.transaction() as transaction:
        _move(transaction, queue, cluster, 2)
        transaction.commit()
    queue.advance(0, 2, 3)
    expect(queue.stored_offsets(cluster, [0]) == {0: 3}, "an advance by the server is not stored")


@fact(
    "consumer.old-offset",
    features=_READS_AND_MODES,
    source="yt/yt/client/api/queue_transaction_mixin.cpp",
)
def _old_offset(stage: Stage) -> None:
    """An advance with a wrong old offset is refused with code 3100. The answer to a repeated advance contains
    the current offset.

    A consumer that somebody moved would be overwritten, or the source would stop after a lost answer.
    """
    queue, _ = _registered(stage)
    _advance(stage, queue, 4)
    with stage.refuses(_OFFSET_CONFLICT, "an advance with a wrong old offset is accepted"):
        queue.advance(0, 3, 5)
    for _ in range(2):
        queue.advance(0, 4, 5)


@fact("consumer.conflict", features=EVERY_MODE, source=_STORE)
def _moves_conflict(stage: Stage) -> None:
    """If a consumer moves after the start of a transaction that moves it too, the commit is refused with code
    1700.

    Two queries with one consumer would not notice each other.
    """
    queue, _ = _registered(stage)
    cluster = cluster_of(stage.connection).name
    _advance(stage, queue, 1)
    with stage.transaction() as transaction:
        _move(transaction, queue, cluster, 5)
        transaction.insert(stage.path("rows"), [{"k": "moved", "v": "x"}])
        queue.advance(0, 1, 2)
        but = "a transaction overwrote an offset that was moved after it began"
        with stage.refuses(CONFLICT, but):
            transaction.commit()
    expect(stage.rows("rows", "moved") == [None], "rows of a refused move are there")
    expect(queue.stored_offsets(cluster, [0]) == {0: 2}, "a refused move was stored")
