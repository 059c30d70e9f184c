"""Rows for one SQL statement: SQLite finds in an image what was put into it."""

import random
import sqlite3

import pyarrow as pa
import pytest

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tablets import row_images

MANY = row_images.MANY_ROWS
INTEGERS = [0, 1, -1, 127, 128, 2**31, -(2**63), 2**63 - 1, None]
DOUBLES = [0.0, -0.0, 1.5, 1e300, float("inf"), -float("inf"), None]
BLOBS = [b"", b"x", b"\0" * 57, b"y" * 58, b"z" * 9_000, None]


@pytest.fixture
def connection():
    found = sqlite3.connect(":memory:", isolation_level=None)
    found.execute("CREATE TABLE kept (number)")
    yield found
    found.close()


def columns_of(count, seed=1):
    chance = random.Random(seed)
    return [
        ([number.to_bytes(8, "big") for number in range(count)], pa.binary()),
        ([chance.choice(INTEGERS) for _ in range(count)], pa.int64()),
        ([chance.choice(DOUBLES) for _ in range(count)], pa.float64()),
        ([chance.choice(BLOBS) for _ in range(count)], pa.binary()),
        ([None] * count, pa.null()),
        ([n % 2 == 0 for n in range(count)], pa.bool_()),
        ([chance.choice((0, 2**63, 2**64 - 1)) for _ in range(count)], pa.uint64()),
    ]


def arrays_of(columns):
    return [pa.array(values, kind) for values, kind in columns]


@pytest.mark.parametrize("count", [MANY, 20_000])
def test_image_holds_the_rows_in_their_order(connection, count):
    """Values, their types and nulls; on one page, or on many."""
    columns = columns_of(count)
    with row_images.opened(connection, arrays_of(columns)) as is_open:
        assert is_open
        assert connection.execute("PRAGMA incoming.integrity_check").fetchall() == [("ok",)]
        found = connection.execute(f"SELECT * FROM {row_images.TABLE}").fetchall()
        query = f"SELECT DISTINCT typeof({row_images.column(2)}) FROM {row_images.TABLE}"
        kinds = connection.execute(query).fetchall()
    assert [tuple(map(repr, row)) for row in found] == [
        tuple(map(repr, row))
        for row in zip(*map(vectors.to_stored, arrays_of(columns)), strict=True)
    ]
    assert set(kinds) == {("real",), ("null",)}


def test_images_follow_each_other_within_a_transaction(connection):
    """With other columns each time, and what was written stays in the transaction."""
    connection.execute("BEGIN")
    for width in (1, 6, 2):
        with row_images.opened(connection, arrays_of(columns_of(MANY)[:width])) as is_open:
            assert is_open
            last = row_images.column(width - 1)
            connection.execute(f"INSERT INTO kept SELECT {last} FROM {row_images.TABLE}")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    # What was opened takes no memory afterwards.
    assert len(connection.serialize(name="incoming")) < 200_000


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([b"x"] * (MANY - 1), pa.binary()),
        ([b"x"] * MANY + [b"x" * 66_000], pa.binary()),
        ([1.0] * MANY + [float("nan")], pa.float64()),
    ],
    ids=["few", "heavy", "nan"],
)
def test_rows_that_an_image_does_not_take_are_bound(connection, values, kind):
    """The caller is told."""
    with row_images.opened(connection, [pa.array(values, kind)]) as is_open:
        assert not is_open
    assert "incoming" not in {row[1] for row in connection.execute("PRAGMA database_list")}
