"""What must be in a target after each death of its drivers, counted from the rows of the queue alone."""

from collections import Counter
from dataclasses import replace

from tests.crash.crash_points import Aftermath, CrashPoint, Visible
from tests.crash.harness.lives import Remains, Subject
from tests.flows import Rows, differences
from yt_exactly_once.config import DeliveryMode


class Account:
    """The history of one query: which of its rows are in the target, and which of them twice."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.mode = DeliveryMode(subject.cell.mode)
        # Rows that at-least-once mode wrote before a death and will write again.
        self.repeated: Rows = []

    def wrong_after(self, point: CrashPoint, batch: int, left: Remains) -> str:
        """Compare what a death left behind with what it should have; empty when it is right.

        Args:
            batch: in which batch.
        """
        aftermath = point.value.aftermath(self.mode)
        assert aftermath is not None, f"{self.mode} never passes {point.name}"
        return (
            self._wrong_ledger(aftermath, batch, left)
            or self._wrong_consumer(left)
            or self._wrong_rows(aftermath, batch, left)
        )

    def wrong_at_the_end(self, left: Remains) -> str:
        """Compare what the last life left behind with the whole queue; empty when it is right."""
        subject, path = self.subject, self.subject.queue.path
        ends = subject.queue.ends()
        if left.entry is None or left.entry.ends[path] != ends or left.stored != ends:
            return f"Ledger {left.entry} or consumer {left.stored} is not at the end, {ends}"
        found = Counter(left.rows)
        if lacking := Counter(self.repeated) - found:
            return f"{lacking.total()} rows written twice are not there twice"
        once = found - Counter(self.repeated)
        return subject.incomplete(replace(left, rows=list(once.elements())))

    def _wrong_ledger(self, aftermath: Aftermath, batch: int, left: Remains) -> str:
        last = batch if aftermath.committed else batch - 1
        in_part = aftermath.visible is Visible.SOME and self.mode is DeliveryMode.TRANSACTIONAL
        expected = batch if in_part else last
        found = -1 if left.entry is None else left.entry.batch_id
        whole = left.entry is None or left.entry.part == left.entry.part_count
        if found != expected or whole is in_part:
            return f"The ledger holds batch {found}, {left.entry}, and not {expected}"
        return ""

    def _wrong_consumer(self, left: Remains) -> str:
        path = self.subject.queue.path
        if left.entry is None:
            return (
                f"A consumer without a ledger entry stands at {left.stored}" if left.stored else ""
            )
        lefts, ends = left.entry.left[path], left.entry.ends[path]
        standing = {partition: left.stored.get(partition, 0) for partition in ends}
        if any(not lefts[part] <= standing[part] <= ends[part] for part in ends):
            return f"The consumer stands at {standing}, and the entry says {lefts} to {ends}"
        return ""

    def _wrong_rows(self, aftermath: Aftermath, batch: int, left: Remains) -> str:
        if self.subject.cell.is_sorted:
            return self._wrong_sorted(aftermath.visible, batch, left.rows)
        before, after = (
            Counter(self.subject.given_out(batch - 1)),
            Counter(self.subject.given_out(batch)),
        )
        fresh, repeated = after - before, Counter(self.repeated)
        beyond = Counter(left.rows) - before - repeated
        if lost := (before + repeated) - Counter(left.rows):
            return f"{lost.total()} lost, e.g. {next(iter(lost))}"
        if self.mode is DeliveryMode.AT_LEAST_ONCE and not aftermath.committed:
            self.repeated += beyond.elements()
        if aftermath.visible is Visible.SOME:
            part = Counter() < beyond < fresh
            return "" if part else f"{beyond.total()} of {fresh.total()} rows are not some of them"
        expected = fresh if aftermath.visible is Visible.ALL else Counter()
        return differences(list(beyond.elements()), list(expected.elements()))

    def _wrong_sorted(self, visible: Visible, batch: int, rows: Rows) -> str:
        before, after = self.subject.must_hold(batch - 1), self.subject.must_hold(batch)
        if visible is not Visible.SOME:
            return differences(rows, after if visible is Visible.ALL else before)
        width = len(self.subject.query.keys)
        keys, known, found = ({row[:width] for row in group} for group in (before, after, rows))
        if rows in (before, after) or len(found) < len(rows) or not keys <= found <= known:
            return f"{len(rows)} rows are not between {len(before)} before and {len(after)} after"
        return differences([row for row in rows if row not in {*before, *after}], [])
