"""Dynamic tables from creation to removal: schemas, tablets, mount states, alterations."""

from __future__ import annotations

import pytest
from yt.wrapper import YtResponseError
from yt.yson import YsonUint64

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "string"}
HASH = {**KEY, "name": "h"}
WIDE = {"name": "w", "type": "int64"}


def struct(*names):
    return {"type_name": "struct", "members": [{"name": n, "type": "int64"} for n in names]}


def create(client, path, schema=(KEY, VALUE), mount=True, **attributes):
    given = {"dynamic": True, "schema": list(schema), **attributes}
    client.create("table", path, attributes=given)
    if mount:
        client.mount_table(path, sync=True)
    return path


def states(client, path):
    return [tablet["state"] for tablet in client.get(f"{path}/@tablets")]


def test_new_table_is_unmounted_and_describes_itself(client, tmp):
    """Everything that the client library asks of a table is there."""
    path = create(client, f"{tmp}/t", mount=False)
    assert client.get(f"{path}/@dynamic")
    assert client.get(f"{path}/@tablet_state") == "unmounted"
    assert client.get(f"{path}/@sorted")
    assert client.get(f"{path}/@key_columns") == ["k"]
    assert client.get(f"{path}/@pivot_keys") == [[]]
    schema = client.get(f"{path}/@schema")
    assert schema.attributes == {"strict": True, "unique_keys": True}
    assert schema[0] == {
        "name": "k",
        "type": "int64",
        "type_v3": {"type_name": "optional", "item": "int64"},
        "required": False,
        "sort_order": "ascending",
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([KEY], "at least one non-key column"),
        ([VALUE, KEY], "Key columns must form a prefix"),
        ([VALUE, VALUE], "Duplicate column name"),
        ([{"name": "v"}], "Column type is not specified"),
        ([{"name": "v", "type": "int65"}], "no such column type"),
        ([{"name": "v", "type": "any", "required": True}], 'cannot be "required"'),
        ([{"name": "v", "type": "int64", "type_v3": "string"}], 'does not match "type"'),
        ([{"name": "", "type": "int64"}], "Column name cannot be empty"),
        ([{"name": "x" * 257, "type": "int64"}], "longer than maximum allowed"),
        ([{"name": "$mine", "type": "int64"}], "is not allowed here"),
        ([{"name": "$timestamp", "type": "int64"}], "Invalid type of column"),
        ([KEY, {"name": "$timestamp", "type": "uint64"}], "is not allowed here"),
        ([{**KEY, "type": "any"}, VALUE], "cannot have key column of type"),
        ([{**KEY, "aggregate": "sum"}, VALUE], 'Key column "k" cannot be aggregated'),
        ([{**VALUE, "aggregate": "median"}], 'Unknown aggregate function "median"'),
        ([KEY, {**VALUE, "aggregate": "avg"}], 'Unknown aggregate function "avg"'),
        ([KEY, {**VALUE, "aggregate": "sum"}], "Argument type mismatch in aggregate function"),
        ([KEY, {"name": "v", "type": "any", "aggregate": "max"}], "Argument type mismatch"),
        ([KEY, {"name": "v", "type": "int32", "aggregate": "sum"}], "forbidden to have logical"),
        ([{**KEY, "sort_order": "descending"}, VALUE], "Descending sort order"),
        ([HASH | {"expression": "nope(k)"}, KEY, VALUE], 'Undefined function "nope"'),
        ([HASH | {"expression": "k +"}, KEY, VALUE], "Error while parsing query: syntax error"),
        ([HASH | {"expression": "z"}, KEY, VALUE], 'Undefined reference "z"'),
        ([HASH | {"expression": "[$row_index]"}, KEY, VALUE], "Undefined reference"),
        ([HASH | {"expression": "uint64(k)"}, KEY, VALUE], 'declared type is "int64" but'),
        ([HASH | {"expression": "length(v)"}, KEY, VALUE], 'depends on a non-key column "v"'),
        ([HASH | {"expression": "h"}, KEY, VALUE], 'depends on computed column "h"'),
        ([KEY, {"name": "v", "type_v3": struct("a", "a")}], 'field name "a" is used twice'),
        ([KEY, {"name": "v", "type_v3": struct("")}], "Name of struct field #0 is empty"),
    ],
)
def test_schema_against_the_rules_is_refused(client, tmp, schema, message):
    """A table whose schema a real cluster would refuse cannot be created."""
    with pytest.raises(YtResponseError, match=message) as caught:
        create(client, f"{tmp}/t", schema)
    assert "New table schema is not valid" in str(caught.value)
    assert not client.exists(f"{tmp}/t")


