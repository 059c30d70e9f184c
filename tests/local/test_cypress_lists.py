"""List nodes: items are nodes of their own, found by their index."""

import pytest
import yt.wrapper as yt
from yt import yson

from tests.contract.tables import refused


@pytest.fixture
def items(client, tmp):
    path = f"{tmp}/list"
    client.set(path, ["a", {"k": [1, 2]}, 3])
    return path


def test_items_have_types_and_attributes(client, tmp, items):
    """What `get` and `set` say of nodes holds for items too; attributes come with the value."""
    types = [item.attributes["type"] for item in client.get(items, attributes=["type"])]
    assert types == ["string_node", "map_node", "int64_node"]
    assert client.get(f"{items}/@count") == 3
    assert client.get(f"{items}/1/k/-1") == 2
    assert client.get(f"{items}/-2/@path") == f"{items}/1"
    assert not client.exists(f"{items}/1/@key")
    client.set(f"{items}/0/@color", "red")
    client.set(f"{items}/begin", 0)
    assert client.get(f"{items}/1/@color") == "red"
    client.set(f"{tmp}/other", [yson.to_yson_type(1, {"unit": "ms"})])
    assert client.get(f"{tmp}/other/0/@unit") == "ms"
    assert client.get(f"{tmp}/other") == [1]


def test_items_are_put_at_places(client, items):
    """Before the first, after the last, beside another; `create` with `force` keeps the place."""
    client.set(f"{items}/begin", "first")
    client.set(f"{items}/end", "last")
    client.set(f"{items}/before:1", "left")
    client.set(f"{items}/after:-1", "more")
    client.set(f"{items}/after:0", "right")
    wanted = ["first", "right", "left", "a", {"k": [1, 2]}, 3, "last", "more"]
    assert client.get(items) == wanted
    client.create("map_node", f"{items}/3", force=True)
    assert client.get(items) == [*wanted[:3], {}, *wanted[4:]]


def test_items_and_lists_keep_their_types(client, items):
    """They are nodes; a list is replaced by a list, with everything below."""
    client.set(f"{items}/2", 4)
    with pytest.raises(yt.YtResponseError, match="types must match"):
        client.set(f"{items}/2", "four")
    assert client.get(f"{items}/2") == 4
    client.set(items, ["x"], force=True)
    with pytest.raises(yt.YtResponseError):
        client.set(items, {"x": 1}, force=True)
    assert client.get(items) == ["x"]


@pytest.mark.parametrize("step", ["3", "-4", "before:3", "after:9", "word"])
def test_place_that_is_not_there_is_missing(client, items, step):
    """For reading as for writing."""
    for call in (lambda: client.get(f"{items}/{step}"), lambda: client.set(f"{items}/{step}", 1)):
        with refused(500):
            call()
    assert client.get(f"{items}/@count") == 3


def test_lists_hold_any_node(client, items):
    """Tables too; a search sees them."""
    client.create("table", f"{items}/end")
    client.write_table(f"{items}/3", [{"x": 1}])
    assert list(client.read_table(f"{items}/3")) == [{"x": 1}]
    assert list(client.search(items, node_type="table")) == [f"{items}/3"]
    with pytest.raises(yt.YtResponseError, match="recursive"):
        client.create("table", f"{items}/end", recursive=True)
    assert client.get(f"{items}/@count") == 4


def test_items_are_removed(client, items):
    """The others move up; a list with items needs `recursive`."""
    table = client.create("table", f"{items}/begin")
    client.remove(f"{items}/0")
    assert not client.exists(f"#{table}")
    client.remove(f"{items}/-1")
    assert client.get(items) == ["a", {"k": [1, 2]}]
    with refused(506):
        client.remove(items)
    client.remove(f"{items}/*", recursive=True)
    assert client.get(items) == []
    client.remove(items)


def test_lists_are_copied_and_items_moved(client, tmp, items):
    """Between lists and maps, and inside a list."""
    client.copy(items, f"{tmp}/copy")
    client.set(f"{tmp}/copy/end", "only here")
    assert client.get(items) == ["a", {"k": [1, 2]}, 3]
    client.move(f"{items}/1", f"{tmp}/map")
    client.move(f"{items}/0", f"{items}/end")
    client.copy(f"{tmp}/map", f"{items}/begin")
    assert client.get(items) == [{"k": [1, 2]}, 3, "a"]
    assert client.get(f"{tmp}/map/@key") == "map"
    assert client.get(f"{tmp}/copy") == ["a", {"k": [1, 2]}, 3, "only here"]


def test_change_of_a_list_belongs_to_its_transaction(client, items):
    """It locks the whole list; nobody else sees it before the commit."""
    with client.Transaction(timeout=60_000) as transaction:
        client.set(f"{items}/end", 4)
        client.remove(f"{items}/0")
        with client.Transaction(transaction_id="0-0-0-0", ping=False):
            assert client.get(items) == ["a", {"k": [1, 2]}, 3]
            with refused(402):
                client.set(f"{items}/end", 5)
        assert client.get(items) == [{"k": [1, 2]}, 3, 4]
        assert client.get(f"#{transaction.transaction_id}/@lock_ids")
    assert client.get(items) == [{"k": [1, 2]}, 3, 4]


def test_snapshot_keeps_items(client, items):
    """As it keeps the children of a map."""
    with client.Transaction(timeout=60_000):
        client.lock(items, mode="snapshot")
        with client.Transaction(transaction_id="0-0-0-0", ping=False):
            client.remove(f"{items}/0")
            client.set(f"{items}/end", 4)
        assert client.get(items) == ["a", {"k": [1, 2]}, 3]
    assert client.get(items) == [{"k": [1, 2]}, 3, 4]
