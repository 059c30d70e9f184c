"""Tablet transactions: what they see, what they hide, and who wins."""

import concurrent.futures
from contextlib import nullcontext
from itertools import product

import pytest
from yt.wrapper import YtResponseError

from tests.contract.tables import KEY, VALUE, create, refused, remount


def begin(client):
    transaction = client.Transaction(type="tablet")
    transaction.__enter__()
    return transaction


def opened(sticky):
    """Return a client of its own, and a transaction that is open in it."""
    inside = sticky()
    return inside, begin(inside)


def commit(transaction):
    transaction.__exit__(None, None, None)


def rows_of(client, path):
    return list(client.select_rows(f"* from [{path}]"))


def test_ordered_tables_have_no_snapshot(client, sticky, tmp):
    """A query inside a transaction sees rows appended after its start, but not its own; a pull, too."""
    queue = create(client, f"{tmp}/q", [VALUE])
    inside, transaction = opened(sticky)
    inside.insert_rows(queue, [{"v": "own"}])
    client.insert_rows(queue, [{"v": "x"}])
    assert [row["v"] for row in rows_of(inside, queue)] == ["x"]
    assert [row["v"] for row in inside.pull_queue(queue, 0, 0)] == ["x"]
    assert inside.get_tablet_infos(queue, [0])["tablets"][0]["total_row_count"] == 1
    commit(transaction)


def test_table_younger_than_the_transaction_is_empty_to_its_lookups(client, sticky, tmp):
    """What did not exist at the start has no rows."""
    inside, transaction = opened(sticky)
    table = create(client, f"{tmp}/t")
    client.insert_rows(table, [{"k": 1, "v": "x"}])
    assert list(inside.lookup_rows(table, [{"k": 1}])) == []
    inside.insert_rows(table, [{"k": 2, "v": "y"}])
    commit(transaction)
    assert len(rows_of(client, table)) == 2


ONLY_HTTP = pytest.mark.only_over("http", "the C++ client names no lock unless it is told which")


@pytest.mark.parametrize(
    "second", ["insert", "update", "delete", pytest.param("lock", marks=ONLY_HTTP)]
)
@pytest.mark.parametrize("first", ["insert", "update", "delete"])
def test_first_committer_of_a_row_wins(client, sticky, tmp, first, second):
    """The later commit fails with 1700 deep inside and leaves nothing behind."""
    table = create(client, f"{tmp}/t")
    other = create(client, f"{tmp}/other", [VALUE])

    def act(inside, action):
        if action == "delete":
            inside.delete_rows(table, [{"k": 1}])
        elif action == "lock":
            inside.lock_rows(table, [{"k": 1}])
        else:
            inside.insert_rows(table, [{"k": 1, "v": action}], update=action == "update")

    (winner, winning), (loser, losing) = opened(sticky), opened(sticky)
    act(loser, second)
    loser.insert_rows(other, [{"v": "lost"}])
    act(winner, first)
    commit(winning)
    after = rows_of(client, table)
    with pytest.raises(YtResponseError) as caught:
        commit(losing)
    assert caught.value.error["code"] == 1
    assert caught.value.contains_code(1700)
    conflict = caught.value.find_matching_error(code=1700)
    assert conflict.attributes["table_path"] == table
    assert conflict.attributes["key"] == [1]
    assert conflict.attributes["lock"] == "<primary>"
    assert conflict.attributes["loser_transaction_id"] == losing.transaction_id
    assert conflict.attributes["winner_transaction_commit_timestamp"] > 0
    assert conflict.attributes["tablet_id"] == client.get(f"{table}/@tablets/0/tablet_id")
    assert rows_of(client, table) == after
    assert rows_of(client, other) == []


def test_writes_of_one_transaction_act_in_their_order(client, sticky, tmp):
    """The last write of a key wins, deletes in between included, without any conflict."""
    table = create(client, f"{tmp}/t", [KEY, VALUE, {"name": "w", "type": "int64"}])
    client.insert_rows(table, [{"k": 1, "v": "old", "w": 1}, {"k": 2, "v": "old", "w": 1}])
    inside, transaction = opened(sticky)
    inside.delete_rows(table, [{"k": 1}])
    inside.insert_rows(table, [{"k": 1, "v": "new"}], update=True)
    inside.insert_rows(table, [{"k": 2, "w": 2}], update=True)
    inside.insert_rows(table, [{"k": 3, "v": "x"}])
    inside.delete_rows(table, [{"k": 3}])
    commit(transaction)
    assert rows_of(client, table) == [{"k": 1, "v": "new", "w": None}, {"k": 2, "v": "old", "w": 2}]


@ONLY_HTTP
def test_locked_row_refuses_writers_but_not_readers(client, sticky, tmp):
    """A shared lock makes read-then-write safe: a writer that started before it loses."""
    table = create(client, f"{tmp}/t")
    locker, writer, reader = sticky(), sticky(), sticky()
    locking, writing, reading = begin(locker), begin(writer), begin(reader)
    locker.lock_rows(table, [{"k": 1}])
    reader.lock_rows(table, [{"k": 1}])
    writer.insert_rows(table, [{"k": 1, "v": "x"}])
    commit(locking)
    commit(reading)
    with refused(1700, match="due to concurrent read lock"):
        commit(writing)
    client.insert_rows(table, [{"k": 1, "v": "later"}])
    assert rows_of(client, table) == [{"k": 1, "v": "later"}]