def test_table_without_schema_is_refused(client, tmp):
    """Dynamic tables have no weak schemas."""
    with pytest.raises(YtResponseError, match='"schema" is mandatory'):
        client.create("table", f"{tmp}/t", attributes={"dynamic": True})


def test_columns_that_differ_in_case_stay_apart(client, tmp):
    """Names are case-sensitive and may be anything, quotes included."""
    names = ["a", "A", 'quo"te', "select", "sp ace", "имя"]
    path = create(client, f"{tmp}/t", [KEY, *({"name": name, "type": "int64"} for name in names)])
    row = {"k": 1, **{name: index for index, name in enumerate(names)}}
    client.insert_rows(path, [row])
    assert list(client.lookup_rows(path, [{"k": 1}])) == [row]


def test_states_follow_commands(client, tmp):
    """Mount, freeze, unfreeze and unmount move every tablet."""
    path = create(client, f"{tmp}/t", mount=False, pivot_keys=[[], [10]])
    client.mount_table(path, freeze=True, sync=True)
    assert states(client, path) == ["frozen", "frozen"]
    client.unfreeze_table(path, sync=True)
    assert states(client, path) == ["mounted", "mounted"]
    client.freeze_table(path, first_tablet_index=1, last_tablet_index=1, sync=True)
    assert states(client, path) == ["mounted", "frozen"]
    assert client.get(f"{path}/@tablet_state") == "mixed"
    client.unmount_table(path, sync=True)
    assert client.get(f"{path}/@tablet_state") == "unmounted"


def test_mounting_a_static_table_is_refused(client, tmp):
    """Only dynamic tables have tablets."""
    client.create("table", f"{tmp}/t")
    with pytest.raises(YtResponseError, match="Cannot mount a static table"):
        client.mount_table(f"{tmp}/t")


def test_freezing_an_unmounted_table_is_refused(client, tmp):
    """A transition that the state does not allow is an error, not a no-op."""
    path = create(client, f"{tmp}/t", mount=False)
    for call in (client.freeze_table, client.unfreeze_table):
        with pytest.raises(YtResponseError, match=r'Cannot (un)?freeze tablet .* in "unmounted"'):
            call(path)


def test_mounting_in_the_other_way_is_refused(client, tmp):
    """A mounted table does not become frozen, nor a frozen one mounted, by a mount."""
    path = create(client, f"{tmp}/t")
    with pytest.raises(YtResponseError, match=r'Cannot mount tablet .* in "mounted" state'):
        client.mount_table(path, freeze=True)
    client.freeze_table(path, sync=True)
    client.mount_table(path, freeze=True, sync=True)
    with pytest.raises(YtResponseError, match=r'Cannot mount tablet .* in "frozen" state'):
        client.mount_table(path)
    assert client.get(f"{path}/@tablet_state") == "frozen"


def test_rows_survive_unmount_and_mount(client, tmp):
    """Mount states are about access, not about data."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.unmount_table(path, sync=True)
    with pytest.raises(YtResponseError) as caught:
        list(client.lookup_rows(path, [{"k": 1}]))
    assert caught.value.contains_code(1702)
    client.mount_table(path, sync=True)
    assert list(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "x"}]


def test_frozen_table_is_read_but_not_written(client, tmp):
    """Frozen is read-only."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.freeze_table(path, sync=True)
    assert list(client.select_rows(f"* from [{path}]")) == [{"k": 1, "v": "x"}]
    with pytest.raises(YtResponseError) as caught:
        client.insert_rows(path, [{"k": 2, "v": "y"}])
    assert caught.value.contains_code(1702)
    assert "has no mounted tablets" in str(caught.value)


def test_writing_into_the_unmounted_part_names_the_tablet(client, tmp):
    """A mounted neighbour does not help a row of an unmounted tablet."""
    path = create(client, f"{tmp}/t", mount=False, pivot_keys=[[], [10]])
    client.mount_table(path, first_tablet_index=0, last_tablet_index=0)
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    with pytest.raises(YtResponseError) as caught:
        client.insert_rows(path, [{"k": 11, "v": "x"}])
    assert 'is in "unmounted" state' in str(caught.value)
    tablets = client.get(f"{path}/@tablets")
    assert (
        caught.value.find_matching_error(code=1702).attributes["tablet_id"]
        == (tablets[1]["tablet_id"])
    )


