"""A target whose rows name their tables: what is known before the rows, and its tables afterwards.

All rows of a batch come to the driver, which deals them to their tables. These are looked up, and created
if that is wished, before the transaction that writes to all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once import advice, errors
from yt_exactly_once.codec.arrow_types import is_json
from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.codec.readable import shown
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import WritePlan, require_no_reserved, table_schema_for, without
from yt_exactly_once.codec.weights import weight
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.encode import merged, partition_of
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.tablets import tablets_of
from yt_exactly_once.spark.sink.targets import PreparedTarget, prepare_table
from yt_exactly_once.ytsaurus import tables
from yt_exactly_once.ytsaurus.browsing import attributes_of_all, or_raise
from yt_exactly_once.ytsaurus.tables import TableInfo

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.codec.rejects import Fault, Rejects
    from yt_exactly_once.commit.tally import TableRows
    from yt_exactly_once.spark.sink.options import SinkOptions
    from yt_exactly_once.spark.sink.target import Target
    from yt_exactly_once.ytsaurus.client import Connection

_DEALT_ROWS, _DEALT_BYTES = 200_000, 64 << 20
"""What is dealt at a time: each deal makes a batch of a few rows for every table."""


@dataclass(frozen=True, kw_only=True)
class FanOut(PreparedTarget):
    """A target whose rows name their tables. As a target of its own it is ordered, and has no tablet yet.

    Attributes:
        pattern: by which rows name them.
        frame: columns of the DataFrame.
        sink: options of the sink.
        created: attributes of a table that is created; `None` if none is.
        tables: those that the newest batch has written, by path.
    """

    pattern: PathPattern
    frame: pa.Schema
    sink: SinkOptions
    created: Mapping[str, Any] | None = None
    tables: Mapping[str, PreparedTarget] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, target: Target, written: StructType, sink: SinkOptions, dyn_batch_size: int
    ) -> FanOut:
        """Check what can be known before the rows.

        Raises:
            ConfigError: the DataFrame lacks a column of the path, or a table cannot be created so.
            SchemaMismatchError: the DataFrame has columns with reserved names, or no table could take it.
        """
        pattern = target.pattern
        assert pattern is not None, "of another target nothing is left for later"
        frame = arrow_of_spark(written)
        require_no_reserved(frame.names, target.path)
        pattern.require_columns(frame)
        created = None
        if target.create is not None:
            given = dict(target.create)
            stored = without(frame, target.delete_marker)
            columns = table_schema_for(stored, given.get("key_columns") or ())
            tablets = tablets_of(
                target.path, columns, given.get("tablet_count"), given.get("pivot_keys")
            )
            created = {**(given.get("attributes") or {}), **tablets, "schema": columns}
        return cls(
            options=target,
            is_sorted=False,
            tablet_count=0,
            plan=WritePlan(target.path, ()),
            wire=WireFormat.YSON,
            placement=Placement(None),
            rows_per_tablet_limit=sink.rows_per_tablet_limit,
            table_id="",
            dyn_batch_size=dyn_batch_size,
            pattern=pattern,
            frame=frame,
            sink=sink,
            created=created,
        )

    def is_the_same(self, connection: Connection) -> bool:
        """Return whether the tables of the newest batch are still those that were prepared."""
        found = tables.identities(connection, self.tables)
        return all(one.identity == found.get(path) for path, one in self.tables.items())

    def deal(
        self, arrived: Iterable[pa.RecordBatch], taken: Collection[str], rejects: Rejects | None
    ) -> tuple[dict[str, list[pa.RecordBatch]], list[Payload]]:
        """Return the rows of each table, in their order, and payloads of those that name none.

        Args:
            arrived: all rows of the batch.
            taken: paths that the sink or its query uses otherwise.
            rejects: where rows go that name no table; without it they are an error.

        Raises:
            EncodingError: rows name no table.
            BatchTooLargeError: they name more tables than the batch may have.
        """
        found: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        letters: list[Payload] = []
        for rows in _gathered(arrived):
            dealt = self.pattern.deal(rows, taken)
            if dealt.faults:
                letters.append(self._rejected(rows, dealt.faults, rejects))
            for path, indexes in dealt.tables.items():
                found[path].append(rows.take(pa.array(indexes)))
            if len(found) > self.options.max_tables:
                raise errors.BatchTooLargeError(
                    f"The rows of the batch name {len(found)} tables or more, and max_tables is "
                    f"{self.options.max_tables}",
                    remedy="Check that the columns in the path hold what names a table. If so, start the "
                    f"query with max_tables={max(2 * self.options.max_tables, len(found))} or more. A lower "
                    "max_rows_per_partition helps only later batches: Spark has logged this one",
                    target=self.path,
                )
        return {path: found[path] for path in sorted(found)}, letters

    def _rejected(
        self, rows: pa.RecordBatch, faults: list[Fault], rejects: Rejects | None
    ) -> Payload:
        first = faults[0]
        if rejects is not None:
            marker = self.options.delete_marker or ""
            variants = [field.name for field in self.frame if is_json(field)]
            how = variants, self.options.write_options
            described = rejects.encode(rows, faults, self.path, marker, *how)
            return Payload(len(faults), described)
        value = (
            f": {shown(rows.column(first.column).slice(first.row, 1))!r}"
            if self.sink.show_values
            else ""
        )
        raise errors.EncodingError(
            f"{len(faults)} rows name no table. The first one: {first.reason}{value}",
            remedy="Repair the column in the query, or give the sink a dead_letter_path for such rows",
            target=self.path,
            column=first.column,
        )

    def with_tables(
        self, connection: Connection, paths: Collection[str], written: Mapping[str, TableRows]
    ) -> tuple[FanOut, list[str]]:
        """Return the same with the tables that a batch names, and which of them were created or mounted.

        Args:
            written: what the query has written into its tables, by the ledger.

        Raises:
            TableError: a table is missing, or takes no rows.
            SchemaMismatchError: the DataFrame does not fit one.
        """
        known = {path: self.tables[path] for path in paths if path in self.tables}
        found = _described(connection, [path for path in paths if path not in known])
        made = []
        if self.created is not None:
            # An earlier attempt may have died between the two.
            states = {
                path: "" if one is None else one.get("tablet_state") for path, one in found.items()
            }
            made = [
                path
                for path, state in states.items()
                if state in {"", "unmounted"} and path not in written
            ]
            tables.create_tables(
                connection, {path: self.created for path in made if not states[path]}, made
            )
            found |= _described(connection, made)
        wires = {repr(one.schema): one.wire for one in self.tables.values()}
        for path, attributes in found.items():
            info = tables.described(path, attributes, self._absent(path, written))
            names = {column["name"] for column in info.schema}
            wire = wires.get(repr(info.schema))
            known[path] = self._prepare_table(connection, info, names, wire)
            wires[repr(info.schema)] = known[path].wire
        return replace(self, tables=known), made

    def _prepare_table(
        self,
        connection: Connection,
        info: TableInfo,
        names: Collection[str],
        wire: WireFormat | None,
    ) -> PreparedTarget:
        unneeded = {name for name in self.pattern.columns if name not in names}
        frame = without(self.frame, *unneeded)
        options = self.options.of_table(info.path)
        size = self.dyn_batch_size
        return prepare_table(connection, info, options, frame, self.sink, size, wire)

    def without_names(self, path: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return what leaves out the columns that only name a table: its dead letters have none of them."""
        kept = {*self.tables[path].plan.names, self.options.delete_marker}
        names = [name for name in self.pattern.columns if name not in kept]
        return lambda rows: rows.drop_columns(names)

    def _absent(self, path: str, written: Mapping[str, TableRows]) -> str:
        """Return what to do without a table."""
        if path in written:
            given, marker = self.options.create, self.options.delete_marker
            other = next((one for one in written if one != path), "") if given is None else ""
            arguments = {name: repr(value) for name, value in (given or {}).items()}
            return (
                f"Restore it: the query has written {written[path].total_rows} rows there. To begin with an "
                f"empty one, {advice.create_table_again(path, arguments, other, marker)}"
            )
        create = advice.create_table(path, marker=self.options.delete_marker)
        return f"{create}. Or give the target the option create"


def _described(connection: Connection, paths: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """Return what describes each table, with one request for some hundred; nothing where nothing is."""
    found = attributes_of_all(connection, paths, tables.ATTRIBUTES)
    return {path: or_raise(one) for path, one in found.items()}


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, each of one Spark partition."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        more = weight(batch)
        is_full = rows + batch.num_rows > _DEALT_ROWS or size + more > _DEALT_BYTES
        if waiting and (is_full or partition_of(batch) != partition_of(waiting[0])):
            yield merged(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + more
    if waiting:
        yield merged(waiting)
