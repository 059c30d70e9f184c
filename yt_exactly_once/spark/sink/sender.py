"""Who sends the rows of a batch: the driver, tasks into its transaction, or tasks by themselves.

The sink asks before it computes a batch. It goes by the size of the batch before; before a run that of the
ledger entry. `docs/explanation/exactly-once.md` has the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt_exactly_once import config
from yt_exactly_once.commit.entry import DRIVER, TASKS
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.options import AUTO_SENDER

if TYPE_CHECKING:
    from yt_exactly_once.spark.sink.modes.mode import Mode
    from yt_exactly_once.spark.sink.run import Delivery

LARGE = 64 << 20
"""Bytes of encoded rows from which on tasks send them, where the sink may choose."""

TOO_LARGE = "spark.driver.maxResultSize"
"""What Spark names when rows do not fit the driver."""

_SPECULATION = "spark.speculation"


def tasks_may_send(mode: Mode, delivery: Delivery) -> bool:
    """Return whether tasks can send the rows of a batch, as far as is known."""
    if mode.options.sent_by == DRIVER or delivery.batch.stateful:
        return False
    if not mode.traits.through_driver:
        return True
    is_allowed = not (mode.obstacle or delivery.run.by_driver)
    return is_allowed and delivery.rows.conf(_SPECULATION) != "true"


def tasks_join(mode: Mode, delivery: Delivery) -> bool:
    """Decide whether tasks send the rows of a batch into its transaction.

    Raises:
        ConfigError: they must, and cannot.
    """
    run, batch = delivery.run, delivery.batch
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
    return mode.traits.through_driver and is_large and is_young and tasks_may_send(mode, delivery)


def driver_stands_in(mode: Mode, delivery: Delivery) -> bool:
    """Decide whether the driver does what tasks do by themselves, each request in its own transaction.

    It does with batches that are known to be small: the way into a Python task and back takes longer.
    """
    run, sent_by = delivery.run, mode.options.sent_by
    if mode.traits.through_driver or run.sessions or run.too_large:
        return False
    is_small = 0 < run.bytes < LARGE and not delivery.batch.stateful
    return sent_by == DRIVER or (sent_by == AUTO_SENDER and is_small)
