"""Whole tables: the first keys of tablets, as queries have them."""

import pickle
from io import BytesIO
from types import SimpleNamespace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from yt import yson
from yt.common import YtError

from yt_exactly_once.spark.source.tables import SortedReader
from yt_exactly_once.ytsaurus.reading import WholeTable

KEYS = b'[[];["\\xff\\"";a;#;%true;5u;-3;1.5]]'


def test_tablet_may_begin_at_a_key_of_any_kind():
    """The tasks get it by pickle, which bytes that are no UTF-8 do not survive as the client has them."""
    found = {"type": "table", "id": "1", "dynamic": True, "tablet_state": "mounted"}
    attributes = {**found, "pivot_keys": yson.loads(KEYS)}
    client = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(attributes=attributes))
    table = WholeTable.look(SimpleNamespace(reader=client), "//t")
    first, second = pickle.loads(pickle.dumps(table.pivots))
    assert first == ()
    assert second == (r'"\xff\x22"', r'"\x61"', "null", "true", "5u", "-3", "1.5")


def test_filter_that_reads_too_many_rows_for_a_page_is_left_to_spark():
    """A query reads at most a million rows, and those that fit may be further apart."""
    rows = [{"k": number, "v": number} for number in range(3)]
    asked = []

    def select_rows(query, **_more):
        asked.append("[v] > 1" in query)
        if asked[-1]:
            raise YtError("Query terminated prematurely due to excessive input", code=1709)
        return BytesIO(yson.dumps(rows, yson_type="list_fragment", yson_format="binary"))

    schema = [
        {"name": "k", "type": "int64", "required": True, "sort_order": "ascending"},
        {"name": "v", "type": "int64", "required": True},
    ]
    same = SimpleNamespace(attributes={"id": "1"})
    answers = SimpleNamespace(select_rows=select_rows, get=lambda *_, **__: same)
    client = SimpleNamespace(reader=answers)
    table = WholeTable(client, "//t", "1", schema, True, 3, 48, 0, pivots=((),), timestamp=1)
    arrow = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    reader = SortedReader(SimpleNamespace(table=table, arrow=arrow), ["k", "v"])
    reader._where = "[v] > 1"
    read = [row for batch in reader.read(InputPartition((0, 1))) for row in batch.to_pylist()]
    assert (read, asked) == (rows, [True, False])
