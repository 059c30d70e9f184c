"""Master transactions and locks: isolation, nesting, conflicts, leases, on every proxy."""

import datetime as dt
import sqlite3
import uuid
from contextlib import closing

import pytest
import yt.wrapper as yt

from tests.contract.tables import create, refused


@pytest.fixture
def other(cluster):
    return cluster.client(1)


def _conflict(call, *args, **kwargs):
    with pytest.raises(yt.YtResponseError) as caught:
        call(*args, **kwargs)
    assert caught.value.contains_code(402), caught.value
    return caught.value


def test_changes_are_seen_inside_only_until_commit(client, other, tmp):
    """Nobody else sees half of a transaction."""
    client.set(f"{tmp}/old", 1)
    client.set(f"{tmp}/gone", {"b": 1})
    with client.Transaction():
        client.set(f"{tmp}/new", 1)
        client.set(f"{tmp}/old", 2)
        client.remove(f"{tmp}/gone", recursive=True)
        client.set(f"{tmp}/@mark", "x")
        assert client.get(tmp) == {"new": 1, "old": 2}
        assert other.get(tmp) == {"old": 1, "gone": {"b": 1}}
        assert not other.exists(f"{tmp}/@mark")
    assert other.get(tmp) == {"new": 1, "old": 2}
    assert other.get(f"{tmp}/@mark") == "x"


def test_abort_leaves_no_trace(client, tmp, aborted):
    """Created, changed and removed things are as before."""
    client.set(f"{tmp}/kept", {"a": 1})
    with aborted(client):
        client.set(f"{tmp}/new", {"b": 1})
        client.remove(f"{tmp}/kept", recursive=True)
        client.set(f"{tmp}/@mark", 1)
    assert client.get(tmp) == {"kept": {"a": 1}}
    assert not client.exists(f"{tmp}/@mark")


def test_nested_commit_is_visible_in_the_parent_only(client, other, tmp, aborted):
    """Each level has its own view."""
    with client.Transaction():
        with client.Transaction():
            client.set(f"{tmp}/a", 1)
        assert client.get(f"{tmp}/a") == 1
        with aborted(client):
            client.set(f"{tmp}/a", 2)
        assert client.get(f"{tmp}/a") == 1
        assert not other.exists(f"{tmp}/a")
    assert other.get(f"{tmp}/a") == 1


def test_transaction_is_joined_through_another_proxy(client, other, tmp):
    """Unlike a tablet transaction, a master one belongs to the cluster."""
    with client.Transaction() as outer:
        client.set(f"{tmp}/a", 1)
        with other.Transaction(transaction_id=outer.transaction_id, ping=False):
            assert other.get(f"{tmp}/a") == 1
            other.set(f"{tmp}/b", 2)
        assert client.get(f"{tmp}/b") == 2


def test_end_of_the_parent_ends_the_nested(client, tmp):
    """A nested transaction does not outlive its parent."""
    parent = client.start_transaction()
    with client.Transaction(transaction_id=parent, ping=False):
        nested = client.start_transaction()
    client.commit_transaction(parent)
    for transaction_id in (parent, nested):
        with refused(11000):
            client.ping_transaction(transaction_id)
    assert client.exists(tmp)


def test_unknown_and_foreign_ids_are_told_apart(raw, client):
    """11000 means gone; the id of a tablet transaction is not valid here."""
    for path in ("//tmp", "//tmp/@type"):
        answer = raw.command("GET", "get", {"path": path, "transaction_id": "1-2-10001-3"})
        assert answer.error["code"] == 11000
        assert answer.error["message"] == "No such transaction 1-2-10001-3"
    tablet = client.start_transaction(type="tablet")
    answer = raw.command("GET", "get", {"path": "//tmp", "transaction_id": tablet})
    assert "is not a valid master transaction id" in answer.error["message"]


