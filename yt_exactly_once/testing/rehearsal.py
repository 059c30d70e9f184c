"""What a rehearsal found: each batch that was run again with new code, against what the old code wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ExactlyOnceError, visible

SHOWN = 3
"""Pairs of rows that are kept as examples."""

Row = Mapping[str, Any]


class Judgement(StrEnum):
    """What the new code makes of a batch, the worst first."""

    REFUSED = "refused"
    """Spark, the source or the sink refuses to run the batch with the new code."""

    OTHER = "other rows"
    """It writes other rows than the old code did."""

    UNREADABLE = "cannot be read"
    """Rows of the batch were trimmed, or Spark no longer has its state."""

    UNPROVEN = "not proven"
    """As far as was compared the rows are the same, which says too little."""

    SAME = "same rows"
    """Each row is the same, with its values."""


class OtherRowsError(ExactlyOnceError, AssertionError):
    """New code was not proven to write the same rows as the old code."""


@dataclass(frozen=True)
class Rehearsed:
    """One batch and one of its targets.

    Attributes:
        by: what the rows were compared with.
        old_rows: rows of the batch that the old code wrote; `None` if nothing tells.
        new_rows: rows that the new code would write; `None` if it could not compute them.
        only_old: rows that the new code does not write; `None` if nothing tells which.
        only_new: rows that the old code did not write; `None` as above.
        examples: rows of the old and of the new code side by side; `None` where one has no such row.
        reason: why nothing more can be said, or what was refused.
    """

    batch: int
    target: str
    judgement: Judgement
    by: str = ""
    old_rows: int | None = None
    new_rows: int | None = None
    only_old: int | None = None
    only_new: int | None = None
    examples: Sequence[tuple[Row | None, Row | None]] = ()
    reason: str = ""

    def __str__(self) -> str:
        """Return what was found, with the examples."""
        counts = f"{_number(self.old_rows)} rows before, {_number(self.new_rows)} now"
        by = f", by {self.by}" if self.by else ""
        lines = [f"batch {self.batch} of {self.target}: {self.judgement} ({counts}{by})"]
        if self.only_old or self.only_new:
            lines.append(f"  only before: {self.only_old}, only now: {self.only_new}")
        for old, new in self.examples:
            lines += [f"  - {_shown(old)}", f"  + {_shown(new)}"]
        if self.reason:
            lines.append(f"  {self.reason}")
        return "\n".join(map(visible, lines))


@dataclass(frozen=True)
class Rehearsal:
    """All batches that were rehearsed. As text it is a report.

    Attributes:
        mode: delivery mode of the sink, as the new code has it; empty if none was called. Of several sinks
            one that is not transactional, if there is one.
        unfinished: the batch that Spark has logged and not finished, if there is one: its replay runs the new
            code, whatever was rehearsed.
        split_oversized: whether a sink may write a batch in parts.
    """

    batches: Sequence[Rehearsed]
    mode: str = ""
    unfinished: int | None = None
    split_oversized: bool = False

    @property
    def judgement(self) -> Judgement:
        """The worst judgement."""
        found = {one.judgement for one in self.batches}
        return next((one for one in Judgement if one in found), Judgement.UNPROVEN)

    @property
    def same(self) -> bool:
        """Whether it is proven that the new code writes the same rows in all these batches."""
        return self.judgement is Judgement.SAME

    @property
    def may_change_in_mid_batch(self) -> bool | None:
        """Whether the code may be changed while a batch is unfinished; `None` if that is not known.

        In transactional mode nothing of such a batch is visible, so it may if the new code runs. In the other
        modes, and with `split_oversized`, rows of it may be there, and the new code must write the same ones.
        """
        if self.judgement is Judgement.REFUSED:
            return False
        if self.mode == DeliveryMode.TRANSACTIONAL and not self.split_oversized:
            return True
        known = {Judgement.SAME: True, Judgement.OTHER: False}
        return known.get(self.judgement)

    def assert_same(self) -> None:
        """Raise `OtherRowsError`, with the report, unless the same rows are proven."""
        if not self.same:
            raise OtherRowsError(
                f"The new code is not proven to write the same rows: {self.judgement}",
                details=str(self).splitlines(),
            )

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {
            "judgement": self.judgement.value,
            "same": self.same,
            "mode": self.mode,
            "unfinished": self.unfinished,
            "split_oversized": self.split_oversized,
            "may_change_in_mid_batch": self.may_change_in_mid_batch,
            "batches": [asdict(one) for one in self.batches],
        }

    def __str__(self) -> str:
        """Return the report."""
        counts = Counter(one.judgement for one in self.batches)
        found = ", ".join(f"{counts[one]} {one}" for one in Judgement if counts[one])
        return "\n".join(
            [f"{self.judgement} ({found or 'no batch'})", *map(str, self.batches), self._advice]
        )

    @property
    def _advice(self) -> str:
        pending = (
            "" if self.unfinished is None else f" Batch {self.unfinished} is such a batch now."
        )
        match self.may_change_in_mid_batch:
            case True:
                return f"The code may be changed while a batch is unfinished.{pending}"
            case False:
                return (
                    "Do not change the code while a batch is unfinished: let the old code finish it, with "
                    f"trigger(availableNow=True).{pending}"
                )
        return (
            f"Nothing tells whether the code may be changed while a batch is unfinished.{pending}"
        )


def _number(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _shown(row: Row | None) -> str:
    return "no such row" if row is None else repr(dict(row))
