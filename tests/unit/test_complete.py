"""A complete result: which rows of the table it leaves no place for."""

import pyarrow as pa
import pytest

from tests.kinds import decimal, optional
from yt_exactly_once.codec.key_hashes import as_arrow, fragment_hashes
from yt_exactly_once.codec.rows import WireFormat, encode, row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.errors import BatchTooLargeError
from yt_exactly_once.spark.sink import complete
from yt_exactly_once.spark.sink.complete import CompleteResult

TYPES = {
    "a": "uint64", "b": "int8", "c": "string", "d": "date32", "e": "double", "f": "bool",
    "g": decimal(12, 3), "h": "uuid", "i": "timestamp64",
}  # fmt: skip
COLUMNS = [
    {"name": name, "type_v3": optional(kind), "sort_order": "ascending"}
    for name, kind in TYPES.items()
]
TABLE = TableSchema.from_yt([*COLUMNS, {"name": "v", "type_v3": "int64"}])


class Table:
    """A transaction that holds some keys."""

    def __init__(self, rows, plan):
        self.rows, self.plan = rows, plan

    def select(self, path, columns, *, limit):
        assert path == "//t"
        assert columns == self.plan.names
        return encode(self.rows.slice(0, limit), self.plan, WireFormat.YSON)


def keys(*numbers):
    """Keys of every type, some of them null."""

    def values(make):
        return [None if number < 0 else make(number) for number in numbers]

    from datetime import UTC, date, datetime, timedelta
    from decimal import Decimal

    arrays = [
        pa.array(values(lambda n: Decimal(2**64 - 1 - n)), pa.decimal128(20, 0)),
        pa.array(values(lambda n: -n), pa.int8()),
        pa.array(values(lambda n: b"\xff%d" % n), pa.binary()),
        pa.array(values(lambda n: date(1960, 1, 1) + timedelta(n)), pa.date32()),
        pa.array(values(lambda n: n / 3), pa.float64()),
        pa.array(values(lambda n: n % 2 == 0), pa.bool_()),
        pa.array(values(lambda n: Decimal(n) / 8), pa.decimal128(12, 3)),
        pa.array(values(lambda n: n.to_bytes(16, "big")), pa.binary()),
        pa.array(
            values(lambda n: datetime(1900, 1, 1, 0, 0, 0, n, UTC)), pa.timestamp("us", "UTC")
        ),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def surplus(there, wanted, room=100, *, hashed=False):
    names = [*keys().schema, pa.field("v", pa.int64())]
    plan = check_frame(pa.schema(names), TABLE, target="//t", sorted=True).keys
    known = row_fragments(keys(*wanted), plan)
    result = CompleteResult(plan, as_arrow(fragment_hashes(known)) if hashed else known, room)
    payloads = result.surplus(Table(keys(*there), plan))
    assert all(payload.deletes for payload in payloads)
    return [(payload.row_count, payload.data) for payload in payloads], plan


@pytest.mark.parametrize("hashed", [False, True])
def test_rows_that_are_not_in_the_result_are_deleted(hashed):
    """Keys of every type are told apart, and null from every value; also where only hashes are known."""
    found, plan = surplus([1, 2, -1, 3, 100], [2, 100, 5], hashed=hashed)
    gone = keys(1, -1, 3)
    assert found == [(3, encode(gone, plan, WireFormat.YSON))]


def test_nothing_is_deleted_when_all_rows_stay():
    """And no request is made for it."""
    assert surplus([1, 2], [2, 1, 3])[0] == []
    assert surplus([], [1])[0] == []
    assert surplus([1], [1], hashed=True)[0] == []


def test_deletes_are_cut_into_requests(monkeypatch):
    """As writes are."""
    monkeypatch.setattr(complete, "ROWS_PER_DELETE", 2)
    found, plan = surplus([1, 2, 3, 4, 5], [4])
    assert [count for count, _ in found] == [2, 2]
    assert b"".join(data for _, data in found) == encode(keys(1, 2, 3, 5), plan, WireFormat.YSON)


@pytest.mark.parametrize("there", [range(4), range(100)], ids=["one too many", "far too many"])
def test_more_rows_than_one_transaction_can_touch_are_refused(there):
    """Written and deleted ones together; the remedy is told."""
    assert surplus(range(3), [50, 51], room=5)[0][0][0] == 3
    with pytest.raises(
        BatchTooLargeError, match="result has 2 rows and replaces at least"
    ) as caught:
        surplus(there, [50, 51], room=5)
    assert "Empty the table" in str(caught.value)
