"""A round of the chaos runner without Spark: its tables, written by hand as a good driver would."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.chaos.plan import Rates, RoundPlan, folder_path
from tests.chaos.stage import Stage
from tests.flows import Row, passed_on
from yt_exactly_once.commit.entry import LEDGER_SCHEMA, LedgerEntry, PartitionOffset, Tally
from yt_exactly_once.config import WriteMode

if TYPE_CHECKING:
    from pathlib import Path

    from yt.wrapper import YtClient

    from tests.chaos.stage import Subject

SEED = 7
ROWS = 4
"""Rows of a batch from each queue partition."""


def build_stage(client: YtClient, folder: Path) -> Stage:
    """Create the tables of a round with stateless queries on both kinds of target, and their ledgers."""
    plans = (RoundPlan.draw(SEED, WriteMode.IDEMPOTENT, number, Rates()) for number in range(99))
    plan = next(plan for plan in plans if not client.exists(folder_path(plan.mode, plan.number)))
    stage = Stage.build(client, plan, folder)
    for subject in stage.subjects:
        client.create(
            "table", subject.ledger, attributes={"dynamic": True, "schema": LEDGER_SCHEMA}
        )
        client.mount_table(subject.ledger, sync=True)
    return stage


class Hand:
    """Writes what one query of a round would write.

    Args:
        stage: of the round.
        client: of the cluster.
        is_sorted: which of its targets.
    """

    def __init__(self, stage: Stage, client: YtClient, *, is_sorted: bool) -> None:
        self.stage = stage
        self.client = client
        self.subject: Subject = next(
            one for one in stage.subjects if one.plan.is_sorted is is_sorted
        )

    def fill(self, batches: int) -> list[Row]:
        """Fill the queue, tell Spark's log, the ledger and the consumer of it; return the target's rows.

        Nothing is in the target yet.
        """
        queue, subject = self.stage.queue, self.subject
        for partition in range(len(queue.rows)):
            queue.append(batches * ROWS, partition)
            self.client.advance_consumer(
                subject.consumer,
                queue.path,
                partition_index=partition,
                old_offset=0,
                new_offset=batches * ROWS,
            )
        log = subject.checkpoint / "offsets"
        log.mkdir(parents=True)
        for batch in range(batches):
            offset = {"partitions": self._partitions((batch + 1) * ROWS)}
            (log / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        self.record(batches - 1, ROWS * len(queue.rows))
        names = list(subject.query.types)
        rows = [dict(zip(names, row, strict=True)) for row in passed_on(queue)]
        return [row | {"batch": row["row"] // ROWS} for row in rows]

    def write(self, rows: list[Row]) -> None:
        """Write rows into the target; rows of one queue partition go to one tablet."""
        tablets = {} if self.subject.plan.is_sorted else {"$tablet_index": 0}
        self.client.insert_rows(self.subject.target, [row | tablets for row in rows])

    def record(self, batch: int, row_count: int) -> None:
        """Write the ledger entry of a batch as the package writes it."""
        start, end = batch * ROWS, (batch + 1) * ROWS
        parts = range(len(self.stage.queue.rows))
        left = {partition: PartitionOffset(start, end, end) for partition in parts}
        target = self.subject.target
        entry = LedgerEntry(
            query_id="q",
            target=target,
            batch_id=batch,
            run_id="r",
            transaction_id="t",
            offsets={("local", self.stage.queue.path, "", ""): left},
            tallies={target: Tally(rows=row_count)},
        )
        self.client.insert_rows(self.subject.ledger, [entry.to_row()])

    def _partitions(self, end: int) -> dict[str, int]:
        return {str(partition): end for partition in range(len(self.stage.queue.rows))}