def test_reshard_by_pivot_keys_keeps_rows(client, tmp):
    """Tablets are bounds; the rows do not move."""
    path = create(client, f"{tmp}/t")
    rows = [{"k": key, "v": str(key)} for key in range(20)]
    client.insert_rows(path, rows)
    with pytest.raises(YtResponseError, match=r"since tablet .* is not unmounted"):
        client.reshard_table(path, [[], [5], [10]])
    client.unmount_table(path, sync=True)
    client.reshard_table(path, [[], [5], [10]])
    assert client.get(f"{path}/@tablet_count") == 3
    assert client.get(f"{path}/@pivot_keys") == [[], [5], [10]]
    client.mount_table(path, sync=True)
    assert list(client.lookup_rows(path, [{"k": key} for key in range(20)])) == rows


@pytest.mark.parametrize(
    ("pivots", "message"),
    [
        ([[1], [2]], "First pivot key must be empty"),
        ([[], [2], [2]], "strictly increasing"),
        ([[], ["x"]], "Invalid type"),
        ([[], [YsonUint64(1)]], "Invalid type"),
        ([[], [1, 2]], "prefix of key"),
    ],
)
def test_reshard_by_bad_pivot_keys_is_refused(client, tmp, pivots, message):
    """Pivot keys are keys of the table in order, and of its types."""
    path = create(client, f"{tmp}/t", mount=False)
    with pytest.raises(YtResponseError, match=message):
        client.reshard_table(path, pivots)
    assert client.get(f"{path}/@tablet_count") == 1


def test_sorted_table_is_cut_by_its_rows(client, tmp):
    """Without pivot keys tablets get as many rows each; a part of a table can be cut so too."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": k, "v": "x"} for k in range(12)])
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=3)
    assert client.get(f"{path}/@pivot_keys") == [[], [4], [8]]
    last = {"first_tablet_index": 2, "last_tablet_index": 2}
    client.reshard_table(path, tablet_count=2, enable_slicing=True, **last)
    assert client.get(f"{path}/@pivot_keys") == [[], [4], [8], [9]]
    with pytest.raises(YtResponseError, match="too few rows"):
        client.reshard_table(path, tablet_count=30, enable_slicing=True)
    client.mount_table(path, sync=True)
    assert len(list(client.select_rows(f"* from [{path}]"))) == 12


def test_queue_grows_by_empty_tablets_at_the_end(client, tmp):
    """Existing indexes keep their rows when an ordered table gets more tablets."""
    path = create(client, f"{tmp}/q", [VALUE], tablet_count=2)
    client.insert_rows(path, [{"v": "x", "$tablet_index": 1}])
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=4)
    client.mount_table(path, sync=True)
    infos = client.get_tablet_infos(path, [0, 1, 2, 3])["tablets"]
    assert [info["total_row_count"] for info in infos] == [0, 1, 0, 0]


def _queue_of_three(client, path):
    create(client, path, [VALUE], tablet_count=3)
    client.insert_rows(
        path,
        [{"v": f"{number}", "$tablet_index": index} for index in range(3) for number in range(2)],
    )
    return path


def _rows(client, path):
    found = client.select_rows(f"[$tablet_index] as t, [$row_index] as r, v from [{path}]")
    return [(row["t"], row["r"], row["v"]) for row in found]


def test_untrimmed_tablets_of_a_queue_join_the_last_one_that_stays(client, tmp):
    """A queue that shrinks keeps its rows: they go to the end of the last remaining tablet."""
    path = _queue_of_three(client, f"{tmp}/q")
    client.trim_rows(path, 0, 1)
    before = [tablet["tablet_id"] for tablet in client.get(f"{path}/@tablets")]
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=1, first_tablet_index=1, last_tablet_index=2)
    tablets = client.get(f"{path}/@tablets")
    assert [tablet["flushed_row_count"] for tablet in tablets] == [2, 4]
    assert [tablet["trimmed_row_count"] for tablet in tablets] == [1, 0]
    assert tablets[0]["tablet_id"] == before[0]
    assert tablets[1]["tablet_id"] not in before
    client.mount_table(path, sync=True)
    assert _rows(client, path) == [
        (0, 1, "1"),
        *((1, index, value) for index, value in enumerate("0101")),
    ]
    client.insert_rows(path, [{"v": "new", "$tablet_index": 1}])
    assert _rows(client, path)[-1] == (1, 4, "new")


def test_queue_does_not_shrink_over_a_chunk_that_is_trimmed_in_part(client, tmp):
    """Rows of such a chunk have no numbers in another tablet; whole trimmed chunks are gone."""
    path = _queue_of_three(client, f"{tmp}/q")
    client.unmount_table(path, sync=True)
    client.mount_table(path, sync=True)
    client.trim_rows(path, 2, 1)
    client.unmount_table(path, sync=True)
    with pytest.raises(YtResponseError, match=r"Some chunks of tablet .* are not fully trimmed"):
        client.reshard_table(path, tablet_count=2)
    client.mount_table(path, sync=True)
    client.trim_rows(path, 2, 2)
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=2)
    tablets = client.get(f"{path}/@tablets")
    assert [tablet["flushed_row_count"] for tablet in tablets] == [2, 2]


def test_queue_does_not_shrink_over_rows_that_were_trimmed_before_their_flush(client, tmp):
    """The unmount flushes trimmed rows too; the next mount drops the chunk."""
    path = _queue_of_three(client, f"{tmp}/q")
    client.trim_rows(path, 2, 2)
    client.unmount_table(path, sync=True)
    with pytest.raises(YtResponseError, match="not fully trimmed"):
        client.reshard_table(path, tablet_count=1)
    client.mount_table(path, sync=True)
    client.unmount_table(path, sync=True)
    client.reshard_table(path, tablet_count=1)
    client.mount_table(path, sync=True)
    assert [value for *_, value in _rows(client, path)] == list("0101")


def test_chunks_come_with_flushes(client, tmp):
    """A freeze or an unmount writes one chunk for each tablet with new rows; a copy shares them."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    assert client.get(f"{path}/@chunk_count") == 0
    client.freeze_table(path, sync=True)
    assert client.get(f"{path}/@chunk_count") == 1
    client.unfreeze_table(path, sync=True)
    client.unmount_table(path, sync=True)
    assert client.get(f"{path}/@chunk_count") == 1
    client.copy(path, f"{tmp}/copy")
    assert client.get(f"{tmp}/copy/@chunk_ids") == client.get(f"{path}/@chunk_ids")
    queue = _queue_of_three(client, f"{tmp}/q")
    assert [each["flushed_row_count"] for each in client.get(f"{queue}/@tablets")] == [0, 0, 0]
    client.unmount_table(queue, sync=True)
    assert client.get(f"{queue}/@chunk_count") == 3
    assert [each["flushed_row_count"] for each in client.get(f"{queue}/@tablets")] == [2, 2, 2]


