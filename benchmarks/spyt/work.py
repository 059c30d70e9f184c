"""Queues with known rows, targets, and what must be in them: computed from the rows alone."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from yt.wrapper.format import ArrowFormat

if TYPE_CHECKING:
    from yt.wrapper import YtClient

Row = tuple[Any, ...]
Types = Mapping[str, Any]
"""Of columns, as `type_v3` has them, by name."""

QUEUE_TYPES: Types = {"id": "int64", "token": "int64", "at": "int64", "name": "utf8"}
SERVICE_TYPES = {
    "__spyt_streaming_src_tablet_index": "int64",
    "__spyt_streaming_src_row_index": "int64",
}
"""Where a row came from; both sides have these columns under `include_service_columns`."""

_OPTIONAL_DOUBLE = {"type_name": "optional", "item": "double"}
COMPOSITE_TYPES: Types = {
    **QUEUE_TYPES,
    "place": {
        "type_name": "struct",
        "members": [
            {"name": "lat", "type": _OPTIONAL_DOUBLE},
            {"name": "lon", "type": _OPTIONAL_DOUBLE},
        ],
    },
    "tags": {"type_name": "list", "item": "utf8"},
}
"""A queue whose rows hold a struct and a list besides."""

TARGET_TYPES: dict[str, Types] = {
    "copy": QUEUE_TYPES,
    "composite": COMPOSITE_TYPES,
    "fail_once": QUEUE_TYPES,
    "dedup": {"token": "int64"},
    "windows": {"start": "int64", "n": "int64"},
}
WINDOW_SECONDS = 60
REPEAT_DISTANCE = 200
"""Every second row repeats the token of the row so far before it."""

_ROWS_PER_REQUEST = 20_000
_ARROW = pa.schema([
    *((name, pa.utf8() if kind == "utf8" else kind) for name, kind in QUEUE_TYPES.items()),
    ("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
    ("tags", pa.list_(pa.utf8())),
])  # fmt: skip


@dataclass
class Queue:
    """A queue with a registered, vital consumer.

    Attributes:
        client: of the cluster.
        path: of the queue.
        consumer: path of the consumer.
        first: id of its first row.
        counts: rows that were put in, per partition.
        types: of its columns.
    """

    client: YtClient
    path: str
    consumer: str
    first: int
    counts: list[int]
    types: Types

    @classmethod
    def create(
        cls, client: YtClient, partitions: int = 1, *, first: int = 0, types: Types = QUEUE_TYPES
    ) -> Queue:
        """Create an empty one."""
        path = f"//home/spyt/{uuid.uuid4().hex}/queue"
        create_table(client, path, types, tablet_count=partitions)
        return cls(client, path, "", first, [0] * partitions, types).for_another()

    def for_another(self) -> Queue:
        """Return the same queue with a consumer of its own."""
        consumer = f"{self.path}_{uuid.uuid4().hex}"
        self.client.create("queue_consumer", consumer)
        self.client.mount_table(consumer, sync=True)
        self.client.register_queue_consumer(self.path, consumer, vital=True)
        return replace(self, consumer=consumer)

    def append(self, count: int) -> None:
        """Add so many rows to every partition; no two rows of a queue have one id."""
        for partition, begin in enumerate(self.counts):
            end = begin + count
            for start in range(begin, end, _ROWS_PER_REQUEST):
                rows = self._rows(partition, start, min(start + _ROWS_PER_REQUEST, end))
                self._insert(partition, rows)
            self.counts[partition] = end

    def _rows(self, partition: int, begin: int, end: int) -> list[dict[str, Any]]:
        width = len(self.counts)
        numbers = range(self.first + begin * width + partition, self.first + end * width, width)
        return [known_row(number, self.types) for number in numbers]

    def _insert(self, partition: int, rows: list[dict[str, Any]]) -> None:
        """Add rows as Arrow: with dicts, filling the queue would take longer than what is measured."""
        table = pa.Table.from_pylist(rows, pa.schema([_ARROW.field(name) for name in self.types]))
        tablets = pa.array([partition] * len(rows), pa.int64())
        table = table.append_column("$tablet_index", tablets)
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, table.schema) as writer:
            writer.write_table(table)
        payload = BytesIO(body.getvalue())
        self.client.insert_rows(self.path, payload, format=ArrowFormat(raw=True), raw=True)

    def flush(self) -> None:
        """Let what is there become a chunk, as time does."""
        self.client.freeze_table(self.path, sync=True)
        self.client.unfreeze_table(self.path, sync=True)

    def all_rows(self) -> list[dict[str, Any]]:
        """Return the rows of all partitions."""
        return [
            row
            for partition, count in enumerate(self.counts)
            for row in self._rows(partition, 0, count)
        ]

    def unread(self) -> int:
        """Return how many rows the consumer has before it."""
        offsets = self.client.select_rows(f"partition_index, [offset] from [{self.consumer}]")
        read = {row["partition_index"]: row["offset"] for row in offsets}
        return sum(count - read.get(index, 0) for index, count in enumerate(self.counts))


def known_row(number: int, types: Types = QUEUE_TYPES) -> dict[str, Any]:
    """Return the row with that id; its moment grows with it, so no row is ever late."""
    repeats = number % 2 and number >= REPEAT_DISTANCE
    token = number - REPEAT_DISTANCE if repeats else number
    row: dict[str, Any] = {
        "id": number,
        "token": token,
        "at": 1_700_000_040 + number,
        "name": f"name {number}",
    }
    place = {"lat": number % 180 / 2, "lon": number % 360 / 2}
    row |= {"place": place, "tags": [f"tag {number % 7}", f"tag {number % 11}"]}
    return {name: row[name] for name in types}


def create_table(
    client: YtClient, path: str, types: Types, keys: Sequence[str] = (), **attributes: Any
) -> None:
    """Create and mount a table; columns take nulls, since Spark cannot rule them out."""
    schema = [
        {
            "name": name,
            "type_v3": {"type_name": "optional", "item": kind},
            **({"sort_order": "ascending"} if name in keys else {}),
        }
        for name, kind in types.items()
    ]
    client.create(
        "table", path, recursive=True, attributes={"dynamic": True, "schema": schema, **attributes}
    )
    client.mount_table(path, sync=True)


def expected(shape: str, queues: Iterable[Queue]) -> list[Row]:
    """Return the rows that the target of a finished query has."""
    rows = [row for queue in queues for row in queue.all_rows()]
    if shape == "dedup":
        return [(token,) for token in {row["token"] for row in rows}]
    if shape == "windows":
        counts = Counter(row["at"] // WINDOW_SECONDS * WINDOW_SECONDS for row in rows)
        last = max(row["at"] for row in rows)
        # A window is told when it is over, and the last one is not.
        return [(start, n) for start, n in counts.items() if start + WINDOW_SECONDS <= last]
    return [tuple(row[name] for name in QUEUE_TYPES) for row in rows]


@dataclass(frozen=True)
class Difference:
    """What is not as it must be.

    Attributes:
        rows: that there must be.
        lost: rows that are not there, in no form.
        doubled: rows that are there once more than they must.
        wrong: rows that nobody should have written, such as a count that is not right.
        disordered: neighbours in a tablet that are the other way round in the queue.
    """

    rows: int
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    disordered: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether everything is as it must be."""
        return not (self.lost or self.doubled or self.wrong or self.disordered)


