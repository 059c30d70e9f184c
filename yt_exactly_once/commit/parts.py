"""What one transaction writes: rows for tables, and the parts into which a batch that is too large is split.

Almost every batch has one part. The split depends only on the payloads, so a replay of a deterministic query
splits the same way. Digests reveal when it did not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from yt_exactly_once.codec.row_hash import combined
from yt_exactly_once.commit.cluster import Payload, Transaction
from yt_exactly_once.commit.tally import RowDigest, SentBy, TableRows, Tally
from yt_exactly_once.config import PLAIN_WRITE, WriteOptions


class Complete(Protocol):
    """All rows that a table holds after the commit: those that it has besides are deleted."""

    def surplus(self, transaction: Transaction) -> list[Payload]:
        """Return deletes for rows that are not among them, as of the start of a transaction.

        Raise `BatchTooLargeError` if there are too many.
        """


class Compared(Protocol):
    """Changes of which some have no effect, by what the tables hold: each attempt compares them again.

    Attributes:
        digest: of all changes.
        beside: the table that is written with the target.
    """

    @property
    def digest(self) -> bytes: ...  # noqa: D102 - above

    @property
    def beside(self) -> str: ...  # noqa: D102 - above

    def effective(self, transaction: Transaction) -> list[TargetRows]:
        """Return what is written into the tables, as of the start of a transaction."""


@dataclass(frozen=True)
class TargetRows:
    """Encoded rows for one table.

    Attributes:
        groups: payloads; those of a group are sent in their order. Empty when the rows are written.
        wire: wire format of the payloads.
        row_count: rows written or deleted, in the payloads or by the tasks.
        options: how the cluster writes the payloads.
        group_is_tablet: every group goes to a tablet of its own; otherwise keys choose the tablets.
        tablets: to how many tablets of an ordered table they go; 0 where keys choose, or nobody knows.
        complete: set when the table must hold nothing but these rows.
        compared: makes the payloads in the transaction; `None` where they are known.
        outdated: changes that have no effect, since the table knows newer ones.
        digest: of the rows; `None` where the ledger keeps none.
        rejected_by: the target that could not take these rows; `None` for rows of a target.
        sent_bytes: bytes that were sent before the commit.
        sent_by: who sent, or will send, the rows.
        inside: the open transaction in which tasks have written the rows; `None` for all others.
        pattern: the target by which the rows have named the table; `None` if the table is the target.
        is_new: whether the table was created or mounted for these rows.
    """

    path: str
    groups: Sequence[Sequence[Payload]]
    wire: str
    row_count: int
    options: WriteOptions = PLAIN_WRITE
    group_is_tablet: bool = False
    tablets: int = 0
    complete: Complete | None = None
    compared: Compared | None = None
    outdated: int = 0
    digest: int | None = None
    rejected_by: str | None = None
    sent_bytes: int = 0
    sent_by: SentBy = SentBy.DRIVER
    inside: str | None = None
    pattern: str | None = None
    is_new: bool = False

    @property
    def target(self) -> str:
        """The target whose rows these are."""
        return self.rejected_by or self.pattern or self.path

    @property
    def tally(self) -> Tally:
        """What is written of the target, for the ledger."""
        if self.rejected_by:
            return Tally(rejected_rows=self.row_count)
        tally = Tally(self.row_count, bytes=self.byte_count, sent_by=self.sent_by.value)
        if self.pattern:
            table = TableRows(self.row_count, self.row_count, self.digest)
            return replace(tally, tables={self.path: table})
        if self.digest is None:
            return tally
        return replace(tally, digest=RowDigest(self.digest, replaces=self.complete is not None))

    @property
    def byte_count(self) -> int:
        """Bytes of the encoded rows, in the payloads or sent before."""
        return self.sent_bytes + sum(len(payload.data) for payload in chain(*self.groups))

    def effective(self, transaction: Transaction) -> list[TargetRows]:
        """Return what is written for it, once it is compared with what the tables hold."""
        return [self] if self.compared is None else self.compared.effective(transaction)

    def delete_surplus(self, transaction: Transaction) -> int:
        """Delete the rows that a complete result does not have any more, and return how many.

        Before the others are written: of what is done to one key in a transaction the last thing counts.
        """
        if self.complete is None:
            return 0
        surplus = self.complete.surplus(transaction)
        self.write(transaction, surplus)
        return sum(payload.row_count for payload in surplus)

    def write(self, transaction: Transaction, payloads: Sequence[Payload]) -> None:
        """Write some of its payloads."""
        transaction.write(self.path, payloads, self.wire, self.options)


@dataclass(frozen=True)
class Part:
    """What one transaction writes.

    Attributes:
        number: from 1 to `count`.
        digests: of the parts up to this one; empty for a batch of one part.
    """

    number: int
    count: int
    digests: tuple[str, ...]
    targets: Sequence[TargetRows]

    @property
    def inside(self) -> str | None:
        """The open transaction that has rows which tasks wrote; `None` without any."""
        return next((target.inside for target in self.targets if target.inside), None)

    @property
    def has_new_tables(self) -> bool:
        """Whether a transaction may have begun before one of its tables was there."""
        return any(target.is_new for target in self.targets)

    @property
    def is_last(self) -> bool:
        """Whether the batch is complete with it."""
        return self.number == self.count

    def written(self) -> dict[str, Tally]:
        """Return what it writes into each target, for the ledger."""
        found: dict[str, Tally] = {}
        # Rejected rows first: who sent those of the target counts.
        for one in sorted(self.targets, key=lambda one: not one.rejected_by):
            tally = one.tally
            found[one.target] = found[one.target].beside(tally) if one.target in found else tally
        return found


def whole(targets: Sequence[TargetRows]) -> list[Part]:
    """Return the batch as its only part."""
    return [Part(1, 1, (), targets)]


def split(targets: Sequence[TargetRows], rows_per_tablet_limit: int) -> list[Part]:
    """Cut a batch into parts of at most `rows_per_tablet_limit` rows for any tablet.

    Where keys choose the tablets all rows of a part may meet in one, so the limit holds for their sum.
    """
    cut = [_cut(target, rows_per_tablet_limit) for target in targets]
    count = max(map(len, cut), default=1)
    if count == 1:
        return whole(targets)
    rows = [[pieces[index] for pieces in cut if index < len(pieces)] for index in range(count)]
    digests = tuple(digest_of(part) for part in rows)
    return [
        Part(number, count, digests[:number], part) for number, part in enumerate(rows, start=1)
    ]


def _cut(target: TargetRows, rows_per_tablet_limit: int) -> list[TargetRows]:
    pieces: list[list[list[Payload]]] = [[[] for _ in target.groups]]
    index = used = 0
    for number, group in enumerate(target.groups):
        if target.group_is_tablet:
            index = used = 0
        for payload in group:
            if used and used + payload.row_count > rows_per_tablet_limit:
                index, used = index + 1, 0
            if index == len(pieces):
                pieces.append([[] for _ in target.groups])
            pieces[index][number].append(payload)
            used += payload.row_count
    if len(pieces) == 1:
        return [target]
    return [
        replace(
            target,
            groups=groups,
            row_count=sum(payload.row_count for payload in chain(*groups)),
            digest=None if target.digest is None else digest_of_rows(groups),
        )
        for groups in pieces
    ]


def digest_of_rows(groups: Sequence[Sequence[Payload]]) -> int:
    """Return the digest of the rows of payloads, which does not depend on their order."""
    return combined(*(payload.digest for payload in chain(*groups)))


def digest_of(targets: Sequence[TargetRows]) -> str:
    """Return a digest of everything that is sent for targets, and of the tables that rows have named."""
    digest = hashlib.sha256()
    for target in targets:
        if target.pattern is not None:
            digest.update(target.path.encode())
        if target.compared is not None:
            digest.update(target.compared.digest)
        for payload in chain(*target.groups):
            digest.update(b"-" if payload.deletes else b"+")
            digest.update(payload.data)
    return digest.hexdigest()
