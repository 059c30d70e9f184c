"""Keys that the cluster takes for one have equal bytes, whatever their type; other keys have others."""

import struct

import pyarrow as pa
import pytest

from tests.kinds import listed, optional, tuple_of
from yt_exactly_once.codec.rows import WireFormat, encode, row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.spark.sink.complete import CompleteResult

LIST = listed("double")
PAIR = tuple_of("int8", LIST)
PAIR_ARROW = pa.struct([("_1", pa.int8()), ("_2", pa.list_(pa.float64()))])
ZEROS = [0.0, -0.0]


def planned(kind, arrow):
    columns = [
        {"name": "k", "type_v3": optional(kind), "sort_order": "ascending"},
        {"name": "v", "type_v3": "double"},
    ]
    frame = pa.schema([("k", arrow), ("v", pa.float64())])
    return check_frame(frame, TableSchema.from_yt(columns), target="//t", sorted=True)


def rows(keys, arrow):
    return pa.record_batch({"k": pa.array(keys, arrow), "v": [-0.0] * len(keys)})


def keys_of(values, kind="double", arrow=None):
    arrow = arrow or pa.float64()
    return row_fragments(rows(values, arrow), planned(kind, arrow).keys).to_pylist()


@pytest.mark.parametrize(
    ("kind", "arrow", "same", "others"),
    [
        ("double", pa.float64(), ZEROS, [None, 5e-324, -5e-324, 1.0]),
        ("float", pa.float32(), ZEROS, [None, 1e-45, -1e-45]),
        ("double", pa.float32(), ZEROS, [None, 1.0]),
        (LIST, pa.list_(pa.float64()), [[0.0, 1.0, -0.0], [-0.0, 1.0, 0.0]], [[0.0], [], None]),
        (PAIR, PAIR_ARROW, [{"_1": 1, "_2": ZEROS}, {"_1": 1, "_2": [-0.0, 0.0]}],
         [{"_1": 2, "_2": ZEROS}]),
        ("yson", pa.float64(), ZEROS, [None, 1.0]),
        ("yson", pa.list_(pa.float64()), [[0.0], [-0.0]], [[], [None]]),
        ("yson", pa.binary(), [b"[0.0;-0.0]", b"[-0.;0.0;]"], [b"[0;0]", b"[0u;0u]", b"0.0", None]),
    ],
)  # fmt: skip
def test_both_zeros_are_one_key(kind, arrow, same, others):
    """Also inside keys that are composite, or any."""
    assert len(set(keys_of(same, kind, arrow))) == 1
    assert len(set(keys_of([same[0], *others], kind, arrow))) == 1 + len(others)


def test_values_and_written_keys_keep_their_zero():
    """Only what is compared and deleted is made the same."""
    plan = planned("double", pa.float64())
    payload = encode(rows(ZEROS, pa.float64()), plan, WireFormat.YSON)
    assert payload.count(struct.pack("<d", -0.0)) == 3


@pytest.mark.parametrize(("there", "wanted"), [(0.0, -0.0), (-0.0, 0.0)])
def test_row_of_a_complete_result_stays_whichever_zero_it_has(there, wanted):
    """It would be deleted and written, or deleted for good."""
    plan = planned("double", pa.float64()).keys

    class Table:
        def select(self, _path, _columns, *, limit):
            return encode(rows([there, 1.0], pa.float64()).slice(0, limit), plan, WireFormat.YSON)

    result = CompleteResult(plan, row_fragments(rows([wanted], pa.float64()), plan), 10)
    (payload,) = result.surplus(Table())
    assert payload.row_count == 1
