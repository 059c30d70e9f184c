"""Changes of which the newest by sequence counts (`changes=Changes(...)`), compared in the transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.newest import LatestChanges
from yt_exactly_once.codec.rows import Fragments, WireFormat, encode
from yt_exactly_once.codec.schema import WritePlan
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.commit.cluster import Payload, Transaction
from yt_exactly_once.commit.parts import TargetRows
from yt_exactly_once.spark.sink.encode import chunks
from yt_exactly_once.ytsaurus.tombstones import require_room, tombstones_of

if TYPE_CHECKING:
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.client import Connection


def changed_rows(
    connection: Connection, target: PreparedTarget, arrived: Iterable[pa.RecordBatch]
) -> TargetRows:
    """Return the changes of a batch for the commit, which compares them with the tables.

    Raises:
        BatchTooLargeError: one transaction cannot carry them.
        AmbiguousOrderError, EncodingError: see `LatestChanges.of`.
    """
    batches = list(chunks(arrived, target.dyn_batch_size))
    if target.rule is None or not batches:
        return TargetRows(path=target.path, groups=(), wire=target.wire.value, row_count=0)
    latest = LatestChanges.of(batches, target.rule)
    target.require_room({None: latest.rows.num_rows})
    require_room(connection, target.path, latest.deletes.true_count, target.rows_per_tablet_limit)
    return TargetRows(
        path=target.path,
        groups=(),
        wire=target.wire.value,
        row_count=latest.rows.num_rows,
        compared=NewestChanges(latest, target.wire, target.dyn_batch_size),
        sent_bytes=latest.rows.nbytes,
    )


@dataclass(frozen=True)
class NewestChanges:
    """Changes of a batch, one for each key.

    Every attempt reads the sequences of their keys inside its transaction, as of the start: of rows in the
    target, and of tombstones beside it. Every change that has an effect writes or deletes the row of its key
    in the target. So if two transactions change one key, and neither sees the other, the second is refused.
    A change without effect needs no such protection: sequences of a key only grow.

    Attributes:
        dyn_batch_size: most keys or rows in one request.
    """

    latest: LatestChanges
    wire: WireFormat
    dyn_batch_size: int

    @property
    def path(self) -> str:
        """The target."""
        return self.latest.rule.plan.target

    @property
    def beside(self) -> str:
        """The table of tombstones."""
        return tombstones_of(self.path)

    @property
    def digest(self) -> bytes:
        """A digest of the changes, which does not depend on their order."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.latest.rows.schema) as stream:
            stream.write_batch(self.latest.rows)
        return hashlib.sha256(sink.getvalue()).digest()

    def effective(self, transaction: Transaction) -> list[TargetRows]:
        """Return what is written into the target and beside it, as of the start of a transaction."""
        latest = self.latest
        newer = latest.newer(self._stored(transaction))
        deletes, writes = (
            pc.and_(newer, each) for each in (latest.deletes, pc.invert(latest.deletes))
        )
        target = [
            *self._deleted(latest.keys.filter(deletes)),
            *self._written(latest.rows.filter(writes), latest.rule.plan),
        ]
        # One of a key that is written again does no harm: it is older than the row.
        beside = self._written(latest.rows.filter(deletes), latest.rule.tombstone)
        outdated = len(newer) - newer.true_count
        return [self._rows(self.path, target, outdated), self._rows(self.beside, beside)]

    def _stored(self, transaction: Transaction) -> list[pa.RecordBatch]:
        """Return the keys and sequences of what is there, in the target and beside it."""
        names = self.latest.rule.tombstone.names
        calls: list[Callable[[Transaction], bytes]] = [
            partial(_look_up, path=path, keys=joined(keys), columns=names)
            for path in (self.path, self.beside)
            for keys in self._pieces(self.latest.keys)
        ]
        return [self.latest.rule.decoded(answer) for answer in transaction.side_by_side(calls)]

    def _deleted(self, keys: Fragments) -> Iterator[Payload]:
        for piece in self._pieces(keys):
            yield Payload(len(piece), joined(piece), deletes=True)

    def _written(self, rows: pa.RecordBatch, plan: WritePlan) -> Iterator[Payload]:
        for chunk in chunks([rows], self.dyn_batch_size):
            yield Payload(chunk.num_rows, encode(chunk, plan, self.wire))

    def _pieces(self, keys: Fragments) -> Iterator[Fragments]:
        for start in range(0, len(keys), self.dyn_batch_size):
            yield keys.slice(start, self.dyn_batch_size)

    def _rows(self, path: str, payloads: Iterable[Payload], outdated: int = 0) -> TargetRows:
        groups = [[payload] for payload in payloads]
        return TargetRows(
            path=path,
            groups=groups,
            wire=self.wire.value,
            row_count=sum(payload.row_count for (payload,) in groups),
            outdated=outdated,
        )


def _look_up(transaction: Transaction, **what: Any) -> bytes:
    return transaction.lookup_columns(**what)
