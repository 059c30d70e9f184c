"""The pool of sticky transactions from inside: what a client cannot time well enough to see."""

import threading
from contextlib import contextmanager

import pytest

from yt_exactly_once.local import store as store_module
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.store import Store, next_timestamp
from yt_exactly_once.local.tablets import commit
from yt_exactly_once.local.tablets.transactions import TransactionPool


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def pool(tmp_path, now):
    made = TransactionPool(Store(tmp_path / "store"), max_timeout=60, clock=lambda: now[0])
    yield made
    made.close()


@contextmanager
def refused(code, match=None):
    with pytest.raises(YtError, match=match) as caught:
        yield
    assert caught.value.code == code


def test_second_commit_during_the_first_is_an_invalid_state(pool):
    """A repeat that overtakes the running commit learns that it is running."""
    transaction = pool.start()
    entered, go_on = threading.Event(), threading.Event()

    def held(*_terms):
        entered.set()
        assert go_on.wait(30)
        return 1

    transaction._apply = held
    first = threading.Thread(target=pool.commit, args=(transaction.id,))
    first.start()
    assert entered.wait(30)
    try:
        for act in (pool.commit, pool.abort):
            with refused(11003, 'in "committing" state'):
                act(transaction.id)
        with refused(11003):
            transaction.buffer([])
    finally:
        go_on.set()
        first.join()
    with refused(11000):
        pool.commit(transaction.id)


def test_lease_ends_without_commands_and_is_renewed_by_any(pool, now):
    """Every command that names a transaction keeps it alive for another timeout."""
    transaction_id = pool.start(timeout=10).id
    for _ in range(3):
        now[0] += 9
        pool.get(transaction_id)
    now[0] += 10
    with refused(11000):
        pool.get(transaction_id)
    assert pool.ids() == []


def test_lease_is_cut_to_the_longest_one(pool, now):
    """A client that asks for an hour gets what tablet nodes grant."""
    long, short = pool.start(timeout=3600), pool.start(timeout=5)
    assert (long.timeout, short.timeout) == (60, 5)
    now[0] += 60
    assert pool.ids() == []


def test_log_of_sqlite_stays_short(tmp_path, monkeypatch):
    """A commit does not hold its own snapshot, or no commit could begin the log again."""
    store = Store(tmp_path / "store")
    pool = TransactionPool(store)
    store._writer.execute("PRAGMA wal_autocheckpoint = 10")
    monkeypatch.setattr(commit, "apply", lambda connection, *_: next_timestamp(connection))
    for _ in range(100):
        transaction = pool.start()
        with transaction.read() as connection:
            assert connection.in_transaction
        transaction.buffer([None])
        pool.commit(transaction.id)
    assert (tmp_path / "store-wal").stat().st_size < 30 * 16_384
    pool.close()


def test_commit_does_not_copy_the_log(tmp_path, monkeypatch):
    """That waits for the disk. One thread at a time does it, and other commits go on meanwhile."""
    monkeypatch.setattr(store_module, "_LOG_PAGES", 10)
    go_on, done, copied = threading.Event(), threading.Event(), []

    class Watched(Store):
        def _copy_log(self):
            go_on.wait()
            super()._copy_log()
            copied.append(self._log_pages())
            done.set()

    store = Watched(tmp_path / "store")
    with store.write() as connection:
        connection.execute("CREATE TABLE large (body BLOB)")
    waiting = []
    for _ in range(5):
        with store.write() as connection:
            connection.execute("INSERT INTO large VALUES (?)", (bytes(20 * 16_384),))
        waiting.append(store._log_pages())
    assert waiting == sorted(set(waiting))
    assert waiting[-1] > 5 * 20
    assert not copied
    go_on.set()
    assert done.wait(60)
    assert copied == [0]
    with store.write() as connection:
        connection.execute("INSERT INTO large VALUES ('')")
    assert store._log_pages() < 10