def test_lock_of_an_expired_transaction_is_released(client, raw, tmp):
    """A dead client blocks nobody for longer than its lease; its changes and its transaction vanish."""
    client.set(f"{tmp}/a", 1)
    answer = raw.command("POST", "start_transaction", {"type": "master", "timeout": 2000})
    transaction_id = answer.json()["transaction_id"]
    inside = {"path": f"{tmp}/a", "transaction_id": transaction_id}
    assert raw.command("PUT", "set", inside, b"2").status == 200
    _conflict(client.set, f"{tmp}/a", 3)
    while client.exists(f"#{transaction_id}"):
        pass
    assert client.get(f"{tmp}/a") == 1
    client.set(f"{tmp}/a", 3)
    for command in ("ping_transaction", "commit_transaction"):
        answer = raw.command("POST", command, {"transaction_id": transaction_id})
        assert answer.error["code"] == 11000


def test_transactions_are_objects(client):
    """Attributes of a live transaction can be read by id, and all of them are listed."""
    with client.Transaction(attributes={"title": "probe"}) as transaction:
        path = f"#{transaction.transaction_id}"
        assert client.get(f"{path}/@title") == "probe"
        assert client.get(f"{path}/@timeout") > 0
        wanted = {"attributes": ["title", "type", "unknown"]}
        listed = client.list("//sys/transactions", **wanted)
        (found,) = (item for item in listed if str(item) == transaction.transaction_id)
        assert found.attributes == {"title": "probe", "type": "transaction"}
        shown = client.get("//sys/transactions", **wanted)[transaction.transaction_id]
        assert shown.attributes == found.attributes
        assert client.exists(f"//sys/transactions/{transaction.transaction_id}")
    assert not client.exists(path)


def test_exclusive_lock_keeps_others_out(client, other, tmp):
    """Neither a plain change nor a transaction gets past it; the error names the winner."""
    client.set(f"{tmp}/a", 1)
    with client.Transaction() as winner:
        lock = client.lock(f"{tmp}/a")
        assert lock["node_id"] == client.get(f"{tmp}/a/@id")
        assert client.get(f"#{lock['lock_id']}/@state") == "acquired"
        assert client.get(f"{tmp}/a/@lock_mode") == "exclusive"
        error = _conflict(other.set, f"{tmp}/a", 2)
        assert winner.transaction_id in str(error)
        _conflict(other.set, f"{tmp}/a/@x", 2)
        _conflict(other.remove, f"{tmp}/a")
        with other.Transaction():
            _conflict(other.lock, f"{tmp}/a", mode="shared")
        client.set(f"{tmp}/a", 3)
    other.set(f"{tmp}/a", 4)


def test_shared_locks_get_along_until_keys_meet(client, other, tmp):
    """Two transactions may work on different children and attributes of one node."""
    with client.Transaction(), other.Transaction():
        client.lock(tmp, mode="shared", child_key="a")
        other.lock(tmp, mode="shared", child_key="b")
        other.lock(tmp, mode="shared", attribute_key="a")
        _conflict(other.lock, tmp, mode="shared", child_key="a")
        _conflict(other.create, "map_node", f"{tmp}/a")
        other.create("map_node", f"{tmp}/c")
        _conflict(client.create, "map_node", f"{tmp}/c")


def test_change_in_a_transaction_locks_what_it_touches(client, other, tmp):
    """Implicit locks protect exactly the child and the attribute."""
    client.set(f"{tmp}/n", 1)
    with client.Transaction():
        client.set(f"{tmp}/n", 2)
        client.set(f"{tmp}/@x", 2)
        client.create("map_node", f"{tmp}/c")
        _conflict(other.set, f"{tmp}/n", 3)
        _conflict(other.set, f"{tmp}/@x", 3)
        _conflict(other.create, "map_node", f"{tmp}/c")
        other.set(f"{tmp}/@y", 3)
        other.create("map_node", f"{tmp}/d")


def test_snapshot_keeps_what_it_saw(client, other, tmp):
    """A reader under a snapshot lock is not disturbed, even by removal."""
    client.write_file(f"{tmp}/f", b"old")
    client.set(f"{tmp}/f/@mark", 1)
    with other.Transaction():
        node_id = other.lock(f"{tmp}/f", mode="snapshot")["node_id"]
        client.write_file(f"{tmp}/f", b"new")
        client.set(f"{tmp}/f/@mark", 2)
        assert other.get(f"#{node_id}/@mark") == 1
        assert other.get(f"#{node_id}/@uncompressed_data_size") == 3
        client.remove(f"{tmp}/f")
        assert other.get(f"#{node_id}/@mark") == 1
        assert not other.exists(f"{tmp}/f")
        # A transaction cannot change what it holds still.
        with refused(400):
            other.set(f"#{node_id}/@mark", 3)
    assert not client.exists(f"#{node_id}")


