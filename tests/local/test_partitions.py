"""partition_tables: parts that hold every row once, of the size that was asked for."""

from __future__ import annotations

import pytest
import yt.wrapper as yt
from yt import yson

SCHEMA = [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}]
SORTED = [{**SCHEMA[0], "sort_order": "ascending"}, SCHEMA[1]]


@pytest.fixture(params=["static", "static sorted", "ordered", "sorted"])
def table(request, client, tmp):
    """Return a table of six chunks of ten rows, and its rows."""
    path = f"{tmp}/t"
    dynamic = request.param in ("ordered", "sorted")
    schema = SORTED if "sorted" in request.param else SCHEMA
    client.create("table", path, attributes={"schema": schema, "dynamic": dynamic})
    for chunk in range(6):
        rows = [{"k": chunk * 10 + number, "v": "x" * 100} for number in range(10)]
        if dynamic:
            client.mount_table(path, sync=True)
            client.insert_rows(path, rows)
            client.unmount_table(path, sync=True)
        else:
            client.write_table(f"<append=%true>{path}", rows)
    return path, list(client.read_table(path))


def _parts(raw, paths, weight, **parameters):
    given = {"paths": paths, "data_weight_per_partition": weight, **parameters}
    answer = raw.command("GET", "partition_tables", given)
    assert answer.status == 200, answer.error
    return yson.json_to_yson(answer.json())["partitions"]


def _read(client, part):
    return [row for path in part["table_ranges"] for row in client.read_table(path)]


@pytest.mark.parametrize(("share", "count"), [(3, 3), (1, 1), (12, 12)])
def test_parts_hold_every_row_once(raw, client, table, share, count):
    """Cut where chunks end, and inside of chunks where a part may weigh less."""
    path, rows = table
    weight = client.get(f"{path}/@data_weight")
    parts = _parts(raw, [path], -(-weight // share))
    held = [_read(client, part) for part in parts]
    assert [row for part in held for row in part] == rows
    assert abs(len(parts) - count) <= share // 10
    counted = [part["aggregate_statistics"]["row_count"] for part in parts]
    assert counted == [len(part) for part in held]


def test_parts_hold_what_the_paths_choose(raw, client, tmp):
    """Ranges and columns stay, tables follow one another, and other attributes come back."""
    for name in ("a", "b"):
        client.create("table", f"{tmp}/{name}", attributes={"schema": SORTED})
        client.write_table(f"{tmp}/{name}", [{"k": k, "v": "x" * 100} for k in range(10)])
    paths = [f"<mine=1>{tmp}/a{{k}}[#2:#4]", f"{tmp}/b[5:]"]
    (part,) = _parts(raw, paths, 10**6)
    assert [len(row) for row in _read(client, part)] == [1] * 2 + [2] * 5
    assert part["table_ranges"][0].attributes == {
        "mine": 1,
        "columns": ["k"],
        "ranges": [{"lower_limit": {"row_index": 2}, "upper_limit": {"row_index": 4}}],
    }


def test_parts_are_no_more_than_allowed(raw, client, tmp):
    """They weigh more then, unless the caller forbids it."""
    for _ in range(4):
        client.write_table(f"<append=%true>{tmp}/t", [{"v": "x" * 100}])
    assert len(_parts(raw, [f"{tmp}/t"], 1, max_partition_count=2)) == 2
    strict = {"max_partition_count": 2, "adjust_data_weight_per_partition": False}
    given = {"paths": [f"{tmp}/t"], "data_weight_per_partition": 100, **strict}
    answer = raw.command("GET", "partition_tables", given)
    assert "Maximum partition count exceeded" in answer.error["message"]


@pytest.mark.parametrize(
    ("bound", "rows"), [([">", [1]], [2, 3]), ([">=", [1]], [1, 2, 3]), (["=", [1]], None)], ids=str
)
def test_bound_of_a_key_says_how_it_compares(client, tmp, bound, rows):
    """Unlike `key`, which is always the first row that is wanted."""
    client.create("table", f"{tmp}/t", attributes={"schema": SORTED})
    client.write_table(f"{tmp}/t", [{"k": k} for k in range(4)])
    path = yson.to_yson_type(
        f"{tmp}/t", attributes={"ranges": [{"lower_limit": {"key_bound": bound}}]}
    )
    if rows is None:
        with pytest.raises(yt.YtResponseError):
            client.read_table(path)
    else:
        assert [row["k"] for row in client.read_table(path)] == rows