@pytest.mark.only_over("http", "the C++ client keeps schemas for a while")
def test_alter_adds_columns_that_are_null_in_old_rows(client, tmp):
    """A schema grows by optional columns, keys included."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    second = {"name": "k2", "type": "string", "sort_order": "ascending"}
    schema = [KEY, second, VALUE, {"name": "w", "type": "double"}]
    with pytest.raises(YtResponseError) as caught:
        client.alter_table(path, schema=schema)
    assert caught.value.contains_code(1706)
    client.unmount_table(path, sync=True)
    client.alter_table(path, schema=schema)
    client.mount_table(path, sync=True)
    old = {"k": 1, "k2": None, "v": "x", "w": None}
    assert list(client.lookup_rows(path, [{"k": 1, "k2": None}])) == [old]
    new = {"k": 1, "k2": "a", "v": "y", "w": 1.5}
    client.insert_rows(path, [new])
    client.insert_rows(path, [{**old, "v": "z"}])
    assert list(client.select_rows(f"* from [{path}]")) == [{**old, "v": "z"}, new]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([KEY, {"name": "w", "type": "string"}], "Cannot remove column"),
        ([KEY, {"name": "v", "type": "int64"}], "Type mismatch"),
        ([KEY, {**VALUE, "required": True}], 'Optional column "v" cannot be changed to required'),
        ([KEY, VALUE, {"name": "w", "type": "int64", "required": True}], "new required column"),
        ([KEY, {**HASH, "expression": "k"}, VALUE], 'New computed column "h"'),
        ([{**KEY, "expression": "1"}, VALUE], 'Expression mismatch for column "k": old "<null>"'),
        ([KEY, {**VALUE, "sort_order": "ascending"}, WIDE], 'Sort order mismatch for column "v"'),
        ([VALUE], "from sorted to ordered"),
    ],
)
def test_alter_that_rows_would_not_survive_is_refused(client, tmp, schema, message):
    """A schema change may not contradict rows that are there."""
    path = create(client, f"{tmp}/t", mount=False)
    with pytest.raises(YtResponseError, match=message):
        client.alter_table(path, schema=schema)


def test_copy_of_an_unmounted_table_has_its_own_rows(client, tmp):
    """Source and copy go separate ways."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    with pytest.raises(YtResponseError) as caught:
        client.copy(path, f"{tmp}/copy")
    assert caught.value.contains_code(1706)
    client.unmount_table(path, sync=True)
    client.copy(path, f"{tmp}/copy")
    client.mount_table(f"{tmp}/copy", sync=True)
    client.insert_rows(f"{tmp}/copy", [{"k": 2, "v": "y"}])
    assert client.get(f"{tmp}/copy/@row_count") == 2
    assert client.get(f"{path}/@row_count") == 1


