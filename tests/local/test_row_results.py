"""Rows from one SQL statement: what is read by vector is what SQLite returns value by value."""

import random
import sqlite3

import pytest

from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tablets import row_results

POWERS = [1 << bits for bits in (7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 63)]
INTEGERS = [0, 1, -1, None, *(n - 1 for n in POWERS), *(-n for n in POWERS)]
CHOICES = {
    "int64": INTEGERS,
    "uint64": INTEGERS,
    "boolean": [0, 1, None],
    "double": [0.0, -0.0, 1.0, 1e300, float("inf"), None],
    "string": [b"", b"x", b"\r", b"\0" * 57, b"y" * 58, b"z" * 9_000, None],
    "any": [b"#", b"\x02\x08", None],
    "null": [None],
}
COLUMNS = [Column(kind, kind, kind, required=False) for kind in CHOICES]
NAMES = ", ".join(f'"{kind}"' for kind in CHOICES)


@pytest.fixture
def connection():
    found = sqlite3.connect(":memory:", isolation_level=None)
    found.execute(f"CREATE TABLE kept ({NAMES})")
    found.execute("BEGIN")
    yield found
    found.close()


def fill(connection, count, **more):
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
