"""Arrays by their buffers: the same as pyarrow makes them, and without pandas."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from yt_exactly_once.codec.buffers import from_numpy, scalar, single, to_numpy
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame

VALUES = [
    np.array([1, -2, 2**62], np.int64),
    np.array([0, 2**64 - 1], np.uint64),
    np.array([0.5, np.inf], np.float64),
    np.array([True, False] * 9, np.bool_),
    np.array([], np.int32),
    np.arange(20, dtype=np.int16)[::2].copy(),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: f"{values.dtype}-{len(values)}")
def test_array_is_the_one_pyarrow_makes(values):
    """With nulls and without."""
    assert from_numpy(values).equals(pa.array(values))
    mask = np.arange(len(values)) % 3 == 1
    made = from_numpy(values, mask)
    made.validate(full=True)
    assert made.equals(pa.array(values, mask=mask))


@pytest.mark.parametrize("values", [one for one in VALUES if one.dtype != bool])
def test_numbers_come_back(values):
    """Also those of a slice."""
    array = pa.array(values)
    assert to_numpy(array).tolist() == values.tolist()
    assert to_numpy(array[1:]).tolist() == values.tolist()[1:]


SCALARS = [
    (7, pa.int32()),
    (-1, pa.int64()),
    (2**64 - 1, pa.uint64()),
    (b"", pa.binary()),
    (b"a\0", pa.binary()),
    (b"#", pa.large_binary()),
    (None, pa.binary()),
    (None, pa.decimal128(9, 2)),
]


@pytest.mark.parametrize(("value", "kind"), SCALARS, ids=repr)
def test_scalar_is_the_one_pyarrow_makes(value, kind):
    """Of exactly the type asked for."""
    assert scalar(value, kind).equals(pa.scalar(value, kind))
    assert single(value, kind).equals(pa.array([value], kind))


KINDS = ["int8", "uint64", "double", "bool", "utf8", "string", "date", "datetime", "timestamp64"]
KINDS += ["interval", {"type_name": "decimal", "precision": 12, "scale": 3}]
COLUMNS = [
    {"name": f"c{n}", "type_v3": {"type_name": "optional", "item": kind}}
    for n, kind in enumerate(KINDS)
]

PROGRAM = """
import sys
import yt_exactly_once.spark.data_source
from yt_exactly_once.codec.rows import WireFormat, decode, encode, encode_empty
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame

table = TableSchema.from_yt(COLUMNS)
frame = arrow_schema_of(table)
plan = check_frame(frame, table, target="//t", sorted=False)
rows = decode(PAYLOAD, frame)
assert encode(rows, plan, WireFormat.YSON) == PAYLOAD
encode_empty(plan, WireFormat.ARROW)
encode(rows, plan, WireFormat.ARROW, tablet_index=0)
slow = {"pandas", "structlog", "rich", "asyncio", "yt_exactly_once.spark.sink"}
print(rows.num_rows, sorted(slow & set(sys.modules)))
"""


def test_worker_that_reads_imports_little():
    """It would pay for pandas, structlog and the sink at the first batch."""
    table = TableSchema.from_yt(COLUMNS)
    frame = arrow_schema_of(table)
    instant = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    full = [-1, 2, 0.5, True, "t", "s", dt.date(2020, 1, 1), instant, instant]
    full += [dt.timedelta(seconds=1), Decimal("-1.250")]
    values = [dict(zip(frame.names, one, strict=True)) for one in (full, [None] * len(full))]
    plan = check_frame(frame, table, target="//t", sorted=False)
    payload = encode(pa.RecordBatch.from_pylist(values, frame), plan, WireFormat.YSON)
    program = f"COLUMNS = {COLUMNS!r}\nPAYLOAD = {payload!r}\n{PROGRAM}"
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stdout.strip() == "2 []"
