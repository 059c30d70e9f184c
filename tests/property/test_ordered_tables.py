"""Ordered tables in blocks against a plain list of rows per tablet.

Blocks are made tiny, so that a few rows fill them, merge them and cut them. The commands run in process.
"""

import contextlib
import copy
import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from yt import yson

from tests.contract.tables import columns
from tests.in_process import Commands
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats import row_formats
from yt_exactly_once.local.formats.structured import YSON_BINARY
from yt_exactly_once.local.rpc.rows import rowset_writer
from yt_exactly_once.local.tables.vectors import StoredRows
from yt_exactly_once.local.tablets import blocks, reads
from yt_exactly_once.local.tablets.catalog import find_layout

QUEUE, COPY = "//tmp/queue", "//tmp/copy"
COLUMNS = columns(n="int64", u="uint64", d="double", b="boolean", s="string", y="any")
WEIGHT = {"name": "$cumulative_data_weight", "type": "int64"}
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "n": st.none() | INT64,
            "u": st.integers(min_value=0, max_value=2**64 - 1).map(yson.YsonUint64),
            "d": st.none() | st.floats(allow_nan=False),
            "b": st.none() | st.booleans(),
            "s": st.none() | st.binary(max_size=70),
            "y": st.recursive(INT64 | st.binary(max_size=3), st.lists),
        },
    ),
    min_size=1,
    max_size=12,
)
PLACES = st.integers(min_value=0, max_value=2)
INDEXES = st.integers(min_value=0, max_value=16)
MOST_SNAPSHOTS = 2
WHOLE_CHUNKS = -1
"""Stands for the index where the last chunk ends that clients see."""


