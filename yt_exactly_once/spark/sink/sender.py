"""Who sends the rows of a batch: the driver, tasks into its transaction, or tasks by themselves.

The sink asks before it computes a batch. It goes by the size of the batch before; before a run that of the
ledger entry. `docs/explanation/exactly-once.md` has the table.
"""

from __future__ import annotations

from yt_exactly_once import config
from yt_exactly_once.commit.entry import DRIVER, TASKS
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.options import AUTO
from yt_exactly_once.spark.sink.run import Delivery

LARGE = 64 << 20
"""Bytes of encoded rows from which on tasks send them, where the sink may choose."""

TOO_LARGE = "spark.driver.maxResultSize"
"""What Spark names when rows do not fit the driver."""


def tasks_may_send(delivery: Delivery) -> bool:
    """Return whether tasks can send the rows of a batch, as far as is known."""
    mode = delivery.mode
    if mode.options.sent_by == DRIVER or delivery.batch.stateful:
        return False
    if not mode.traits.through_driver:
        return True
    is_allowed = not (mode.obstacle or delivery.run.refusal)
    return is_allowed and delivery.rows.conf("spark.speculation") != "true"


def tasks_join(delivery: Delivery) -> bool:
    """Decide whether tasks send rows into the transaction; raise `ConfigError` if they must, and cannot."""
    run, batch, mode = delivery.run, delivery.batch, delivery.mode
    if mode.options.sent_by == TASKS and mode.traits.through_driver:
        if batch.stateful:
            raise ConfigError(
                "Tasks cannot send the rows of a query that keeps state: its rows can be computed only once",
                remedy="Use sent_by='auto', which sends such batches from the driver",
                query=batch.query_id,
            )
        return True
    # Tablet nodes look for conflicts of sorted rows about as far back as a lease is long.
    is_young = (run.computing or 0) <= config.LEASE.total_seconds() or not run.targets[0].is_sorted
    is_large = run.too_large or run.bytes >= LARGE
    return mode.traits.through_driver and is_large and is_young and tasks_may_send(delivery)


def driver_stands_in(delivery: Delivery) -> bool:
    """Decide whether the driver does what tasks do by themselves, each request in its own transaction.

    It does with batches that are known to be small: the way into a Python task and back takes longer. It
    never does with rows that tasks have written already.
    """
    run, mode = delivery.run, delivery.mode
    if delivery.rows.are_computed or mode.traits.through_driver or run.sessions or run.too_large:
        return False
    is_small = 0 < run.bytes < LARGE and not delivery.batch.stateful
    sent_by = mode.options.sent_by
    return sent_by == DRIVER or (sent_by == AUTO and is_small)


def ends_tell(delivery: Delivery) -> bool:
    """Decide whether the driver goes by the ends of Arrow batches to tell Spark partitions apart.

    Spark plans a batch again to number its partitions, which takes longer than all requests of a small batch.
    Rows can be computed again, with the numbers, if too many of them pass for those of one partition.
    """
    run = delivery.run
    is_final = run.is_uneven or delivery.batch.stateful or delivery.rows.are_computed
    return 0 < run.bytes < LARGE and not is_final
