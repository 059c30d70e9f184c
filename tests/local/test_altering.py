"""alter_table: what a change of the schema or of the kind of a table leaves of its rows."""

import pytest
from yt import yson
from yt.wrapper import YtResponseError

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "utf8"}
ANY = {"name": "a", "type": "any"}


def _schema(*columns, **attributes):
    return yson.to_yson_type(list(columns), attributes=attributes)


@pytest.mark.parametrize("kind", ["sorted", "ordered"])
def test_static_table_becomes_dynamic_with_its_rows(client, tmp, kind):
    """The usual bulk load: write, sort, alter, mount. Its rows are as old as their chunks."""
    key = KEY if kind == "sorted" else {**KEY, "sort_order": None}
    key = {name: value for name, value in key.items() if value}
    schema = _schema(key, VALUE, ANY, unique_keys=kind == "sorted")
    path = f"{tmp}/t"
    client.create("table", path, attributes={"schema": schema, "optimize_for": "scan"})
    rows = [{"k": k, "v": "\u044b", "a": [k]} for k in range(5)]
    moments = []
    for part in (rows[:3], rows[3:]):
        moments.append(client.generate_timestamp())
        client.write_table(f"<append=%true>{path}", part)
    moments.append(client.generate_timestamp())
    client.alter_table(path, dynamic=True)
    shown = client.get(path, attributes=["tablet_state", "chunk_count", "dynamic", "optimize_for"])
    assert dict(shown.attributes) == {
        "tablet_state": "unmounted",
        "chunk_count": 2,
        "dynamic": True,
        "optimize_for": "scan",
    }
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": 4, "v": "new", "a": None}])
    found = [{name: row[name] for name in "kva"} for row in client.select_rows(f"* from [{path}]")]
    new = {"k": 4, "v": "new", "a": None}
    assert found == (rows[:4] if kind == "sorted" else rows) + [new]
    if kind == "sorted":
        read = [list(client.lookup_rows(path, [{"k": 2}, {"k": 4}], timestamp=m)) for m in moments]
        assert read == [[], [rows[2]], [rows[2], rows[4]]]


@pytest.mark.parametrize("count", [1, 600])
def test_column_is_null_to_a_transaction_that_is_older(client, sticky, tmp, count):
    """In look-ups of few keys and of many."""
    path = f"{tmp}/t"
    client.create("table", path, attributes={"dynamic": True, "schema": [KEY, VALUE]})
    client.mount_table(path, sync=True)
    client.insert_rows(path, [{"k": k, "v": "x"} for k in range(count)])
    older = sticky()
    with older.Transaction(type="tablet"):
        client.unmount_table(path, sync=True)
        client.alter_table(path, schema=[KEY, VALUE, {"name": "n", "type": "int64"}, ANY])
        client.mount_table(path, sync=True)
        found = list(older.lookup_rows(path, [{"k": k} for k in range(count)]))
    assert found == [{"k": k, "v": "x", "n": None, "a": None} for k in range(count)]


def test_chunk_that_is_trimmed_in_part_comes_back_whole(client, tmp):
    """When the table is made static; and a chunk that is there twice is not mounted."""
    path = f"{tmp}/t"
    client.create("table", path, attributes={"schema": _schema(VALUE, unique_keys=False)})
    for part in ("ab", "cd"):
        client.write_table(f"<append=%true>{path}", [{"v": each} for each in part])
    client.alter_table(path, dynamic=True)
    client.mount_table(path, sync=True)
    client.trim_rows(path, 0, 3)
    assert [row["v"] for row in client.read_table(path)] == ["d"]
    client.unmount_table(path, sync=True)
    client.alter_table(path, dynamic=False)
    assert [row["v"] for row in client.read_table(path)] == ["c", "d"]
    client.concatenate([path, path], path)
    client.alter_table(path, dynamic=True)
    with pytest.raises(YtResponseError, match="duplicate store"):
        client.mount_table(path)


def test_ordered_table_becomes_static_again(client, tmp):
    """Unmounted, with the chunks that are not trimmed whole; a sorted one has versions and cannot."""
    for name, columns in (("q", [VALUE]), ("s", [KEY, VALUE])):
        attributes = {"dynamic": True, "schema": columns}
        client.create("table", f"{tmp}/{name}", attributes=attributes)
    client.mount_table(f"{tmp}/q", sync=True)
    client.insert_rows(f"{tmp}/q", [{"v": str(number)} for number in range(4)])
    client.trim_rows(f"{tmp}/q", 0, 1)
    with pytest.raises(YtResponseError, match="not all tablets are unmounted"):
        client.alter_table(f"{tmp}/q", dynamic=False)
    client.unmount_table(f"{tmp}/q", sync=True)
    client.alter_table(f"{tmp}/q", dynamic=False)
    client.write_table(f"<append=%true>{tmp}/q", [{"v": "x"}])
    assert [row["v"] for row in client.read_table(f"{tmp}/q")] == ["0", "1", "2", "3", "x"]
    with pytest.raises(YtResponseError, match="table is sorted"):
        client.alter_table(f"{tmp}/s", dynamic=False)


@pytest.mark.parametrize(
    ("columns", "attributes", "message"),
    [
        ([KEY, VALUE], {}, '"unique_keys" cannot be "false"'),
        ([KEY, VALUE], {"unique_keys": True}, 'Changing "unique_keys" from "false" to "true"'),
        ([VALUE], {}, "from sorted to ordered"),
    ],
)
def test_static_table_that_cannot_be_dynamic_stays(client, tmp, columns, attributes, message):
    """A lookup finds one row by a key."""
    client.create("table", f"{tmp}/t", attributes={"schema": _schema(KEY, VALUE)})
    client.write_table(f"{tmp}/t", [{"k": 1}, {"k": 1}])
    with pytest.raises(YtResponseError, match=message):
        client.alter_table(f"{tmp}/t", schema=_schema(*columns, **attributes), dynamic=True)
    assert not client.get(f"{tmp}/t/@dynamic")


@pytest.mark.parametrize(
    "change",
    [{"name": "w", "stable_name": "v", "type": "utf8"}, {"stable_name": "v", "deleted": True}],
    ids=["renamed", "deleted"],
)
def test_renamed_and_deleted_columns_are_refused(client, tmp, change):
    """Their chunks would have to remember the old names."""
    client.create("table", f"{tmp}/t", attributes={"schema": [VALUE]})
    client.write_table(f"{tmp}/t", [{"v": "x"}])
    with pytest.raises(YtResponseError, match="not supported by the embedded cluster"):
        client.alter_table(f"{tmp}/t", schema=[change])
