"""Reads touch the tablets they need, and only a needed tablet that is not mounted fails them."""

import uuid
from typing import Any

import pytest
from yt.wrapper import YtResponseError

from yt_exactly_once.local import LocalCluster
from yt_exactly_once.local.errors import Code

SORTED = "sorted"
ORDERED = "ordered"
HASHED = "hashed"
LAST = {"first_tablet_index": 2, "last_tablet_index": 2, "sync": True}


def key(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "int64", "sort_order": "ascending", **more}


VALUE = {"name": "v", "type": "int64"}


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Any:
    """A client that reports a tablet that is not mounted at once."""
    return cluster.client(dynamic_table_retries={"enable": False})


@pytest.fixture(scope="module")
def tables(client: Any) -> str:
    """Return the folder of tables with three tablets; the last one of each is not mounted."""
    folder = f"//tmp/select-tablets-{uuid.uuid4().hex[:8]}"
    client.create("map_node", folder)

    def create(name: str, schema: list[dict[str, Any]], rows: list[Any], **layout: Any) -> None:
        path = f"{folder}/{name}"
        client.create("table", path, attributes={"dynamic": True, "schema": schema})
        client.reshard_table(path, sync=True, **layout)
        client.mount_table(path, sync=True)
        client.insert_rows(path, rows)
        client.unmount_table(path, **LAST)

    pivots = {"pivot_keys": [[], [3], [5]]}
    rows = [{"a": a, "b": b, "v": 10 * a + b} for a in range(7) for b in range(2)]
    create(SORTED, [key("a"), key("b"), VALUE], rows, **pivots)
    create(ORDERED, [VALUE], [{"$tablet_index": i, "v": i} for i in range(3)], tablet_count=3)
    hashed = [key("h", expression="k * 2"), key("k"), VALUE]
    create(HASHED, hashed, [{"k": k, "v": k} for k in range(4)], **pivots)
    return folder


# What conditions say of the key, test_ql_ranges.py shows; here some of them meet tablets.
FINE = [
    (SORTED, "a < 5"),
    (SORTED, "(a, b) = (4, 1)"),
    (SORTED, "a = 6 and a = 5"),
    (ORDERED, "[$tablet_index] in (0, 1)"),
    (ORDERED, "([$tablet_index], [$row_index]) <= (1, 5)"),
    (ORDERED, "[$tablet_index] > 2"),
    (HASHED, "k = 1"),
]
FAILING = [
    (SORTED, "v = 1"),
    (SORTED, "a = 5"),
    (SORTED, "a <= 5"),
    (SORTED, "a in (0, 6)"),
    (SORTED, "a = 100"),
    (ORDERED, "[$row_index] = 0"),
    (ORDERED, "[$tablet_index] >= 1"),
    (HASHED, "k = 3"),
]


@pytest.mark.parametrize(("name", "condition"), FINE)
def test_tablet_outside_of_the_ranges_may_be_unmounted(
    client: Any, tables: str, name: str, condition: str
) -> None:
    """The condition keeps the query away from it."""
    path = f"{tables}/{name}"
    found = list(client.select_rows(f"* from [{path}] where {condition}"))
    client.mount_table(path, sync=True)
    whole = list(client.select_rows(f"* from [{path}] where {condition}"))
    client.unmount_table(path, **LAST)
    assert found == whole


@pytest.mark.parametrize(("name", "condition"), FAILING)
def test_tablet_inside_of_the_ranges_must_be_mounted(
    client: Any, tables: str, name: str, condition: str
) -> None:
    """It fails the query even if no row would have been found there."""
    with pytest.raises(YtResponseError, match='while it is in "unmounted" state') as caught:
        list(client.select_rows(f"* from [{tables}/{name}] where {condition}"))
    assert caught.value.contains_code(Code.TABLET_NOT_MOUNTED)


def test_lookup_needs_the_tablets_of_its_keys(client: Any, tables: str) -> None:
    """Computed columns count for the key."""
    keys = [{"a": 4, "b": 0}, {"a": 0, "b": 1}]
    found = client.lookup_rows(f"{tables}/{SORTED}", keys)
    assert [row["v"] for row in found] == [40, 1]
    assert list(client.lookup_rows(f"{tables}/{HASHED}", [{"k": 1}])) == [{"h": 2, "k": 1, "v": 1}]
    for name, wanted in ((SORTED, {"a": 5, "b": 0}), (HASHED, {"k": 3})):
        with pytest.raises(YtResponseError) as caught:
            list(client.lookup_rows(f"{tables}/{name}", [wanted]))
        assert caught.value.contains_code(Code.TABLET_NOT_MOUNTED)