def test_waitable_lock_is_granted_when_the_way_is_free(client, other, tmp):
    """A waiting lock is pending, then acquired, without another request."""
    client.set(f"{tmp}/a", 1)
    holder = client.start_transaction()
    with client.Transaction(transaction_id=holder, ping=False):
        client.lock(f"{tmp}/a")
    with other.Transaction():
        lock = other.lock(f"{tmp}/a", waitable=True)["lock_id"]
        assert other.get(f"#{lock}/@state") == "pending"
        client.commit_transaction(holder)
        assert other.get(f"#{lock}/@state") == "acquired"


def test_snapshot_and_changes_exclude_each_other_in_nested_transactions(client, other, tmp):
    """A parent cannot freeze what a child changes, nor a child change what a parent froze; both may wait."""
    client.set(f"{tmp}/changed", 1)
    client.set(f"{tmp}/frozen", 1)
    with client.Transaction() as parent:
        frozen = client.lock(f"{tmp}/frozen", mode="snapshot")["lock_id"]
        with client.Transaction():
            client.set(f"{tmp}/changed", 2)
            with refused(400, match="by parent transaction"):
                client.set(f"{tmp}/frozen", 2)
            pending = client.lock(f"{tmp}/frozen", waitable=True)["lock_id"]
            with other.Transaction(transaction_id=parent.transaction_id, ping=False):
                with refused(401, match="a descendant transaction"):
                    other.lock(f"{tmp}/changed", mode="snapshot")
                waiting = other.lock(f"{tmp}/changed", mode="snapshot", waitable=True)["lock_id"]
        states = {lock: client.get(f"#{lock}/@state") for lock in (frozen, pending, waiting)}
        assert states == {frozen: "acquired", pending: "pending", waiting: "pending"}


def test_unlock_gives_the_node_back(client, other, tmp):
    """An explicit lock without changes can be dropped early."""
    client.set(f"{tmp}/a", 1)
    with client.Transaction():
        client.lock(f"{tmp}/a")
        client.unlock(f"{tmp}/a")
        other.set(f"{tmp}/a", 2)
        client.lock(f"{tmp}/a")
        client.set(f"{tmp}/a", 3)
        with pytest.raises(
            yt.YtResponseError, match=r"is modified by transaction .* and cannot be unlocked"
        ):
            client.unlock(f"{tmp}/a")


@pytest.mark.parametrize(
    "parameters",
    [
        {"mode": "nonsense"},
        {"mode": "exclusive", "child_key": "x"},
        {"mode": "shared", "child_key": 5},
        {"transaction_id": None},
        {"transaction_id": "nonsense"},
        {"path": "//missing"},
    ],
)
def test_impossible_lock_is_refused(raw, client, tmp, parameters):
    """Each mistake has its own text."""
    with client.Transaction() as transaction:
        good = {"path": tmp, "transaction_id": transaction.transaction_id}
        answer = raw.command("POST", "lock", {**good, **parameters})
    assert answer.status == 400
    assert answer.error["message"]


def test_removed_and_recreated_inside_one_transaction(client, tmp):
    """The last state wins, whatever came before."""
    client.set(f"{tmp}/a", {"x": 1})
    with client.Transaction():
        client.remove(f"{tmp}/a", recursive=True)
        client.set(f"{tmp}/a", "scalar")
    assert client.get(f"{tmp}/a") == "scalar"
    with client.Transaction():
        client.remove(f"{tmp}/a")
        client.set(f"{tmp}/b", 1)
        client.remove(f"{tmp}/b")
    assert client.get(tmp) == {}


def test_dynamic_table_of_an_aborted_transaction_is_gone(client, tmp, aborted):
    """Storage follows the node."""
    with aborted(client):
        create(client, f"{tmp}/t", mount=False)
    assert not client.exists(f"{tmp}/t")
    create(client, f"{tmp}/t")


