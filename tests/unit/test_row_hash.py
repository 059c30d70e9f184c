"""Hashes of rows: equal for equal values, and for no others that a test can think of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from yt_exactly_once.codec.row_hash import row_hashes


def hashes(values, kind):
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["a"])
    return row_hashes(batch, ["a"]).tolist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [0, 1, -1, None, 2**63 - 1]),
        (pa.uint64(), [0, 1, 2**64 - 1, None]),
        (pa.float64(), [0.0, 1.5, -1.5, None]),
        (pa.bool_(), [True, False, None]),
        (pa.string(), ["", "a", "b", "ab", None, "\0"]),
        (pa.binary(), [b"", b"\0", b"\xff", None]),
        (pa.date32(), [0, 1, None]),
        (pa.timestamp("us", tz="UTC"), [datetime(2020, 1, 1, tzinfo=UTC), None]),
        (pa.duration("us"), [timedelta(0), timedelta(seconds=1), None]),
        (pa.decimal128(9, 2), [Decimal("1.00"), Decimal("1.10"), None]),
        (pa.list_(pa.int64()), [[], [1], [None], [1, 2], None]),
        (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}, None]),
    ],
    ids=str,
)
def test_different_values_have_different_hashes(kind, values):
    """Null, zero and nothing included; the same values have the same hashes again."""
    found = hashes(values, kind)
    assert len(set(found)) == len(values)
    assert hashes(list(reversed(values)), kind) == list(reversed(found))


def test_values_do_not_move_between_columns_unnoticed():
    """The place of a value counts."""
    batch = pa.RecordBatch.from_pydict({"a": [1, None, 2], "b": [None, 1, 2]})
    first, second, third = row_hashes(batch, ["a", "b"])
    assert len({first, second, third}) == 3
    assert row_hashes(batch, ["b", "a"])[0] == second
