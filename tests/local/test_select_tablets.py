"""Reads touch the tablets they need, and only a needed tablet that is not mounted fails them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.tables import columns, key_columns
from tests.local.ql_tables import Tables, opened
from yt_exactly_once.local.errors import Code, YtError

SORTED, ORDERED, HASHED = "//sorted", "//ordered", "//hashed"
LAST = {"first_tablet_index": 2, "last_tablet_index": 2}


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    """Tables with three tablets; the last one of each is not mounted."""
    pivots, value = {"pivot_keys": [[], [3], [5]]}, columns(v="int64")
    (computed,) = key_columns(h="int64")
    hashed = [{**computed, "expression": "k * 2"}, *key_columns(k="int64"), *value]
    rows = [{"a": a, "b": b, "v": 10 * a + b} for a in range(7) for b in range(2)]
    with opened() as found:
        found.create(SORTED, [*key_columns(a="int64", b="int64"), *value], rows, **pivots)
        found.create(ORDERED, value, [{"$tablet_index": i, "v": i} for i in range(3)])
        found.create(HASHED, hashed, [{"k": k, "v": k} for k in range(4)], **pivots)
        for path in (SORTED, ORDERED, HASHED):
            found.run("unmount_table", path=path, **LAST)
        yield found


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


@pytest.mark.parametrize(("path", "condition"), FINE)
def test_tablet_outside_of_the_ranges_may_be_unmounted(
    tables: Tables, path: str, condition: str
) -> None:
    """The condition keeps the query away from it."""
    query = f"* from [{path}] where {condition}"
    found = tables.select(query)
    tables.run("mount_table", path=path)
    assert found == tables.select(query)
    tables.run("unmount_table", path=path, **LAST)


@pytest.mark.parametrize(("path", "condition"), FAILING)
def test_tablet_inside_of_the_ranges_must_be_mounted(
    tables: Tables, path: str, condition: str
) -> None:
    """It fails the query even if no row would have been found there."""
    error = tables.refusal(f"* from [{path}] where {condition}")
    assert error.contains(Code.TABLET_NOT_MOUNTED)
    assert 'while it is in "unmounted" state' in str(error)


def test_lookup_needs_the_tablets_of_its_keys(tables: Tables) -> None:
    """Computed columns count for the key."""

    def look(path: str, *keys: dict[str, int]) -> list[dict[str, Any]]:
        return list(tables.run("lookup_rows", keys, path=path))

    assert [row["v"] for row in look(SORTED, {"a": 4, "b": 0}, {"a": 0, "b": 1})] == [40, 1]
    assert look(HASHED, {"k": 1}) == [{"h": 2, "k": 1, "v": 1}]
    for path, wanted in ((SORTED, {"a": 5, "b": 0}), (HASHED, {"k": 3})):
        with pytest.raises(YtError) as caught:
            look(path, wanted)
        assert caught.value.contains(Code.TABLET_NOT_MOUNTED)