def test_uploads_of_two_transactions_do_not_mix(client, other, tmp):
    """Appends under shared locks both arrive, whole."""
    client.create("table", f"{tmp}/t")
    first, second = client.Transaction(), other.Transaction()
    with first, second:
        client.write_table(f"<append=%true>{tmp}/t", [{"n": 1}, {"n": 2}])
        other.write_table(f"<append=%true>{tmp}/t", [{"n": 3}])
        assert client.get(f"{tmp}/t/@row_count") == 2
    assert sorted(row["n"] for row in client.read_table(f"{tmp}/t")) == [1, 2, 3]


def test_ids_of_transactions_carry_their_type(client):
    """Clients refuse to mix them up by looking at the id."""
    with client.Transaction() as outer, client.Transaction() as inner:
        types = [
            int(transaction.transaction_id.split("-")[2], 16) & 0xFFFF
            for transaction in (outer, inner)
        ]
    assert types == [1, 4]


def test_unlocked_snapshot_leaves_no_chunk(cluster, client, other, tmp):
    """The store would grow by every table that was written while it was locked."""
    client.write_table(f"{tmp}/t", [{"x": 1}])
    (chunk_id,) = client.get(f"{tmp}/t/@chunk_ids")
    with client.Transaction(timeout=60_000):
        client.lock(f"{tmp}/t", mode="snapshot")
        other.write_table(f"{tmp}/t", [{"x": 2}])
        client.unlock(f"{tmp}/t")
    with closing(sqlite3.connect(cluster.data_dir / "store.sqlite3")) as store:
        number = int(chunk_id.split("-")[1], 16)
        assert not store.execute("SELECT 1 FROM chunks WHERE id = ?", (number,)).fetchall()


def test_snapshot_of_a_map_keeps_its_children(client, other, tmp):
    """Children that come and go later do not show."""
    client.set(f"{tmp}/m", {"a": 1, "b": 2})
    with other.Transaction():
        other.lock(f"{tmp}/m", mode="snapshot")
        client.set(f"{tmp}/m/c", 3)
        client.remove(f"{tmp}/m/a")
        assert other.list(f"{tmp}/m") == ["a", "b"]
        assert not other.exists(f"{tmp}/m/c")
        assert other.exists(f"{tmp}/m/b")
    assert other.list(f"{tmp}/m") == ["b", "c"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("timeout", value) for value in (-1, 2**64 - 1, "soon")),
        *(("deadline", value) for value in ("soon", [], 2**63)),
    ],
)
def test_impossible_lease_or_deadline_is_refused(raw, name, value):
    """A lease is a positive number of milliseconds, a deadline a time."""
    answer = raw.command("POST", "start_transaction", {"type": "master", name: value})
    assert f'"{name}"' in str(answer.error)


@pytest.mark.parametrize("spelling", ["2001-02-03T04:05:06.000000Z", "2001-02-03", 981173106000])
def test_transaction_past_its_deadline_is_gone(client, spelling):
    """A deadline ends a transaction whatever its lease."""
    expired = client.start_transaction(timeout=60_000, deadline=spelling)
    with pytest.raises(yt.YtResponseError, match="No such transaction"):
        client.ping_transaction(expired)
    assert not client.exists(f"#{expired}")


def test_ping_is_shown_and_moves_no_deadline(client):
    """Who watches a transaction sees when it was last alive."""
    later = dt.datetime(2100, 1, 2, tzinfo=dt.UTC)
    transaction_id = client.start_transaction(timeout=60_000, deadline=later.isoformat())
    before = client.get(f"#{transaction_id}/@last_ping_time")
    client.ping_transaction(transaction_id)
    assert client.get(f"#{transaction_id}/@last_ping_time") > before
    assert client.get(f"#{transaction_id}/@deadline") == "2100-01-02T00:00:00.000000Z"
    client.abort_transaction(transaction_id)