def test_removed_table_leaves_no_rows_to_its_successor(client, tmp):
    """A path can be used again."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.remove(path)
    create(client, path)
    assert list(client.select_rows(f"* from [{path}]")) == []


def test_moved_table_keeps_rows_and_serves_under_its_new_path(client, tmp):
    """The identity of a table is not its path."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.unmount_table(path, sync=True)
    client.move(path, f"{tmp}/moved")
    client.mount_table(f"{tmp}/moved", sync=True)
    assert list(client.lookup_rows(f"{tmp}/moved", [{"k": 1}])) == [{"k": 1, "v": "x"}]


@pytest.mark.parametrize("name", ["schema", "tablet_count", "dynamic", "row_count"])
def test_computed_attribute_cannot_be_set(client, tmp, name):
    """The shape of a table changes by commands, not by attributes."""
    path = create(client, f"{tmp}/t", mount=False)
    with pytest.raises(YtResponseError, match="cannot be set"):
        client.set(f"{path}/@{name}", 5)


FIXED_WHILE_MOUNTED = [
    ("atomicity", "none", "Cannot change table atomicity mode"),
    ("in_memory_mode", "compressed", "Cannot change table memory mode"),
    ("enable_dynamic_store_read", True, "Cannot change dynamic stores readability"),
    ("replication_factor", 2, "Cannot change storage parameters"),
    ("vital", False, "Cannot change storage parameters"),
    ("primary_medium", "default", "Cannot change storage parameters"),
    ("media", {"default": {"replication_factor": 2}}, "Cannot change storage parameters"),
]


@pytest.mark.parametrize(("name", "value", "message"), FIXED_WHILE_MOUNTED)
def test_setting_that_tablets_are_built_on_waits_for_unmounting(client, tmp, name, value, message):
    """A mounted tablet, or a frozen one, keeps what it was mounted with."""
    path = create(client, f"{tmp}/t")
    for _ in range(2):
        with pytest.raises(YtResponseError, match=f"{message} since not all tablets") as caught:
            client.set(f"{path}/@{name}", value)
        assert caught.value.contains_code(1706)
        client.freeze_table(path, sync=True)
    client.unmount_table(path, sync=True)
    client.set(f"{path}/@{name}", value)
    assert client.get(f"{path}/@{name}") == value
    transaction = client.start_transaction()
    with (
        client.Transaction(transaction_id=transaction, ping=False),
        pytest.raises(YtResponseError, match="cannot be performed in transaction"),
    ):
        client.set(f"{path}/@{name}", value)
    client.abort_transaction(transaction)


def test_removable_setting_is_not_removed_while_mounted(client, tmp):
    """Removal is a change like any other."""
    path = create(client, f"{tmp}/t", enable_dynamic_store_read=True)
    with pytest.raises(YtResponseError, match="dynamic stores readability"):
        client.remove(f"{path}/@enable_dynamic_store_read")
    client.unmount_table(path, sync=True)
    client.remove(f"{path}/@enable_dynamic_store_read")


def test_commit_ordering_belongs_to_unmounted_queues(client, tmp):
    """A sorted table has no such setting; a queue has it and keeps it while mounted."""
    path = create(client, f"{tmp}/t", mount=False)
    assert not client.exists(f"{path}/@commit_ordering")
    for change in (
        lambda: client.set(f"{path}/@commit_ordering", "strong"),
        lambda: create(client, f"{tmp}/s", mount=False, commit_ordering="strong"),
    ):
        with pytest.raises(YtResponseError, match='"commit_ordering" cannot be set'):
            change()
    queue = create(client, f"{tmp}/q", [VALUE], commit_ordering="strong")
    assert client.get(f"{queue}/@commit_ordering") == "strong"
    with pytest.raises(YtResponseError, match="commit ordering mode since not all tablets"):
        client.set(f"{queue}/@commit_ordering", "weak")
    client.unmount_table(queue, sync=True)
    client.set(f"{queue}/@commit_ordering", "weak")
    with pytest.raises(YtResponseError, match='Error parsing ECommitOrdering value "cool"'):
        client.set(f"{queue}/@commit_ordering", "cool")


def test_auto_trim_config_is_checked(client, tmp):
    """Durations are whole seconds."""
    path = create(client, f"{tmp}/q", [VALUE])
    client.set(f"{path}/@auto_trim_config", {"enable": True, "retained_rows": 5})
    with pytest.raises(YtResponseError, match="multiple of 1000"):
        client.set(f"{path}/@auto_trim_config", {"retained_lifetime_duration": 1500})


