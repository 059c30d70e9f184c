"""Arrays by their buffers: without pandas."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa

from tests.kinds import decimal, optional
from yt_exactly_once.codec.rows import WireFormat, encode
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame

KINDS = ["int8", "uint64", "double", "bool", "utf8", "string", "date", "datetime", "timestamp64"]
KINDS += ["interval", decimal(12, 3)]
COLUMNS = [{"name": f"c{n}", "type_v3": optional(kind)} for n, kind in enumerate(KINDS)]

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
