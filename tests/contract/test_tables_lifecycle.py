"""Dynamic tables from creation to removal: schemas, tablets, mount states, alterations."""

import pytest
from yt.wrapper import YtResponseError
from yt.yson import YsonUint64

from tests.contract.tables import KEY, VALUE, columns, create, key_columns, refused

HASH = {**KEY, "name": "h"}
WIDE = {"name": "w", "type": "int64"}


def struct(*names):
    return {"type_name": "struct", "members": [{"name": n, "type": "int64"} for n in names]}


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


def test_frozen_table_is_read_but_not_written_and_an_unmounted_one_neither(client, tmp):
    """Mount states are about access, not about data."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    client.freeze_table(path, sync=True)
    assert list(client.select_rows(f"* from [{path}]")) == [{"k": 1, "v": "x"}]
    with refused(1702) as caught:
        client.insert_rows(path, [{"k": 2, "v": "y"}])
    assert "has no mounted tablets" in str(caught.value)
    client.unmount_table(path, sync=True)
    with refused(1702):
        list(client.lookup_rows(path, [{"k": 1}]))
    client.mount_table(path, sync=True)
    assert list(client.lookup_rows(path, [{"k": 1}])) == [{"k": 1, "v": "x"}]


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


@pytest.mark.only_over("http", "the C++ client keeps schemas for a while")
def test_alter_adds_columns_that_are_null_in_old_rows(client, tmp):
    """A schema grows by optional columns, keys included."""
    path = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": 1, "v": "x"}])
    second = {"name": "k2", "type": "string", "sort_order": "ascending"}
    schema = [KEY, second, VALUE, {"name": "w", "type": "double"}]
    with refused(1706):
        client.alter_table(path, schema=schema)
    client.unmount_table(path, sync=True)
    client.alter_table(path, schema=schema)
    client.mount_table(path, sync=True)
    old = {"k": 1, "k2": None, "v": "x", "w": None}
    assert list(client.lookup_rows(path, [{"k": 1, "k2": None}])) == [old]
    new = {"k": 1, "k2": "a", "v": "y", "w": 1.5}
    client.insert_rows(path, [new])
    client.insert_rows(path, [{**old, "v": "z"}])
    assert list(client.select_rows(f"* from [{path}]")) == [{**old, "v": "z"}, new]


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


def test_tablet_count_of_a_sorted_table_cuts_integer_keys_evenly(client, tmp):
    """Even cuts need numbers to divide."""
    path = create(client, f"{tmp}/t", [{**KEY, "type": "uint64"}, VALUE], tablet_count=4)
    assert client.get(f"{path}/@pivot_keys") == [[], [1 << 62], [1 << 63], [3 << 62]]
    with pytest.raises(YtResponseError, match="Pivot keys must be provided"):
        create(client, f"{tmp}/s", [{**KEY, "type": "string"}, VALUE], tablet_count=4)


PLACE = {"queue_cluster": "string!", "queue_path": "string!"}
OF_SESSIONS = {
    "sequence_number": "int64!",
    "epoch": "int64!",
    "user_meta": "any",
    "system_meta": "any",
}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (
            "consumer",
            [
                *key_columns(**PLACE, partition_index="uint64!"),
                *columns(offset="uint64!", meta="any"),
            ],
        ),
        ("producer", [*key_columns(**PLACE, session_id="string!"), *columns(**OF_SESSIONS)]),
    ],
)
def test_consumer_and_producer_are_mounted_tables_with_fixed_schemas(client, tmp, kind, wanted):
    """`create queue_consumer` and `create queue_producer` give tables that are ready for use."""
    client.create(f"queue_{kind}", f"{tmp}/x")
    shown = ["type", "dynamic", f"treat_as_queue_{kind}", "tablet_state"]
    assert [client.get(f"{tmp}/x/@{name}") for name in shown] == ["table", True, True, "mounted"]
    schema = client.get(f"{tmp}/x/@schema")
    assert schema.attributes == {"strict": True, "unique_keys": True}
    names = ("name", "type", "required", "sort_order")
    assert [{name: one[name] for name in names if name in one} for one in schema] == wanted


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


def test_pivot_keys_of_unsigned_columns_are_unsigned(client, tmp):
    """A number without a sign of its type is an int64; keys that are there already fit."""
    path = create(client, f"{tmp}/t", [{**KEY, "type": "uint64"}, VALUE], mount=False)
    with pytest.raises(YtResponseError, match="Invalid type"):
        client.reshard_table(path, [[], [100]])
    client.reshard_table(path, [[], [YsonUint64(100)], [YsonUint64(200)]])
    first, last = {"first_tablet_index": 1, "last_tablet_index": 1}, YsonUint64(150)
    client.reshard_table(path, [[YsonUint64(100)], [last]], **first)
    assert client.get(f"{path}/@pivot_keys") == [[], [100], [150], [200]]


CHANGES = {
    # Pivot keys are keys of the table in order, of its types, and not behind the next tablet.
    "reshard_table": [
        ({"pivot_keys": [[1], [2]]}, "First pivot key must be empty"),
        ({"pivot_keys": [[], [2], [2]]}, "strictly increasing"),
        ({"pivot_keys": [[], ["x"]]}, "Invalid type"),
        ({"pivot_keys": [[], [YsonUint64(1)]]}, "Invalid type"),
        ({"pivot_keys": [[], [1, 2]]}, "prefix of key"),
        (
            {"pivot_keys": [[], [200]], "first_tablet_index": 0, "last_tablet_index": 0},
            "Last pivot key must be strictly less",
        ),
    ],
    # A schema change may not contradict rows that are there.
    "alter_table": [
        ({"schema": [KEY, {"name": "w", "type": "string"}]}, "Cannot remove column"),
        ({"schema": [KEY, {"name": "v", "type": "int64"}]}, "Type mismatch"),
        (
            {"schema": [KEY, {**VALUE, "required": True}]},
            'Optional column "v" cannot be changed to required',
        ),
        ({"schema": [KEY, VALUE, {**WIDE, "required": True}]}, "new required column"),
        ({"schema": [KEY, {**HASH, "expression": "k"}, VALUE]}, 'New computed column "h"'),
        (
            {"schema": [{**KEY, "expression": "1"}, VALUE]},
            'Expression mismatch for column "k": old "<null>"',
        ),
        (
            {"schema": [KEY, {**VALUE, "sort_order": "ascending"}, WIDE]},
            'Sort order mismatch for column "v"',
        ),
        ({"schema": [VALUE]}, "from sorted to ordered"),
    ],
    # The shape of a table changes by commands, not by attributes; durations are whole seconds.
    "set": [
        *(
            ({"path": f"/@{name}", "value": 5}, "cannot be set")
            for name in ("schema", "tablet_count", "dynamic", "row_count")
        ),
        (
            {"path": "/@auto_trim_config", "value": {"retained_lifetime_duration": 1500}},
            "multiple of 1000",
        ),
    ],
}


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [(command, *case) for command, cases in CHANGES.items() for case in cases],
)
def test_change_against_the_rules_is_refused(client, tmp, command, given, message):
    """And the table stays as it was."""
    path = create(client, f"{tmp}/t", mount=False, pivot_keys=[[], [100]])
    shown = ["schema", "pivot_keys", "dynamic"]
    before = client.get(path, attributes=shown).attributes
    with pytest.raises(YtResponseError, match=message):
        getattr(client, command)(**{**given, "path": path + given.get("path", "")})
    assert client.get(path, attributes=shown).attributes == before