@pytest.mark.only_over("http", "the C++ client has a text of its own")
def test_lock_without_a_transaction_is_refused(client, tmp):
    """A lock lives as long as its transaction."""
    table = create(client, f"{tmp}/t")
    with pytest.raises(YtResponseError, match="Transaction is required"):
        client.lock_rows(table, [{"k": 1}])


@pytest.mark.parametrize(("one", "two"), [("one", "ONE"), ("l", "l\0")])
def test_columns_of_different_lock_groups_do_not_conflict(client, sticky, tmp, one, two):
    """Updates conflict per lock group, whatever its name; whole rows conflict with all groups."""
    schema = [
        KEY,
        {"name": "a", "type": "int64", "lock": one},
        {"name": "b", "type": "int64", "lock": two},
        {"name": "c", "type": "int64"},
    ]
    table = create(client, f"{tmp}/t", schema)

    def race(first_row, second_row, update=True):
        (left, first), (right, second) = opened(sticky), opened(sticky)
        left.insert_rows(table, [{"k": 1, **first_row}], update=True)
        right.insert_rows(table, [{"k": 1, **second_row}], update=update)
        commit(first)
        commit(second)

    race({"a": 1}, {"b": 2})
    assert rows_of(client, table) == [{"k": 1, "a": 1, "b": 2, "c": None}]
    for first_row, second_row, lock in (
        ({"a": 1}, {"a": 2}, one),
        ({"a": 1}, {"c": 2}, one),
        ({"c": 1}, {"b": 2}, "<primary>"),
    ):
        with pytest.raises(YtResponseError) as caught:
            race(first_row, second_row)
        assert caught.value.find_matching_error(code=1700).attributes["lock"] == lock
    with refused(1700):
        race({"b": 1}, {"b": 2}, update=False)


def test_racing_increments_lose_no_update(client, cluster, tmp):
    """Read, add one, write, repeat on conflict: the counter ends at the number of successes.

    The writers use different proxies, so that processes meet in the store.
    """
    table = create(client, f"{tmp}/t", [KEY, {"name": "n", "type": "int64"}])
    client.insert_rows(table, [{"k": 1, "n": 0}])

    def increment(proxy):
        inside = cluster.client(proxy, proxy={"enable_proxy_discovery": False})
        done = 0
        while done < 5:
            try:
                with inside.Transaction(type="tablet"):
                    ((row),) = inside.lookup_rows(table, [{"k": 1}])
                    inside.insert_rows(table, [{"k": 1, "n": row["n"] + 1}])
            except YtResponseError as error:
                assert error.contains_code(1700)  # noqa: PT017 - some attempts succeed
            else:
                done += 1
        return done

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        total = sum(threads.map(increment, [0, 1, 0, 1]))
    assert rows_of(client, table) == [{"k": 1, "n": total}]


def freeze(client, table):
    client.freeze_table(table, sync=True)
    client.unfreeze_table(table, sync=True)


@pytest.mark.parametrize("flush", [remount, freeze])
def test_conflicts_are_not_known_after_a_flush(client, sticky, tmp, flush):
    """Chunks hold no locks: who started before the last write of a flushed tablet cannot commit.

    `TSortedChunkStore::CheckRowLocks` in `server/node/tablet_node/sorted_chunk_store.cpp`.
    """
    table = create(client, f"{tmp}/t")
    inside, early = opened(sticky)
    client.insert_rows(table, [{"k": 1, "v": "x"}])
    flush(client, table)
    inside.insert_rows(table, [{"k": 2, "v": "y"}])
    with refused(1729, match="consider reducing transaction duration"):
        commit(early)
    late = begin(inside)
    flush(client, table)
    inside.insert_rows(table, [{"k": 2, "v": "y"}])
    commit(late)
    assert len(rows_of(client, table)) == 2


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

TEXTS = {
    "shared_strong": "Write failed due to concurrent read lock",
    "shared_write": "Row lock conflict due to concurrent shared write",
    "exclusive": "Row lock conflict due to concurrent write",
}
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
def test_locks_of_overlapping_transactions(client, sticky, tmp, first, second):
    """The conflict matrix, with locks that write nothing."""
    table = create(client, f"{tmp}/t", [KEY, *GROUPS])
    (one, winning), (two, losing) = opened(sticky), opened(sticky)
    for inside, lock in ((one, first), (two, second)):
        inside.lock_rows(table, [{"k": 1}], locks=["la"], lock_type=lock)
    commit(winning)
    if (first, second) in COMPATIBLE:
        commit(losing)
        return
    with refused(1700) as caught:
        commit(losing)
    conflict = caught.value.find_matching_error(code=1700)
    assert (conflict.message, conflict.attributes["lock"]) == (TEXTS[first], "la")


@pytest.mark.parametrize(("first", "second"), [*product(WRITES, WRITES)])
@pytest.mark.parametrize("columns", [PLAIN, GROUPS], ids=["plain", "groups"])
def test_writes_of_overlapping_transactions(client, sticky, tmp, columns, first, second):
    """Two shared writes both happen, the later commit wins; any other pair conflicts.

    Servers before 24.2 allow shared writes only with the attribute `enable_shared_write_locks`.
    """
    table = create(client, f"{tmp}/t", [KEY, *columns])
    (one, winning), (two, losing) = opened(sticky), opened(sticky)
    for inside, lock, value in ((one, first, 1), (two, second, 2)):
        inside.insert_rows(table, [{"k": 1, "a": value}], update=True, lock_type=lock)
    commit(winning)
    both = first == second == "shared_write"
    with nullcontext() if both else refused(1700, TEXTS[first]):
        commit(losing)
    assert rows_of(client, table)[0]["a"] == (2 if both else 1)