def test_tablet_count_of_a_sorted_table_cuts_integer_keys_evenly(client, tmp):
    """Even cuts need numbers to divide."""
    path = create(client, f"{tmp}/t", [{**KEY, "type": "uint64"}, VALUE], tablet_count=4)
    assert client.get(f"{path}/@pivot_keys") == [[], [1 << 62], [1 << 63], [3 << 62]]
    with pytest.raises(YtResponseError, match="Pivot keys must be provided"):
        create(client, f"{tmp}/s", [{**KEY, "type": "string"}, VALUE], tablet_count=4)


def test_consumer_and_producer_are_mounted_tables_with_fixed_schemas(client, tmp):
    """`create queue_consumer` and `create queue_producer` give tables that are ready for use."""
    client.create("queue_consumer", f"{tmp}/c")
    client.create("queue_producer", f"{tmp}/p")
    for path, flag, columns in (
        (f"{tmp}/c", "treat_as_queue_consumer", ["queue_cluster", "queue_path", "partition_index"]),
        (f"{tmp}/p", "treat_as_queue_producer", ["queue_cluster", "queue_path", "session_id"]),
    ):
        assert client.get(f"{path}/@type") == "table"
        assert client.get(f"{path}/@{flag}")
        assert client.get(f"{path}/@tablet_state") == "mounted"
        assert client.get(f"{path}/@key_columns") == columns


@pytest.mark.only_over("http", "the C++ driver does not know the parameter")
def test_new_tablets_of_a_queue_begin_at_a_row_of_choice(client, tmp):
    """At creation as well as when a queue grows, one number for each new tablet."""
    counts = {"trimmed_row_counts": [10, 20], "tablet_count": 2}
    path = create(client, f"{tmp}/q", [VALUE], mount=False, **counts)
    trimmed = lambda: [item["trimmed_row_count"] for item in client.get(f"{path}/@tablets")]  # noqa: E731
    assert trimmed() == [10, 20]
    last = {"first_tablet_index": 1, "last_tablet_index": 1, "tablet_count": 3}
    client.reshard_table(path, trimmed_row_counts=[30, 40], sync=True, **last)
    assert trimmed() == [10, 20, 30, 40]
    for counts, message in (([1], "has invalid size: expected 0 or 2"), ([1, -1], "nonnegative")):
        with pytest.raises(YtResponseError, match=message):
            client.reshard_table(path, tablet_count=6, trimmed_row_counts=counts, sync=True)


@pytest.mark.parametrize("name", ["trimmed_row_counts", "cumulative_data_weights"])
@pytest.mark.only_over("http", "the C++ driver does not know the parameters")
def test_new_tablets_begin_at_a_row_where_they_are_counted(client, tmp, name):
    """Only an ordered table has such numbers, and only beside a number of tablets."""
    for attributes, message in (
        ({name: [1]}, f'"{name}" cannot be specified without "tablet_count"'),
        ({name: [1, 2], "tablet_count": 4}, "has invalid size: expected 0 or 4"),
        ({name: [-1], "tablet_count": 1}, "must be nonnegative"),
        ({name: [1], "tablet_count": 1, "schema": [KEY, VALUE]}, "only be set for ordered tables"),
    ):
        with pytest.raises(YtResponseError, match=message):
            create(client, f"{tmp}/q", **{"schema": [VALUE], "mount": False, **attributes})
    path = create(client, f"{tmp}/t", mount=False)
    with pytest.raises(YtResponseError, match=f'Cannot reshard sorted table with "{name}"'):
        client.reshard_table(path, [[], [1]], **{name: [1]})


@pytest.mark.parametrize(
    ("count", "message"),
    [
        pytest.param(
            0,
            "must be positive",
            marks=pytest.mark.only_over("http", "the C++ driver has a text of its own"),
        ),
        (10_001, "limit of 10000"),
    ],
)
def test_number_of_tablets_is_bounded(client, tmp, count, message):
    """At creation and when a table is cut anew."""
    path = create(client, f"{tmp}/q", [VALUE], mount=False)
    with pytest.raises(YtResponseError, match=f"Tablet count .*{message}"):
        create(client, f"{tmp}/r", [VALUE], mount=False, tablet_count=count)
    with pytest.raises(YtResponseError, match=f"Tablet count .*{message}"):
        client.reshard_table(path, tablet_count=count)


def test_part_of_a_setting_with_a_default_is_set(client, tmp):
    """What tools set without looking: one switch of the balancer; other tables keep the default."""
    path, other = (create(client, f"{tmp}/{name}", mount=False) for name in "ab")
    client.set(f"{path}/@tablet_balancer_config/enable_auto_reshard", False)
    switches = {"enable_auto_reshard": False, "enable_auto_tablet_move": True}
    assert client.get(f"{path}/@tablet_balancer_config") == switches
    assert client.get(f"{other}/@tablet_balancer_config/enable_auto_reshard")
    assert client.get(f"{path}/@user_attribute_keys") == []


