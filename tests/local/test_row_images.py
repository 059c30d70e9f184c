"""Rows for one SQL statement, and from one: what goes into an image of SQLite and comes out by vector."""

import random
import sqlite3

import pyarrow as pa
import pytest

from yt_exactly_once.local.tables import vectors
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets import row_images, row_results

MANY = row_images.MANY_ROWS
POWERS = [1 << bits for bits in (7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 63)]
INTEGERS = [0, 1, -1, None, *(n - 1 for n in POWERS), *(-n for n in POWERS)]
DOUBLES = [0.0, -0.0, 1.5, 1e300, float("inf"), -float("inf"), None]
BLOBS = [b"", b"x", b"\0" * 57, b"y" * 58, b"z" * 9_000, None]
CHOICES = {
    "int64": INTEGERS,
    "uint64": INTEGERS,
    "boolean": [0, 1, None],
    "double": DOUBLES,
    "string": [*BLOBS, b"\r"],
    "any": [b"#", b"\x02\x08", None],
    "null": [None],
}
COLUMNS = [Column(kind, kind, kind, required=False) for kind in CHOICES]
NAMES = ", ".join(f'"{kind}"' for kind in CHOICES)


@pytest.fixture
def connection():
    found = sqlite3.connect(":memory:", isolation_level=None)
    found.execute("CREATE TABLE numbers (number)")
    found.execute(f"CREATE TABLE kept ({NAMES})")
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
    with row_images.opened(connection, row_images.image_of(arrays_of(columns))):
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
        image = row_images.image_of(arrays_of(columns_of(MANY)[:width]))
        with row_images.opened(connection, image):
            last = row_images.column(width - 1)
            connection.execute(f"INSERT INTO numbers SELECT {last} FROM {row_images.TABLE}")
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
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
def test_rows_that_an_image_does_not_take_are_bound(values, kind):
    """The caller is told."""
    assert row_images.image_of([pa.array(values, kind)]) is None


@pytest.mark.parametrize("last", [b"same length", b"another"])
def test_values_of_one_width_are_laid_out_together(connection, last):
    """Neighbours without nulls, here in the middle of longer arrays."""
    texts = [b"%011d" % number for number in range(MANY)] + [last]
    arrays = [
        pa.array([b"", *texts]).slice(1),
        pa.array([7, *range(MANY + 1)]).slice(1),
        pa.array([None, *texts]).slice(1),
        pa.array([float(number) for number in range(MANY + 1)]),
    ]
    with row_images.opened(connection, row_images.image_of(arrays)):
        found = connection.execute(f"SELECT * FROM {row_images.TABLE}").fetchall()
    assert found == list(zip(*(array.to_pylist() for array in arrays), strict=True))


def fill(connection, count, **more):
    connection.execute("BEGIN")
    chance = random.Random(count)
    choices = {kind: [*known, *more.get(kind, ())] for kind, known in CHOICES.items()}
    rows = [[chance.choice(known) for known in choices.values()] for _ in range(count)]
    connection.executemany(f"INSERT INTO kept VALUES ({', '.join('?' * len(CHOICES))})", rows)


def check(connection, query=f"SELECT {NAMES} FROM kept"):
    found = row_results.fetch(connection, query, COLUMNS)
    plain = row_results.of_rows(COLUMNS, connection.execute(query).fetchall())
    assert [array.type for array in found] == [array.type for array in plain]
    # A number does not equal itself if it is none, and zero equals minus zero.
    assert [list(map(repr, array.to_pylist())) for array in found] == [
        list(map(repr, array.to_pylist())) for array in plain
    ]
    return len(found[0])


@pytest.mark.parametrize("count", [1, 300, 3_000])
def test_rows_are_read_by_vector(connection, monkeypatch, count):
    """Every type and size of value, with nulls; on one page, or on many."""
    fill(connection, count)
    with monkeypatch.context() as patch:
        patch.setattr(row_results, "of_rows", None)
        row_results.fetch(connection, f"SELECT {NAMES} FROM kept", COLUMNS)
    assert check(connection) == count


def test_no_rows_have_arrays_too(connection):
    """Of the types of the columns."""
    assert check(connection) == 0


def test_pages_may_lie_deep_below_the_first_one(connection, monkeypatch):
    """Here small pages stand for a large answer."""
    monkeypatch.setattr(row_results, "PAGE_BYTES", 512)
    monkeypatch.setattr(row_results, "_LOCAL_BYTES", 477)
    fill(connection, 20_000)
    connection.execute("UPDATE kept SET string = substr(string, 1, 58)")
    assert check(connection) == 20_000
    (pages,) = connection.execute("PRAGMA outgoing.page_count").fetchone()
    assert pages > 512 // 6 * 10


@pytest.mark.parametrize(
    "value", [{"string": [b"x" * 66_000]}, {"double": ["nan"]}], ids=["heavy", "nan"]
)
def test_other_rows_are_fetched(connection, value):
    """A row that does not fit into a page, and a number that is kept as a text."""
    fill(connection, 500, **value)
    assert check(connection) == 500


def test_queries_follow_each_other_within_a_transaction(connection):
    """With other columns each time; the memory is free at the end."""
    fill(connection, 5_000)
    for width in (2, 7, 2):
        names = ", ".join(f'"{column.name}"' for column in COLUMNS[:width])
        query = f"SELECT {names} FROM kept WHERE boolean = 1 ORDER BY int64 DESC"
        found = row_results.fetch(connection, query, COLUMNS[:width])
        plain = row_results.of_rows(COLUMNS[:width], connection.execute(query).fetchall())
        assert [array.to_pylist() for array in found] == [array.to_pylist() for array in plain]
    connection.execute("COMMIT")
    assert len(connection.serialize(name="outgoing")) < 65_536 * 6