def difference(found: Sequence[Row], wanted: Sequence[Row], *, in_order: bool) -> Difference:
    """Compare; the first column is the key of a row, and each key must be there once.

    Args:
        found: rows of the target, in its order.
        wanted: rows that must be there.
        in_order: whether keys must grow, where rows come from one partition.
    """
    by_key = defaultdict(list)
    for row in found:
        by_key[row[0]].append(row)
    lost = doubled = wrong = 0
    for row in wanted:
        there = by_key.pop(row[0], [])
        if row in there:
            doubled += len(there) - 1
        elif there:
            wrong += len(there)
        else:
            lost += 1
    wrong += sum(map(len, by_key.values()))
    disordered = sum(a[0] > b[0] for a, b in pairwise(found)) if in_order else 0
    return Difference(len(wanted), lost, doubled, wrong, disordered)


def found(client: YtClient, target: str, shape: str, *, is_sorted: bool = False) -> list[Row]:
    """Return the rows of a target, in the order of its tablets or of its keys."""
    names = list(TARGET_TYPES[shape])
    places = SERVICE_TYPES if is_sorted else ("$tablet_index", "$row_index")
    listed = ", ".join(f"[{name}]" for name in (*places, *names))
    rows = sorted(
        client.select_rows(f"{listed} from [{target}]"),
        key=lambda row: [row[place] for place in places],
    )
    return [tuple(row[name] for name in names) for row in rows]
