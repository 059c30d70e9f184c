"""A forced unmount loses what was not flushed; a freeze and an orderly unmount flush."""

from functools import partial

import pytest

from tests.contract import tables
from tests.contract.tables import KEY, VALUE, remount


@pytest.fixture
def create(client, tmp):
    return partial(tables.create, client, f"{tmp}/t")


def freeze(client, table):
    client.freeze_table(table, sync=True)
    client.unfreeze_table(table, sync=True)


def force(client, table, **tablets):
    client.unmount_table(table, force=True, sync=True, **tablets)
    client.mount_table(table, sync=True)


def rows_of(client, table):
    return [(row["k"], row["v"]) for row in client.select_rows(f"k, v from [{table}]")]


@pytest.mark.parametrize("flush", [freeze, remount], ids=["freeze", "unmount"])
def test_sorted_table_goes_back_to_what_was_flushed(client, create, flush):
    """New rows, new values and deletions after the flush are gone."""
    table = create([KEY, VALUE])
    client.insert_rows(table, [{"k": k, "v": "old"} for k in (1, 2, 3)])
    client.insert_rows(table, [{"k": 1, "v": "kept"}])
    flush(client, table)
    client.insert_rows(table, [{"k": 2, "v": "lost"}, {"k": 4, "v": "lost"}])
    client.insert_rows(table, [{"k": 2, "v": "lost again"}])
    client.delete_rows(table, [{"k": 3}])
    force(client, table)
    assert rows_of(client, table) == [(1, "kept"), (2, "old"), (3, "old")]
    client.insert_rows(table, [{"k": 3, "v": "new"}, {"k": 4, "v": "new"}])
    remount(client, table)
    force(client, table)
    assert rows_of(client, table) == [(1, "kept"), (2, "old"), (3, "new"), (4, "new")]


@pytest.mark.parametrize("flush", [freeze, remount], ids=["freeze", "unmount"])
def test_queue_goes_back_to_what_was_flushed(client, create, flush):
    """Row indexes of lost rows are given again, and trimmed rows stay trimmed."""
    schema = [VALUE, {"name": "$cumulative_data_weight", "type": "int64"}]
    table = create(schema)
    client.insert_rows(table, [{"v": "kept"}] * 3)
    client.trim_rows(table, 0, 1)
    flush(client, table)
    client.insert_rows(table, [{"v": "lost"}] * 2)
    assert client.get(f"{table}/@tablets/0/flushed_row_count") == 3
    force(client, table)
    (info,) = client.get_tablet_infos(table, [0])["tablets"]
    assert (info["total_row_count"], info["trimmed_row_count"]) == (3, 1)
    client.insert_rows(table, [{"v": "kept"}])
    found = list(
        client.select_rows(f"[$row_index] as i, v, [$cumulative_data_weight] as w from [{table}]")
    )
    assert [(row["i"], row["v"]) for row in found] == [(i, "kept") for i in (1, 2, 3)]
    assert found[2]["w"] - found[1]["w"] == found[1]["w"] - found[0]["w"]


@pytest.mark.parametrize("kind", ["sorted", "ordered"])
def test_other_tablets_keep_their_rows(client, create, kind):
    """Only the tablets that are unmounted by force lose rows."""
    if kind == "sorted":
        table = create([KEY, VALUE], pivot_keys=[[], [10], [20]])
        client.insert_rows(table, [{"k": k, "v": "x"} for k in (1, 10, 19, 20)])
        left = [1, 20]
    else:
        table = create([{"name": "k", "type": "int64"}, VALUE], tablet_count=3)
        client.insert_rows(table, [{"k": k, "v": "x", "$tablet_index": k} for k in range(3)])
        left = [0, 2]
    force(client, table, first_tablet_index=1, last_tablet_index=1)
    assert [k for k, _ in rows_of(client, table)] == left
