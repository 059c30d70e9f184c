"""Locks of rows: which types exclude each other, per lock group, when transactions overlap."""

from contextlib import contextmanager
from itertools import product

import pytest
from yt.wrapper import YtResponseError

from tests.contract import tables
from tests.contract.tables import KEY

GROUPS = [{"name": name, "type": "int64", "lock": f"l{name}"} for name in "abc"]
PLAIN = [{"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}]

READS, WRITES = ("shared_weak", "shared_strong"), ("shared_write", "exclusive")
TYPES = (*READS, *WRITES)
COMPATIBLE = {
    *product(["shared_weak"], TYPES),
    *product(["shared_strong"], READS),
    ("shared_write", "shared_write"),
}
"""What may follow a committed lock in a transaction that started before that commit."""

READ_CONFLICT = "Write failed due to concurrent read lock"
TEXTS = {
    "shared_strong": READ_CONFLICT,
    "shared_write": "Row lock conflict due to concurrent shared write",
    "exclusive": "Row lock conflict due to concurrent write",
}


@pytest.fixture
def create(client, tmp):
    return lambda columns: tables.create(client, f"{tmp}/t", [KEY, *columns])


@pytest.fixture
def overlapping(sticky):
    """Return a function that starts a transaction: a client inside, and its commit."""

    def start():
        inside = sticky()
        transaction_id = inside.start_transaction(type="tablet")

        @contextmanager
        def joined():
            with inside.Transaction(transaction_id=transaction_id, ping=False):
                yield inside

        return joined, lambda: inside.commit_transaction(transaction_id)

    return start


def read(client, table):
    return list(client.lookup_rows(table, [{"k": 1}]))


def refused(commit):
    """Commit, expect the conflict, and return it."""
    with pytest.raises(YtResponseError) as caught:
        commit()
    return caught.value.find_matching_error(code=1700)


NO_EXCLUSIVE = pytest.mark.only_over(
    "http", "the C++ client does not send an exclusive lock of a row that it does not write"
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(*pair, marks=NO_EXCLUSIVE) if "exclusive" in pair else pair
        for pair in product(TYPES, TYPES)
    ],
)
def test_locks_of_overlapping_transactions(create, overlapping, first, second):
    """The conflict matrix, with locks that write nothing."""
    table = create(GROUPS)
    (one, commit_one), (two, commit_two) = overlapping(), overlapping()
    for joined, lock in ((one, first), (two, second)):
        with joined() as inside:
            inside.lock_rows(table, [{"k": 1}], locks=["la"], lock_type=lock)
    commit_one()
    if (first, second) in COMPATIBLE:
        commit_two()
        return
    conflict = refused(commit_two)
    assert conflict.message == TEXTS[first]
    assert conflict.attributes["lock"] == "la"


@pytest.mark.parametrize(("first", "second"), [*product(WRITES, WRITES)])
@pytest.mark.parametrize("columns", [PLAIN, GROUPS], ids=["plain", "groups"])
def test_writes_of_overlapping_transactions(client, create, overlapping, columns, first, second):
    """Two shared writes both happen, the later commit wins; any other pair conflicts.

    Servers before 24.2 allow shared writes only with the attribute `enable_shared_write_locks`.
    """
    table = create(columns)
    (one, commit_one), (two, commit_two) = overlapping(), overlapping()
    for joined, lock, row in ((one, first, {"a": 1}), (two, second, {"a": 2})):
        with joined() as inside:
            inside.insert_rows(table, [{"k": 1, **row}], update=True, lock_type=lock)
    commit_one()
    if first == second == "shared_write":
        commit_two()
        assert read(client, table)[0]["a"] == 2
    else:
        assert refused(commit_two).message == TEXTS[first]
        assert read(client, table)[0]["a"] == 1
