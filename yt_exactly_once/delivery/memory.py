"""What a sink remembers of a run of a query: one immutable value, which each batch replaces."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.entry import LedgerEntry
    from yt_exactly_once.commit.tally import Tally
    from yt_exactly_once.delivery.route import Facts

LOOK_INTERVAL = 10.0
"""Seconds after which a target is checked again: another table may have replaced it."""


def _now() -> float:
    return time.monotonic()


@dataclass(frozen=True)
class Prepared:
    """Targets that fit the DataFrames of a schema.

    Attributes:
        looked_at: when the tables were last the same, on the monotonic clock.
        check: a check between two batches that was begun, and when; `None` without one.
    """

    schema: Any
    targets: tuple[Any, ...]
    cluster_id: str
    looked_at: float = field(default_factory=_now)
    check: tuple[float, Future[bool]] | None = None

    def fits(self, schema: Any) -> bool:
        """Return whether rows of a schema can be encoded without a look at the tables."""
        return self.schema == schema and _now() - self.looked_at <= LOOK_INTERVAL

    @property
    def wants_check(self) -> bool:
        """Whether a check should begin now, which the next batch need not wait for."""
        return self.check is None and _now() - self.looked_at > LOOK_INTERVAL / 2

    def with_answer(self) -> Prepared:
        """Return the same with the answer of its check, if there is one."""
        if self.check is None or not self.check[1].done():
            return self
        began, answer = self.check
        is_same = answer.exception() is None and answer.result()
        return replace(self, looked_at=began if is_same else float("-inf"), check=None)


@dataclass(frozen=True)
class Memory:
    """What is known of one run of one query.

    Attributes:
        prepared: `None` before its first batch.
        agreed: the newest batch about which sink and ledger agree; `None` before the first.
        entry: the ledger entry that this run has committed last; `None` before the first.
        bytes: of the encoded rows of the newest batch, before the first one that of the run before.
        seconds: that computing the newest batch took; `None` before the first.
        too_large: see `Facts`.
        uneven: see `Facts`; or a batch had rows for fewer tablets than could have shared them.
        refusal: see `Facts`.
        outlived: see `Facts`.
        tallies: of the newest ledger entry that is known, by target.
    """

    run_id: str
    prepared: Prepared | None = None
    agreed: int | None = None
    entry: LedgerEntry | None = None
    bytes: int = 0
    seconds: float | None = None
    too_large: bool = False
    uneven: bool = False
    refusal: str | None = None
    outlived: bool = False
    tallies: Mapping[str, Tally] = field(default_factory=dict)

    def is_followed_by(self, batch: MicroBatch) -> bool:
        """Return whether a batch follows the ones that sink and ledger agree about."""
        return self.agreed is not None and self.agreed < batch.batch_id

    def after_look_up(
        self, batch: MicroBatch, row_bytes: int, tallies: Mapping[str, Tally] | None = None
    ) -> Memory:
        """Return what is known once the ledger agrees with a batch, and says how large the last one was."""
        return replace(
            self,
            agreed=batch.batch_id,
            bytes=self.bytes or row_bytes,
            tallies=tallies or self.tallies,
        )

    def after_rows(self, targets: tuple[Any, ...], seconds: float) -> Memory:
        """Return what is known once the rows of a batch are computed, and have named their tables."""
        prepared = self.prepared and replace(self.prepared, targets=targets)
        return replace(self, prepared=prepared, seconds=seconds)

    def after_failure(self, facts: Facts) -> Memory:
        """Return what is known once a route has failed, for this batch and later ones."""
        return replace(
            self,
            too_large=facts.too_large,
            uneven=facts.uneven,
            refusal=facts.refusal,
            outlived=facts.outlived,
        )

    def after_commit(self, entry: LedgerEntry | None, *, row_bytes: int, uneven: bool) -> Memory:
        """Return what is known once a batch is committed."""
        return replace(
            self,
            entry=entry,
            bytes=row_bytes,
            uneven=self.uneven or uneven,
            tallies=entry.tallies if entry else self.tallies,
        )


class Memories:
    """The memories of the runs that a sink serves, the newest run of each query."""

    def __init__(self) -> None:
        self._by_query: dict[str, Memory] = {}

    def of(self, batch: MicroBatch) -> Memory:
        """Return what is known of the run of a batch."""
        known = self._by_query.get(batch.query_id)
        return known if known and known.run_id == batch.run_id else Memory(batch.run_id)

    def keep(self, batch: MicroBatch, memory: Memory) -> None:
        """Keep what is known of the run of a batch."""
        self._by_query[batch.query_id] = memory
