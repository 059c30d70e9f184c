"""Deletes by a marker column: what becomes of every key."""

import random

import pyarrow as pa
import pytest

from tests.flows import columns
from yt_exactly_once.codec.changes import changes
from yt_exactly_once.codec.rows import row_fragments
from yt_exactly_once.codec.schema import TableSchema, check_frame
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.errors import EncodingError

TABLE = TableSchema.from_yt(columns({"k": "int64?", "s": "utf8", "v": "int64"}, ["k", "s"]))
FRAME = pa.schema([("v", pa.int64()), ("s", pa.string()), ("k", pa.int64())])


def batch(rows):
    named = [{"v": v, "s": "x", "k": k, "gone": gone} for k, gone, v in rows]
    return pa.RecordBatch.from_pylist(named, FRAME.append(pa.field("gone", pa.bool_())))


def plan():
    return check_frame(FRAME, TABLE, target="//t", sorted=True)


def fragment(k):
    one = batch([(k, False, 0)])
    return row_fragments(one, plan().keys)[0].as_py()


def keys(*values):
    return {fragment(k) for k in values}


@pytest.mark.parametrize("seed", range(40))
def test_deletes_then_writes_do_what_the_rows_say_one_after_the_other(seed):
    """For any rows and any table before: the plain loop is the definition."""
    draw = random.Random(seed)
    rows = [
        (draw.choice([None, 1, 2, 3]), draw.random() < 0.4, number)
        for number in range(draw.randrange(12))
    ]
    for before in ({}, dict.fromkeys([None, 1, 2, 3], -1)):
        expected = dict(before)
        for k, gone, v in rows:
            if gone:
                expected.pop(k, None)
            else:
                expected[k] = v
        result = changes(batch(rows), plan().keys, "gone")
        found = dict(before)
        doomed = set(result.deleted.to_pylist())
        for k in list(found):
            if fragment(k) in doomed:
                del found[k]
        written = result.written.select(["k", "v"]).to_pylist()
        assert len({row["k"] for row in written}) == len(written)
        found |= {row["k"]: row["v"] for row in written}
        assert found == expected
        assert sorted(result.keys.to_pylist()) == sorted(keys(*{k for k, _, _ in rows}))


def test_key_that_is_deleted_and_written_again_loses_its_other_columns():
    """So it is both: the delete goes first."""
    result = changes(batch([(1, True, 0), (1, False, 5), (2, False, 6)]), plan().keys, "gone")
    assert set(result.deleted.to_pylist()) == keys(1)
    assert result.written.column("v").to_pylist() == [5, 6]


def test_body_of_a_delete_is_the_keys_alone():
    """A value column would be refused by the cluster."""
    result = changes(batch([(7, True, 0)]), plan().keys, "gone")
    assert joined(result.deleted) == b"{\x01\x02k=\x02\x0e;\x01\x02s=\x01\x02x;};"


def test_marker_that_is_null_is_refused():
    """It says neither."""
    with pytest.raises(EncodingError, match="delete marker gone is null") as caught:
        changes(batch([(1, False, 0), (2, None, 0)]), plan().keys, "gone")
    assert caught.value.where["row_of_chunk"] == 1
