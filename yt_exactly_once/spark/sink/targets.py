"""A target made ready for a run: described, checked against the DataFrame, and its wire format chosen.

This is done once per run and DataFrame schema, before the first row. So a mistake that can be known early is
known before anything is written. It is done again when another table is in the target's place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from yt_exactly_once import advice, errors
from yt_exactly_once.codec.growth import grown, names_of, unknown_columns
from yt_exactly_once.codec.newest import ChangeRule, is_ordered
from yt_exactly_once.codec.rows import WireFormat, encode_empty
from yt_exactly_once.codec.schema import (
    BOOLEAN,
    TEXT,
    TableSchema,
    WritePlan,
    check_frame,
    require_column,
    require_no_reserved,
    without,
)
from yt_exactly_once.commit.batch import TargetColumns
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import DEFAULT_DYN_BATCH_SIZE, Changes
from yt_exactly_once.spark.schema import arrow_of_spark
from yt_exactly_once.spark.sink.complete import CompleteResult
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.placement import Placement
from yt_exactly_once.spark.sink.target import ADD, APPEND, IGNORE, UPSERT, Target
from yt_exactly_once.ytsaurus.alteration import alter_columns, settled_table
from yt_exactly_once.ytsaurus.tables import TableInfo, table_identity
from yt_exactly_once.ytsaurus.tombstones import has_its_tombstones

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.ytsaurus.client import Connection

_PROBE_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class PreparedTarget:
    """A table that fits the DataFrame.

    Attributes:
        plan: how the DataFrame's columns become the table's.
        wire: wire format of payloads.
        placement: which tablet of an ordered target takes a row.
        rows_per_tablet_limit: most rows one transaction may write into one tablet.
        schema: its columns, as `TableInfo` has them.
        dyn_batch_size: most rows in one request.
        columns: what is written, for the ledger entry.
        ignored: columns of the DataFrame that the table lacks, and that are left out.
        wanted: columns of the DataFrame, if the table is yet to get some of them; `None` if it fits.
        rule: what the columns of changes mean; `None` where rows are no changes.
    """

    options: Target
    is_sorted: bool
    tablet_count: int
    plan: WritePlan
    wire: WireFormat
    placement: Placement
    rows_per_tablet_limit: int
    table_id: str
    schema: Sequence[Mapping[str, Any]] = ()
    dyn_batch_size: int = DEFAULT_DYN_BATCH_SIZE
    columns: TargetColumns = field(default_factory=TargetColumns)
    ignored: tuple[str, ...] = ()
    wanted: pa.Schema | None = None
    rule: ChangeRule | None = None

    @property
    def path(self) -> str:
        """The table."""
        return self.options.path

    @property
    def needs_partitions(self) -> bool:
        """Whether the Spark partition of a row matters: not where one tablet takes all rows."""
        if self.rule is not None:
            return False
        return self.orders_keys or self.placement.tablet_count != 1

    @property
    def spreads_partitions(self) -> bool:
        """Whether the Spark partition of a row decides which of several tablets takes it."""
        return self.placement.is_by_partition and (self.placement.tablet_count or 1) > 1

    @property
    def orders_keys(self) -> bool:
        """Whether it matters which rows of a key are in one Spark partition."""
        return bool(self.options.delete_marker) or self.options.collects_keys

    def of_batch(self, batch: MicroBatch) -> PreparedTarget:
        """Return the target as the rows of a batch are placed in it, where their Spark partition decides.

        Short batches have a few Spark partitions, or one. In each, another tablet comes first: otherwise the
        first tablets would get all rows.
        """
        if not batch.shares_tasks:
            return self
        return replace(self, placement=replace(self.placement, turn=batch.batch_id))

    def is_the_same(self, connection: Connection) -> bool:
        """Return whether the table is still the one that was prepared, with its columns and tablets.

        And whether it has its tombstones, if it has changes.
        """
        is_same = self.identity == table_identity(connection, self.path)
        return is_same and (self.rule is None or has_its_tombstones(connection, self.path))

    @property
    def identity(self) -> tuple[str, Sequence[Mapping[str, Any]], int]:
        """By which `table_identity` tells it from others."""
        return self.table_id, self.schema, self.tablet_count

    def complete(
        self, keys: pa.LargeBinaryArray | pa.FixedSizeBinaryArray
    ) -> CompleteResult | None:
        """Return the claim that the table holds nothing but rows with these keys, if the result replaces it.

        Args:
            keys: see `CompleteResult`.
        """
        if not self.options.replaces:
            return None
        return CompleteResult(self.plan.keys, keys, self.rows_per_tablet_limit * self.tablet_count)

    def require_own_tablets(self, tasks: int) -> None:
        """Refuse more tasks than tablets with `ConfigError`: rows in order must not mix in a tablet."""
        tablets = self.placement.tablet_count
        if self.placement.is_by_partition and tablets is not None and tasks > tablets:
            raise errors.TasksRefusedError(
                f"{tasks} tasks cannot write into {tablets} tablets in order",
                remedy=f"{advice.SENT_BY_AUTO}. Or give the target a "
                f"tablet for each Spark partition: {advice.reshard(self.path, tasks)}. Or use "
                "placement='round_robin', if the order between Spark partitions does not matter",
                target=self.path,
            )

    def require_room(self, rows_by_tablet: Mapping[int | None, int]) -> None:
        """Refuse a batch that one transaction cannot carry, with `BatchTooLargeError`, before it is sent."""
        for tablet, rows in rows_by_tablet.items():
            tablets = self.tablet_count if tablet is None else 1
            if rows > self.rows_per_tablet_limit * tablets:
                if self.rule is not None:
                    more = (
                        "Give the target more tablets, and then its tombstones the same: changes are never "
                        "split"
                    )
                elif self.options.replaces:
                    more = "Give the target more tablets: a result is replaced at once"
                else:
                    more = (
                        "Start the query with split_oversized=True. Or spread the rows of an ordered "
                        "target: give it a tablet for each Spark partition, or use placement='round_robin'"
                    )
                raise errors.BatchTooLargeError(
                    f"The batch has {rows} rows for "
                    + (f"{tablets} tablets" if tablet is None else f"tablet {tablet}")
                    + f", and one transaction takes {self.rows_per_tablet_limit} rows per tablet",
                    remedy=f"{more}. A lower max_rows_per_partition helps only later batches: Spark has "
                    "logged this one",
                    target=self.path,
                )


def prepare_target(
    connection: Connection,
    target: Target,
    written: StructType,
    options: SinkOptions,
    dyn_batch_size: int = DEFAULT_DYN_BATCH_SIZE,
) -> PreparedTarget:
    """Describe the table, compare it with the DataFrame, and choose the wire format.

    Args:
        written: the DataFrame's columns, as the target transforms it.

    Raises:
        TableError: there is no such table, it is static, or it is not mounted.
        SchemaMismatchError: the DataFrame does not fit, or has columns with reserved names.
        ConfigError: an option contradicts the table, or Arrow cannot be used as asked.
    """
    needs_key = any(target.effects.values()) or target.write == UPSERT
    arguments = {"key_columns": "['KEY']"} if needs_key else {}
    if target.changes is not None:
        arguments["changes"] = "CHANGES"
    absent = advice.create_table(target.path, arguments, target.delete_marker)
    info = settled_table(connection, target.path, absent=absent)
    return prepare_table(connection, info, target, arrow_of_spark(written), options, dyn_batch_size)


def prepare_table(
    connection: Connection,
    info: TableInfo,
    target: Target,
    frame_schema: pa.Schema,
    options: SinkOptions,
    dyn_batch_size: int = DEFAULT_DYN_BATCH_SIZE,
    wire: WireFormat | None = None,
) -> PreparedTarget:
    """Do the same as `prepare_target` with a table that is described.

    Args:
        wire: that of a table with the same columns; `None` asks the cluster.
    """
    info.require_mounted()
    if target.changes is None:
        info.require_no_changes()
    table = TableSchema.from_yt(info.schema)
    require_no_reserved(frame_schema.names, target.path)
    _require_kind(target, table, frame_schema)
    operation = target.changes.operation if target.changes else None
    frame_schema = without(frame_schema, target.delete_marker, operation)
    if options.source_position is not None:
        frame_schema = _without_position(options.source_position, frame_schema, info)
    adds, ignored = target.on_new_columns == ADD, tuple[str, ...]()
    if target.on_new_columns == IGNORE:
        ignored = tuple(unknown_columns(frame_schema, info.schema))
        frame_schema = without(frame_schema, *ignored)
    columns = grown(frame_schema, info.schema) if adds else info.schema
    table, is_ready = TableSchema.from_yt(columns), columns == info.schema
    plan = check_frame(frame_schema, table, target=target.path, sorted=info.is_sorted)
    if not is_ready:
        # The cluster can be asked once the table has its columns.
        wire = WireFormat.YSON
    plan = replace(plan, shows_values=options.show_values)
    by = target.placement if isinstance(target.placement, str) else tuple(target.placement)
    placement = Placement(None if info.is_sorted else info.tablet_count, by)
    placement.require_columns(frame_schema.names, target.path)
    return PreparedTarget(
        options=target,
        is_sorted=info.is_sorted,
        tablet_count=info.tablet_count,
        table_id=info.id,
        schema=info.schema,
        plan=plan,
        wire=wire or _choose_wire(connection, target.path, plan, options.wire_format),
        placement=placement,
        rows_per_tablet_limit=options.rows_per_tablet_limit,
        dyn_batch_size=dyn_batch_size,
        columns=TargetColumns(names_of(frame_schema, plan.names), is_recorded=adds),
        ignored=ignored,
        wanted=None if is_ready else frame_schema,
        rule=None if target.changes is None else _rule(target.changes, plan),
    )


def require_no_local_times(target: PreparedTarget, local: Collection[str]) -> None:
    """Raise `ConfigError` if a key or the sequence of changes is a local time.

    Where the clocks skip an hour, two local times are one instant, and others come in another order.

    Args:
        local: columns that are local times.
    """
    options = target.options
    created = (options.create or {}).get("key_columns") or ()
    sequence = options.changes.sequence if options.changes is not None else ()
    found = next(
        (one for one in (*target.plan.keys.names, *created, *sequence) if one in local), None
    )
    if found is not None:
        raise errors.ConfigError(
            f"{found} is a local time, and part of a key or of the sequence of changes. Where the clocks "
            "change, two local times are one instant, or come in another order",
            remedy="Set spark.sql.session.timeZone=UTC. Or, if it is a time of the session's time zone, cast "
            f"it: CAST({found} AS TIMESTAMP_LTZ)",
            target=target.path,
            column=found,
        )


def grow(connection: Connection, target: PreparedTarget) -> list[str]:
    """Give a table the columns that it lacks; return the names of those that it got or that changed.

    Raises what `alter_columns` raises.
    """
    assert target.wanted is not None
    before, after = alter_columns(connection, target.path, partial(grown, target.wanted))
    return [str(column["name"]) for column in after if column not in before]


def are_the_same(connection: Connection, targets: Sequence[PreparedTarget]) -> bool:
    """Return whether the tables are still the ones that were prepared, with their columns and tablets."""
    return all(target.is_the_same(connection) for target in targets)


def with_change(
    connection: Connection, targets: Sequence[PreparedTarget], error: errors.RequestRefusedError
) -> errors.RequestRefusedError:
    """Return an error with the fact that a target has changed since the run looked at it, if one has."""
    # Naming it is a help. Whatever fails here must not hide the error.
    with suppress(Exception):
        if not are_the_same(connection, targets):
            return error.extended(
                ". A target has changed its columns or tablets since the run looked at it",
                remedy="Start the query again: it writes the batch into the target as it is now",
            )
    return error


def _require_kind(target: Target, table: TableSchema, frame: pa.Schema) -> None:
    """Raise `ConfigError` if the table is not of the kind, or lacks the columns, that the options need."""
    for option, is_given in target.effects.items():
        if is_given and not table.key_columns:
            raise errors.ConfigError(
                f"{option} needs a sorted target, this one is ordered",
                remedy=f"Name a sorted table: create_table makes one with key_columns. Or leave {option} out",
                target=target.path,
            )
    kind, other = ("sorted", "ordered") if table.key_columns else ("ordered", "sorted")
    fitting = UPSERT if table.key_columns else APPEND
    if target.write in {APPEND, UPSERT} and target.write != fitting:
        raise errors.ConfigError(
            f"write='{target.write}' is for {other} targets, this one is {kind}",
            remedy=f"Use write='{fitting}', or leave write out",
            target=target.path,
        )
    if target.aggregate and not any(column.aggregate for column in table.columns):
        raise errors.ConfigError(
            "aggregate needs a target with aggregating columns, this one has none",
            remedy="Leave aggregate out, or give columns of the table the attribute aggregate",
            target=target.path,
        )
    if (marker := target.delete_marker) is not None:
        require_column(frame, "delete_marker", marker, target.path, BOOLEAN)
    if target.changes is not None:
        for name in target.changes.sequence:
            require_column(frame, "sequence of changes", name, target.path)
    if target.changes is not None and (operation := target.changes.operation) is not None:
        require_column(frame, "operation of changes", operation, target.path, TEXT)


def _rule(changes: Changes, plan: WritePlan) -> ChangeRule:
    """Return what the columns of changes mean; raise `ConfigError` if the table cannot keep the sequence."""
    known = {column.name: column for column in plan.columns}
    for name in changes.sequence:
        if name not in known:
            why = "the table lacks"
        elif known[name].is_key:
            why = "is part of the key"
        elif not is_ordered(plan, name):
            why = "has no order that holds in every client"
        else:
            continue
        raise errors.ConfigError(
            f"sequence of changes names {name}, which {why}",
            remedy="Name a column of the table that is no key: integers, dates, instants, decimals or text",
            target=plan.target,
        )
    return ChangeRule(
        plan,
        tuple(changes.sequence),
        changes.operation,
        tuple(changes.delete),
        tuple(changes.upsert),
    )


def _without_position(position: Sequence[str], frame: pa.Schema, info: TableInfo) -> pa.Schema:
    """Return what is written: columns of the position only if the table has them.

    Raise `ConfigError` where they cannot number rows.
    """
    if info.is_sorted:
        raise errors.ConfigError(
            "source_position is for ordered targets, this one is sorted: its keys tell rows apart",
            remedy="Leave source_position out",
            target=info.path,
        )
    if missing := [name for name in position if name not in frame.names]:
        raise errors.ConfigError(
            f"source_position names {missing[0]}, and the DataFrame has no such column",
            remedy=f"Keep the column, or choose from: {', '.join(frame.names)}",
            target=info.path,
        )
    for name in position:
        kind = frame.field(name).type
        fits = pa.types.is_integer(kind) or (name != position[-1] and pa.types.is_string(kind))
        if not fits:
            raise errors.ConfigError(
                f"source_position names {name}, which has the type {kind}",
                remedy="Cast it: the position is an integer, and what it counts in are strings or integers",
                target=info.path,
            )
    known = {column["name"] for column in info.schema}
    return pa.schema(
        [field for field in frame if field.name in known or field.name not in position]
    )


def _choose_wire(connection: Connection, path: str, plan: WritePlan, wire: str) -> WireFormat:
    if wire == WireFormat.YSON or (wire != WireFormat.ARROW and plan.arrow_obstacles):
        return WireFormat.YSON
    nothing = encode_empty(plan, WireFormat.ARROW)
    transaction = connection.begin(_PROBE_TIMEOUT)
    try:
        transaction.write(path, [Payload(0, nothing)], WireFormat.ARROW)
    except (errors.RequestRefusedError, errors.SchemaMismatchError) as error:
        if wire == WireFormat.ARROW:
            raise errors.ConfigError(
                "The cluster does not take these rows as Arrow",
                remedy="Use wire_format='auto' or 'yson'",
                target=path,
            ) from error
        return WireFormat.YSON
    finally:
        transaction.abort()
    return WireFormat.ARROW