def test_flush_makes_a_chunk_of_what_was_written(client, tmp):
    """Freezing or unmounting flushes; what was not written since the last time makes none."""
    path = f"{tmp}/t"
    schema = [KEY, VALUE]
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.reshard_table(path, [[], [5]], sync=True)

    def counts():
        tablets = client.get(f"{path}/@tablets")
        per_tablet = [tablet["statistics"]["chunk_count"] for tablet in tablets]
        assert len(client.get(f"{path}/@chunk_ids")) == client.get(f"{path}/@chunk_count")
        return client.get(f"{path}/@chunk_count"), per_tablet

    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": 1, "v": "a"}])
    assert counts() == (0, [0, 0])
    client.freeze_table(path, sync=True)
    assert counts() == (1, [1, 0])
    client.unmount_table(path, sync=True)
    client.mount_table(path, sync=True)
    client.unmount_table(path, sync=True)
    assert counts() == (1, [1, 0])
    client.mount_table(path, sync=True)
    client.delete_rows(path, [{"k": 1}, {"k": 7}])
    client.unmount_table(path, sync=True)
    assert counts() == (3, [2, 1])
    client.copy(path, f"{tmp}/copy")
    client.reshard_table(path, [[]], sync=True)
    client.mount_table(path, sync=True)
    client.unmount_table(path, sync=True)
    path = f"{tmp}/copy"
    assert counts() == (3, [2, 1])


def test_trimmed_chunk_of_an_ordered_table_disappears(client, tmp):
    """A chunk stays until its last row is trimmed."""
    path = f"{tmp}/q"
    client.create("table", path, attributes={"dynamic": True, "schema": [VALUE]})
    client.mount_table(path, sync=True)
    for _ in range(2):
        client.insert_rows(path, [{"v": "a"}] * 2)
        client.freeze_table(path, sync=True)
        client.unfreeze_table(path, sync=True)
    for trimmed, chunks in ((1, 2), (2, 1), (3, 1), (4, 0)):
        client.trim_rows(path, 0, trimmed)
        assert client.get(f"{path}/@chunk_count") == chunks