def test_lease_can_be_changed(client):
    """It starts again with the change, and is cut to an hour like that of a start."""
    transaction_id = client.start_transaction(timeout=7_200_000)
    assert client.get(f"#{transaction_id}/@timeout") == 3_600_000
    for asked, granted in ((60_000, 60_000), (7_200_000, 3_600_000)):
        client.set(f"#{transaction_id}/@timeout", asked)
        assert client.get(f"#{transaction_id}/@timeout") == granted
    with pytest.raises(yt.YtResponseError, match="must be positive"):
        client.set(f"#{transaction_id}/@timeout", 0)
    client.abort_transaction(transaction_id)
    with pytest.raises(yt.YtResponseError, match="No such transaction"):
        client.set(f"#{transaction_id}/@timeout", 1000)


def test_end_of_an_expired_parent_ends_the_nested_for_readers(raw, client):
    """Nobody changes the tree meanwhile, so only the reading itself can find out."""
    start = lambda **given: raw.command("POST", "start_transaction", given).json()["transaction_id"]  # noqa: E731
    outer = start(timeout=300)
    inner = start(timeout=60_000, transaction_id=outer)
    locked = client.create("map_node", f"//tmp/{uuid.uuid4().hex}")
    raw.command("POST", "lock", {"path": f"#{locked}", "transaction_id": inner})
    while client.exists(f"//sys/transactions/{outer}"):
        pass
    assert not client.exists(f"//sys/transactions/{inner}")
    assert client.get(f"#{locked}/@locks") == []


def test_waiting_lock_of_a_nested_transaction_moves_to_the_parent(client, other, tmp):
    """With the commit of the nested one, and is granted there."""
    client.create("table", f"{tmp}/t")
    holder = other.start_transaction()
    with other.Transaction(transaction_id=holder, ping=False):
        other.lock(f"{tmp}/t")
    with client.Transaction() as outer:
        with client.Transaction():
            waiting = client.lock(f"{tmp}/t", waitable=True)["lock_id"]
            assert not client.exists(f"#{waiting}/@acquisition_time")
        assert client.get(f"#{waiting}/@transaction_id") == str(outer.transaction_id)
        assert client.get(f"//sys/locks/{waiting}/@state") == "pending"
        other.abort_transaction(holder)
        assert client.get(f"#{waiting}/@state") == "acquired"
        assert client.exists(f"#{waiting}/@acquisition_time")


def test_lock_existing_locks_what_will_do(raw, client, tmp):
    """A plain `ignore_existing` does not, and without it the flag means nothing and is refused."""
    client.create("table", f"{tmp}/t")
    transaction_id = client.start_transaction()
    wish = {"type": "table", "path": f"{tmp}/t", "transaction_id": transaction_id}
    raw.command("POST", "create", {**wish, "ignore_existing": True})
    assert client.get(f"{tmp}/t/@locks") == []
    raw.command("POST", "create", {**wish, "ignore_existing": True, "lock_existing": True})
    assert [lock["mode"] for lock in client.get(f"{tmp}/t/@locks")] == ["exclusive"]
    client.abort_transaction(transaction_id)
    answer = raw.command("POST", "create", {**wish, "transaction_id": None, "lock_existing": True})
    assert "lock_existing" in answer.json()["message"]


def test_created_nodes_are_held_by_their_transaction(client, tmp):
    """All of them: parents that were made on the way, and what lies inside a value."""
    with client.Transaction():
        client.create("table", f"{tmp}/a/t", recursive=True)
        client.set(f"{tmp}/m", {"list": [1]})
        for path in ("a", "a/t", "m", "m/list", "m/list/0"):
            assert client.get(f"{tmp}/{path}/@lock_mode") == "exclusive", path
    assert client.get(f"{tmp}/a/t/@lock_mode") == "none"


def test_commit_gives_a_revision_of_its_own(client, tmp):
    """What was read inside before the commit is older than what others see after it."""
    client.set(f"{tmp}/a", 1)
    with client.Transaction():
        client.set(f"{tmp}/a", 2)
        inside = client.get(f"{tmp}/a/@revision")
    assert client.get(f"{tmp}/a/@revision") > inside


def test_attribute_cannot_be_locked(client, tmp):
    """Its node can; a shared lock may name the attribute."""
    with client.Transaction(), pytest.raises(yt.YtError, match='"Lock" method is not supported'):
        client.lock(f"{tmp}/@account")