@dataclass
class Tablet:
    """What a plain list knows of a tablet; rows that are trimmed stay in it."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    trimmed: int = 0
    flushed: int = 0
    weight: int = 0

    def visible(self) -> list[dict[str, Any]]:
        return self.rows[self.trimmed :]

    def append(self, row: dict[str, Any], names: list[str]) -> None:
        full = {name: row.get(name) for name in names}
        self.weight += weight_of(full)
        self.rows.append(full | {WEIGHT["name"]: self.weight})

    def lose(self) -> None:
        kept = self.flushed
        self.weight -= sum(map(weight_of, self.rows[max(kept, self.trimmed) :]))
        del self.rows[kept:]
        self.trimmed = min(self.trimmed, kept)


def weight_of(row: dict[str, Any]) -> int:
    total = 1 + 8
    for name, value in row.items():
        if value is None or name == WEIGHT["name"]:
            continue
        if name == "y":
            total += len(yson.dumps(value, yson_format="binary"))
        else:
            total += {bytes: len(value) if name == "s" else 0, bool: 1}.get(type(value), 8)
    return total


class OrderedTables(RuleBasedStateMachine):
    """One queue, and everything that moves, drops and rewrites its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        for name, value in (("MAX_ROWS", 9), ("MAX_WEIGHT", 700), ("_FAN_IN", 3)):
            self.stack.enter_context(mock.patch.object(blocks, name, value))
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.run = Commands(Path(folder))
        self.schema = [*COLUMNS, WEIGHT]
        self.node_id = self.run.table(QUEUE, self.schema, tablet_count=2)
        self.tablets = [Tablet(), Tablet()]
        self.snapshots: list[tuple[Any, list[list[dict[str, Any]]]]] = []

    def teardown(self) -> None:
        for snapshot, *_ in self.snapshots:
            snapshot.close()
        self.run.close()
        self.stack.close()

    @property
    def names(self) -> list[str]:
        return [column["name"] for column in self.schema if column is not WEIGHT]

    @rule(batches=st.lists(st.tuples(PLACES, ROWS), min_size=1, max_size=3))
    def append(self, batches: list[tuple[int, list[dict[str, Any]]]]) -> None:
        transaction = self.run("start_transaction", type="tablet")["transaction_id"]
        for place, rows in batches:
            index = place % len(self.tablets)
            placed = [{**row, "$tablet_index": index} for row in rows]
            self.run("insert_rows", placed, path=QUEUE, transaction_id=transaction)
            for row in rows:
                self.tablets[index].append(row, self.names)
        self.run("commit_transaction", transaction_id=transaction)

    @rule(rows=ROWS)
    def append_row_by_row_to_all(self, rows: list[dict[str, Any]]) -> None:
        placed = []
        for number, row in enumerate(rows):
            index = number % len(self.tablets)
            placed.append({**row, "$tablet_index": index})
            self.tablets[index].append(row, self.names)
        self.run("insert_rows", placed, path=QUEUE)

    @rule(place=PLACES, index=INDEXES | st.just(WHOLE_CHUNKS))
    def trim(self, place: int, index: int) -> None:
        number = place % len(self.tablets)
        tablet = self.tablets[number]
        row = min(tablet.trimmed + index, len(tablet.rows))
        if index == WHOLE_CHUNKS:
            row = tablet.flushed
        self.run("trim_rows", path=QUEUE, tablet_index=number, trimmed_row_count=row)
        tablet.trimmed = max(tablet.trimmed, row)

    @rule(force=st.booleans())
    def remount(self, *, force: bool) -> None:
        self.unmount(force=force)
        self.run("mount_table", path=QUEUE)

    @rule(count=st.integers(min_value=1, max_value=3))
    def reshard(self, count: int) -> None:
        self.unmount()
        # Refused where a tablet is trimmed into a chunk that clients see; then nothing happens.
        with contextlib.suppress(YtError):
            self.run("reshard_table", path=QUEUE, tablet_count=count)
            target = self.tablets[min(count, len(self.tablets)) - 1]
            for source in self.tablets[count:]:
                target.rows += source.visible()
                target.weight += sum(map(weight_of, source.visible()))
            target.flushed = len(target.rows)
            added = count - len(self.tablets)
            self.tablets = self.tablets[:count] + [Tablet() for _ in range(added)]
        self.run("mount_table", path=QUEUE)

    @rule()
    def widen(self) -> None:
        self.unmount()
        self.schema.insert(1, {"name": f"x{len(self.schema)}", "type": "string"})
        self.run("alter_table", path=QUEUE, schema=self.schema)
        name = self.schema[1]["name"]
        for tablet in self.tablets:
            for row in tablet.rows:
                row[name] = None
        self.run("mount_table", path=QUEUE)

    @rule()
    def copied_table_has_the_same_rows(self) -> None:
        self.unmount()
        self.run("copy", source_path=QUEUE, destination_path=COPY)
        self.run("mount_table", path=COPY)
        assert pulled(self.run, COPY, self.tablets) == expected(self.tablets)
        self.run("remove", path=COPY)
        with self.run.proxy.store.read() as connection:
            (left,) = connection.execute(
                "SELECT count(*) FROM blocks WHERE tablet_id NOT IN (SELECT tablet_id FROM tablets)"
            ).fetchone()
        assert left == 0
        self.run("mount_table", path=QUEUE)

    @precondition(lambda self: len(self.snapshots) < MOST_SNAPSHOTS)
    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append((self.run.proxy.store.snapshot(), expected(self.tablets)))

    @rule(place=PLACES, offset=INDEXES, count=st.integers(0, 6), weight=st.integers(1, 300))
    def pull_ends_at_its_limits(self, place: int, offset: int, count: int, weight: int) -> None:
        tablet = self.tablets[place % len(self.tablets)]
        found = self.run(
            "pull_queue",
            queue_path=QUEUE,
            partition_index=place % len(self.tablets),
            offset=offset,
            max_row_count=count,
            max_data_weight=weight,
        )
        first = max(offset, tablet.trimmed)
        rows = tablet.rows[first:][:count]
        if first < tablet.flushed and found:
            rows = rows[: len(found)]  # where chunks end, other tests say
        sums = list(itertools.accumulate(map(weight_of, rows)))
        fitting = sum(total < weight for total in sums[:-1]) + bool(rows)
        assert plain(found) == rows[:fitting]

    @rule(place=PLACES, first=INDEXES, count=st.integers(0, 6))
    def query_reads_what_its_ranges_name(self, place: int, first: int, count: int) -> None:
        index = place % len(self.tablets)
        tablet = self.tablets[index]
        where = f"[$tablet_index] = {index} AND [$row_index] BETWEEN {first} AND {first + count}"
        query = f"[$row_index] AS i, u, s FROM [{QUEUE}] WHERE {where}"
        found = self.run("select_rows", query=query)
        assert [(row["i"], row["u"], row["s"]) for row in found] == [
            (number, row["u"], row["s"])
            for number, row in enumerate(tablet.rows)
            if max(first, tablet.trimmed) <= number <= first + count
        ]

    @invariant()
    def rows_are_those_of_the_lists(self) -> None:
        wanted = expected(self.tablets)
        assert pulled(self.run, QUEUE, self.tablets) == wanted
        together = [row for rows in wanted for row in rows]
        assert plain(self.run("read_table", path=QUEUE)) == together
        found = self.run("select_rows", query=f"* FROM [{QUEUE}]")
        assert plain(found) == together
        assert self.run("get", path=f"{QUEUE}/@row_count")["value"] == len(together)

    @invariant()
    def snapshots_do_not_change(self) -> None:
        for snapshot, wanted in self.snapshots:
            connection = snapshot.connection
            layout = find_layout(connection, self.node_id, QUEUE)
            assert layout is not None
            found = [
                [
                    row
                    for rows in reads.ordered_rows(connection, layout, tablet.index, 0, 1 << 60)
                    for row in StoredRows(layout.columns, rows.arrays, len(rows.timestamps))
                ]
                for tablet in layout.tablets
            ]
            assert found == wanted

    def unmount(self, *, force: bool = False) -> None:
        self.run("unmount_table", path=QUEUE, force=force)
        for tablet in self.tablets:
            if force:
                tablet.lose()
            tablet.flushed = len(tablet.rows)


def expected(tablets: list[Tablet]) -> list[list[dict[str, Any]]]:
    return [copy.deepcopy(tablet.visible()) for tablet in tablets]


def plain(rows: Any) -> list[dict[str, Any]]:
    """Return rows without their positions."""
    positions = ("$tablet_index", "$row_index")
    return [{name: value for name, value in row.items() if name not in positions} for row in rows]


def pulled(run: Commands, path: str, tablets: list[Tablet]) -> list[list[dict[str, Any]]]:
    """Return the rows of every tablet as pulls give them, which both protocols write alike."""
    everything = []
    for index, tablet in enumerate(tablets):
        rows: list[dict[str, Any]] = []
        offset = tablet.trimmed
        place = {"queue_path": path, "partition_index": index}
        while found := run.stored("pull_queue", offset=offset, **place):
            listed = list(found)
            assert [row["$row_index"] for row in listed] == list(
                range(offset, offset + len(listed))
            )
            written = b"".join(row_formats.dump_stored(found, YSON_BINARY, 5))
            assert written == row_formats.dumps(listed, YSON_BINARY)
            assert rowset_writer.encode(found, found.columns) == rowset_writer.encode(
                listed, found.columns
            )
            rows += plain(listed)
            offset += len(listed)
        everything.append(rows)
    return everything


TestOrderedTables = OrderedTables.TestCase
TestOrderedTables.settings = settings(
    max_examples=15,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