def test_statistics_and_mount_config_are_there_from_the_start(client, tmp):
    """Tools read sizes from three places, and set one mount option without knowing of others."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "a"}])
    client.freeze_table(path, sync=True)
    statistics = client.get(f"{path}/@tablet_statistics")
    assert statistics["tablet_count_per_memory_mode"]["none"] == statistics["tablet_count"] == 1
    assert statistics["overlapping_store_count"] == statistics["store_count"] == 1
    for name in ("chunk_count", "uncompressed_data_size", "compressed_data_size"):
        assert statistics[name] == client.get(f"{path}/@{name}")
    usage = client.get(f"{path}/@resource_usage")
    for name in ("chunk_count", "tablet_count", "disk_space", "disk_space_per_medium"):
        assert statistics[name] == usage[name]
    assert client.get(f"{path}/@mount_config") == {}
    client.set(f"{path}/@mount_config/enable_lookup_hash_table", True)
    assert client.get(f"{path}/@mount_config") == {"enable_lookup_hash_table": True}


def test_tablet_is_in_a_cell_that_exists(client, tmp):
    """The cell can be looked up by path and by id."""
    path = f"{tmp}/q"
    client.create("table", path, attributes={"dynamic": True, "schema": [VALUE]})
    assert "cell_id" not in client.get(f"{path}/@tablets/0")
    client.mount_table(path, sync=True)
    cell = client.get(f"{path}/@tablets/0/cell_id")
    assert cell in client.list("//sys/tablet_cells")
    assert client.get(f"//sys/tablet_cells/{cell}/@health") == "good"
    assert client.get(f"#{cell}/@type") == "tablet_cell"


def test_ordered_table_has_no_pivot_keys(client, raw, tmp):
    """Its tablets differ by their index only."""
    path = f"{tmp}/q"
    client.create("table", path, attributes={"dynamic": True, "schema": [VALUE]})
    answer = raw.command("GET", "get_table_pivot_keys", {"path": path})
    assert answer.error["message"] == f"Table {path} is not sorted"


def test_tablet_is_looked_up_by_its_id(client, tmp):
    """It names its table, also after the table has moved; a tablet that is gone has no object."""
    path = create(client, f"{tmp}/t", mount=False)
    (tablet,) = client.get(f"{path}/@tablets")
    name = f"#{tablet['tablet_id']}"
    assert client.get(f"{name}/@type") == "tablet"
    assert client.get(f"{name}/@table_id") == client.get(f"{path}/@id")
    client.move(path, f"{tmp}/moved")
    assert client.get(f"{name}/@table_path") == client.get(f"{name}/@owner_path") == f"{tmp}/moved"
    assert client.get(f"{name}/@state") == "unmounted"
    client.reshard_table(f"{tmp}/moved", [[]], sync=True)
    assert not client.exists(name)


def test_mounted_table_does_not_move(client, tmp):
    """Neither by itself nor inside of a folder; nothing of the folder moves then."""
    client.create("map_node", f"{tmp}/folder")
    path = create(client, f"{tmp}/folder/t")
    for freeze in (False, True):
        for source in (path, f"{tmp}/folder"):
            with pytest.raises(YtResponseError, match="Cannot move dynamic table since") as caught:
                client.move(source, f"{tmp}/moved")
            assert caught.value.contains_code(1706)
        if not freeze:
            client.freeze_table(path, sync=True)
    client.unmount_table(path, sync=True)
    client.move(f"{tmp}/folder", f"{tmp}/moved")
    assert client.get(f"{tmp}/moved/t/@tablet_state") == "unmounted"


@pytest.mark.parametrize("action", ["mount", "unmount", "freeze", "unfreeze", "reshard", "alter"])
def test_tablets_of_a_locked_table_stay_as_they_are(client, tmp, action):
    """Changes of tablets and schemas need the table for themselves."""
    path = create(client, f"{tmp}/t", mount=action in {"unmount", "freeze"})
    arguments = {"reshard": ([[], [1]],), "alter": ([KEY, VALUE],)}
    transaction = client.start_transaction()
    with client.Transaction(transaction_id=transaction, ping=False):
        client.lock(path, mode="exclusive")
    with pytest.raises(YtResponseError) as caught:
        getattr(client, f"{action}_table")(path, *arguments.get(action, ()))
    assert caught.value.contains_code(402)
    client.abort_transaction(transaction)


def test_table_counts_its_tablets_by_state(client, tmp):
    """Monitoring asks for these; every state is there."""
    path = create(client, f"{tmp}/t", mount=False, pivot_keys=[[], [0], [1]])
    client.mount_table(path, first_tablet_index=1, last_tablet_index=1, freeze=True, sync=True)
    client.mount_table(path, first_tablet_index=2, last_tablet_index=2, sync=True)
    counts = client.get(f"{path}/@tablet_count_by_state")
    assert {name: count for name, count in counts.items() if count} == {
        "unmounted": 1,
        "frozen": 1,
        "mounted": 1,
    }
    assert counts["mounting"] == 0


def test_sorted_table_shows_its_timestamps(client, tmp):
    """What is not flushed is newer than what is kept."""
    path = create(client, f"{tmp}/t")
    assert client.get(f"{path}/@retained_timestamp") == 1
    before = client.get(f"{path}/@unflushed_timestamp")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    assert client.get(f"{path}/@unflushed_timestamp") > before > 1
    assert client.get(f"{path}/@last_commit_timestamp") >= before
    assert client.get(f"{path}/@unmerged_row_count") == 1
    assert client.get(f"{path}/@preload_state") == "complete"


def test_last_pivot_key_stays_before_the_next_tablet(client, tmp):
    """Cutting a range again may not reach over its end."""
    path = create(client, f"{tmp}/t", mount=False, pivot_keys=[[], [100], [200]])
    with pytest.raises(YtResponseError, match="Last pivot key must be strictly less"):
        client.reshard_table(path, [[100], [200]], first_tablet_index=1, last_tablet_index=1)


def test_pivot_keys_of_unsigned_columns_are_unsigned(client, tmp):
    """A number without a sign of its type is an int64; keys that are there already fit."""
    path = create(client, f"{tmp}/t", [{**KEY, "type": "uint64"}, VALUE], mount=False)
    with pytest.raises(YtResponseError, match="Invalid type"):
        client.reshard_table(path, [[], [100]])
    client.reshard_table(path, [[], [YsonUint64(100)], [YsonUint64(200)]])
    first, last = {"first_tablet_index": 1, "last_tablet_index": 1}, YsonUint64(150)
    client.reshard_table(path, [[YsonUint64(100)], [last]], **first)
    assert client.get(f"{path}/@pivot_keys") == [[], [100], [150], [200]]


def test_narrow_integer_keys_are_cut_evenly_too(client, tmp):
    """The bounds of the type are cut, rounded down."""
    path = create(client, f"{tmp}/t", [{**KEY, "type": "int16"}, VALUE], mount=False)
    client.reshard_table(path, tablet_count=5, uniform=True)
    assert client.get(f"{path}/@pivot_keys") == [[], [-19661], [-6554], [6553], [19660]]
