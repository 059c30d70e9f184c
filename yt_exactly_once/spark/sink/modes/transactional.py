"""Transactional mode: the driver collects the rows, and one transaction writes them with the ledger.

Spark hands the driver one result per partition. That is the only place where a retried task, a re-run stage
or a speculative copy is already sorted out. The result is Arrow: no Python object per value on the driver.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.parts import TargetRows, digest_of_rows
from yt_exactly_once.errors import AmbiguousOrderError, ConfigError, DuplicateKeyError
from yt_exactly_once.spark.sink.encode import encode_frame
from yt_exactly_once.spark.sink.modes.mode import Mode
from yt_exactly_once.spark.sink.modes.sessions import begun_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.parts import SendAhead
    from yt_exactly_once.spark.sink.encode import RowEncoder
    from yt_exactly_once.spark.sink.modes.mode import Sessions
    from yt_exactly_once.spark.sink.targets import PreparedTarget
    from yt_exactly_once.ytsaurus.rows import SessionState


class Transactional(Mode):
    """Exactly once for any query; a batch becomes visible all at once."""

    looks_up_each_batch = False

    def check(self) -> None:
        """See `Mode.check`."""
        for target in self.options.targets:
            if target.replaces and self.options.split_oversized:
                raise ConfigError(
                    "write='replace' and split_oversized exclude each other: a result is replaced at "
                    "once",
                    remedy="Give the target more tablets instead",
                    target=target.path,
                )

    def begun(
        self,
        frame: DataFrame,  # noqa: ARG002 - the contract
        batch: MicroBatch,
        targets: Sequence[PreparedTarget],
        sessions: Callable[[], Sessions],
    ) -> dict[str, dict[str, SessionState]]:
        """See `Mode.begun`: rows that idempotent mode has pushed would be written again."""
        return begun_sessions(batch, targets, sessions, lambda _: "")

    def write(
        self,
        frame: DataFrame,
        batch: MicroBatch,
        target: PreparedTarget,
        begun: Sessions,  # noqa: ARG002 - the contract
        send: SendAhead | None = None,
    ) -> list[TargetRows]:
        """See `Mode.write`: the rows of the target, and rejected ones if there are any.

        Payloads for one tablet, or of one Spark partition where keys choose the tablet, share a lane and
        so keep their order.

        Raises:
            BatchTooLargeError: more rows than one transaction may write.
            DuplicateKeyError: two rows have one key, and the target asks for unique keys.
            AmbiguousOrderError: which of the rows of a key is the last one cannot be known.
        """
        encoder = self.encoder(batch, target)
        # A part of a batch must not have rows of another one, and a result is replaced before it is written.
        is_fit = not (self.options.split_oversized or target.options.replaces)
        send_one = partial(send, _described(target)) if send and is_fit else None
        encode_frame(frame, encoder, dyn_batch_size=target.request_size, send=send_one)
        return self.encoded(encoder, target)

    def encoder(self, batch: MicroBatch, target: PreparedTarget) -> RowEncoder:
        """Return what encodes the rows of a batch."""
        rejects = None
        if self.options.dead_letter_path is not None:
            rejects = Rejects(self.options.dead_letter_path, batch.query_id, batch.batch_id)
        return target.of_batch(batch).encoder(rejects)

    def encoded(self, encoder: RowEncoder, target: PreparedTarget) -> list[TargetRows]:
        """Return what an encoder has collected; see `write`."""
        options, rejects = self.options, encoder.rejects
        if not options.split_oversized:
            target.require_room(encoder.rows_by_tablet)
        if target.options.unique_keys:
            _require_unique(encoder.keys.values(), target.path)
        keys = _distinct_keys(encoder.keys.values(), target.path)
        lanes = [encoder.lanes[lane] for lane in sorted(encoder.lanes)]
        rows = replace(
            _described(target),
            lanes=lanes,
            row_count=sum(encoder.rows_by_tablet.values()),
            complete=target.complete(keys) if target.options.replaces else None,
            digest=digest_of_rows(lanes) if encoder.digests else None,
        )
        if rejects is None or not encoder.rejected:
            return [rows]
        rejected = TargetRows(
            path=rejects.path,
            lanes=[encoder.rejected],
            wire=WireFormat.YSON.value,
            row_count=sum(payload.row_count for payload in encoder.rejected),
            lane_is_tablet=True,
            rejected_by=target.path,
        )
        return [rows, rejected]


def _described(target: PreparedTarget) -> TargetRows:
    """Return how the rows of a target are written, without rows."""
    return TargetRows(
        path=target.path,
        lanes=(),
        wire=target.wire.value,
        row_count=0,
        update=target.options.update_columns,
        aggregate=target.options.aggregate,
        lane_is_tablet=not target.is_sorted,
    )


def _require_unique(by_partition: Iterable[list[pa.LargeBinaryArray]], target: str) -> None:
    """Check that no two rows have one key.

    Raises:
        DuplicateKeyError: some have.
    """
    keys = [pa.array([], pa.large_binary()), *(part for parts in by_partition for part in parts)]
    together = pa.concat_arrays(keys)
    repeated = len(together) - len(pc.unique(together))
    if repeated:
        raise DuplicateKeyError(
            f"{repeated} of {len(together)} rows have the key of another row of the batch",
            remedy="Make the keys unique in the query, or leave unique_keys out to let the last row of a key "
            "count",
            target=target,
        )


def _distinct_keys(
    by_partition: Iterable[list[pa.LargeBinaryArray]], target: str
) -> pa.LargeBinaryArray:
    """Return every key once.

    Raises:
        AmbiguousOrderError: one is in several Spark partitions, which are sent side by side.
    """
    kept = [pc.unique(pa.concat_arrays(keys)) for keys in by_partition]
    together = pa.concat_arrays([pa.array([], pa.large_binary()), *kept])
    repeated = len(together) - len(pc.unique(together))
    if repeated:
        raise AmbiguousOrderError(
            f"The rows of {repeated} keys are spread over several Spark partitions, and which is the "
            "last one of a key is not known",
            remedy="Make the keys unique. Or bring the rows of a key together and in order inside the "
            "foreachBatch function: sink(df.repartition(key).sortWithinPartitions(time), batch_id)",
            target=target,
        )
    return together
