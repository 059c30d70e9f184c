"""The oracle: what every target, ledger and consumer must hold, recomputed from the rows of the queue.

It uses the rows that the feeder put in, the batches that Spark's own log tells of, and the plain Python
of `tests.flows`; nothing of the package under test.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from yt.wrapper import YtClient

from tests.chaos.checkpoint import Ends, read_cuts
from tests.chaos.messages import BATCH_COLUMN
from tests.chaos.stage import Stage, Subject
from tests.flows import Queue, Row, Rows, ledger_entries
from yt_exactly_once.config import DeliveryMode

_SHOWN = 5


@dataclass
class CutQueue(Queue):
    """A queue cut into batches as Spark has cut it.

    Attributes:
        cuts: where each batch ends.
    """

    cuts: list[Ends] = field(default_factory=list)

    def batches(self, _size: int) -> Iterator[list[Row]]:
        """Yield the rows of every batch, whatever size was asked for."""
        for starts, ends in pairwise([{}, *self.cuts]):
            yield [
                row
                for partition, rows in enumerate(self.rows)
                for row in rows[starts.get(partition, 0) : ends[partition]]
            ]


@dataclass
class Findings:
    """What is wrong with a query after a round.

    Attributes:
        lost: rows that must be in the target and are not.
        duplicated: copies of a row beyond those that must be there.
        stale: rows of a sorted target that are older than the newest for their key.
        misordered: rows of a source partition that stand behind a later one in their tablet.
        notes: what was found, in words, with examples.
    """

    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    stale: int = 0
    wrong: int = 0
    misordered: int = 0
    notes: list[str] = field(default_factory=list)

    def violates(self, mode: DeliveryMode) -> bool:
        """Tell whether the promise of a mode is broken."""
        broken = self.lost or self.wrong or self.notes
        if mode is not DeliveryMode.AT_LEAST_ONCE:
            broken = broken or self.duplicated or self.stale or self.misordered
        return bool(broken)


class Oracle:
    """Judges one query of a round whose drivers are all gone."""

    def __init__(self, stage: Stage, subject: Subject, client: YtClient) -> None:
        self._stage = stage
        self._subject = subject
        self._client = client
        self._ordered = not subject.plan.is_sorted
        self.cuts = read_cuts(subject.checkpoint)
        names = [*subject.query.types, BATCH_COLUMN]
        where = ["$tablet_index", "$row_index"] if self._ordered else []
        listed = ", ".join(f"[{name}]" for name in [*where, *names])
        found = subject.select(client, listed)
        if self._ordered:
            found.sort(key=lambda row: (row["$tablet_index"], row["$row_index"]))
        self._found = found
        self.rows_by_batch = Counter(row[BATCH_COLUMN] for row in found)

    def judge(self) -> Findings:
        """Compare target, ledger and consumer with what they must be."""
        findings = Findings(rows=len(self._found))
        self._check_rows(findings)
        self._check_tags(findings)
        self._check_sequence(findings)
        self._check_progress(findings)
        return findings

    def _check_rows(self, findings: Findings) -> None:
        query, queue = self._subject.query, self._stage.queue
        names = list(query.types)
        cut = CutQueue(queue.client, queue.path, queue.consumer, queue.rows, self.cuts)
        found = [tuple(row[name] for name in names) for row in self._found]
        key = len(query.keys) if query.growing and not self._ordered else None
        differences = compare(found, query.expected(cut, 0), key)
        for name, rows in differences.items():
            setattr(findings, name, rows.total())
            if rows and (self._exactly_once or name in {"lost", "wrong"}):
                findings.notes.append(f"{name}, for instance {list(rows)[:_SHOWN]}")

    def _check_tags(self, findings: Findings) -> None:
        """Every row of a one-to-one query must come from the batch that covers it."""
        if self._subject.plan.kind != "stateless":
            return
        batch_of = {
            (partition, row): number
            for number, (starts, ends) in enumerate(pairwise([{}, *self.cuts]))
            for partition, end in ends.items()
            for row in range(starts.get(partition, 0), end)
        }
        strange = [
            row
            for row in self._found
            if batch_of.get((row["part"], row["row"])) != row[BATCH_COLUMN]
        ]
        if strange:
            findings.wrong += len(strange)
            findings.notes.append(f"written by another batch, for instance {strange[:_SHOWN]}")

    def _check_sequence(self, findings: Findings) -> None:
        """The rows of a source partition must keep their order within a tablet."""
        if self._subject.plan.kind != "stateless" or not self._ordered:
            return
        last: dict[tuple[int, int], int] = defaultdict(lambda: -1)
        for row in self._found:
            place = (row["$tablet_index"], row["part"])
            if row["row"] <= last[place]:
                findings.misordered += 1
            last[place] = max(last[place], row["row"])

    def _check_progress(self, findings: Findings) -> None:
        """Ledger, Spark's log, consumer and queue must tell the same story."""
        subject, queue = self._subject, self._stage.queue
        ends = queue.ends()
        entries = ledger_entries(self._client, subject.ledger)
        if len(entries) != 1:
            findings.notes.append(f"{len(entries)} ledger entries")
            return
        (entry,) = entries
        if entry.ends[queue.path] != ends:
            findings.notes.append(
                f"the ledger ends at {entry.ends[queue.path]}, the queue at {ends}"
            )
        if self.cuts and self.cuts[-1] != ends:
            findings.notes.append(f"Spark's log ends at {self.cuts[-1]}, the queue at {ends}")
        if self._exactly_once and self.rows_by_batch[entry.batch_id] != entry.row_count:
            findings.notes.append(
                f"batch {entry.batch_id} has {self.rows_by_batch[entry.batch_id]} rows, the ledger "
                f"tells of {entry.row_count}"
            )
        stored, left = queue.stored(subject.consumer), entry.left[queue.path]
        outside = {
            partition: stored.get(partition, 0)
            for partition in ends
            if not left[partition] <= stored.get(partition, 0) <= ends[partition]
        }
        if outside:
            findings.notes.append(f"the consumer stands at {outside}, left at {left}, queue {ends}")

    @property
    def _exactly_once(self) -> bool:
        return self._stage.plan.mode is not DeliveryMode.AT_LEAST_ONCE


def compare(found: Rows, every: Rows, key: int | None) -> dict[str, Counter[tuple[Any, ...]]]:
    """Sort the differences between two bags of rows by what has happened to them.

    Args:
        every: rows that must have been written to it, in their order.
        key: columns of the key when a later row replaces an earlier one; `None` when all stay.

    Returns:
        The rows that are lost, duplicated, stale and wrong, see `Findings`.
    """
    kept = every if key is None else list({row[:key]: row for row in every}.values())
    have, want = Counter(found), Counter(kept)
    lost, extra = want - have, have - want
    copies = Counter({row: count for row, count in extra.items() if row in want})
    replaced = set() if key is None else set(every)
    stale = Counter({row: n for row, n in (extra - copies).items() if row in replaced})
    wrong = extra - copies - stale
    if key is not None:
        # A wrong or stale row stands in the place of the right one, which is not lost besides.
        taken = {row[:key] for row in [*wrong, *stale]}
        lost = Counter({row: count for row, count in lost.items() if row[:key] not in taken})
    return {"lost": lost, "duplicated": copies, "stale": stale, "wrong": wrong}
