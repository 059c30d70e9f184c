"""How long the past of sorted tables is kept; in process, with a clock that jumps."""

import pytest
from yt.yson import to_yson_type

from tests.contract.tables import KEY
from tests.in_process import Commands
from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tablets.retention import KEPT_SECONDS

TABLE = "//tmp/t"
VALUE = {"name": "v", "type": "int64"}


@pytest.fixture
def run(tmp_path):
    made = Commands(tmp_path)
    made.table(TABLE, [KEY, VALUE])
    yield made
    made.close()


def write(run, key, value):
    run("insert_rows", [{"k": key, "v": value}], path=TABLE)


def stored(run, kind):
    node_id = run("get", path=f"{TABLE}/@id", return_only_value=True)
    with run.proxy.store.read() as connection:
        (count,) = connection.execute(f'SELECT count(*) FROM "{kind}_{node_id}"').fetchone()
    return count


def test_replaced_rows_and_tombstones_are_dropped_after_a_while(run, wait):
    """What no reader may ask for any more takes no space."""
    for value in range(3):
        write(run, 1, value)
    write(run, 2, 0)
    run("delete_rows", [{"k": 2}], path=TABLE)
    assert stored(run, "h") == 3
    assert stored(run, "s") == 2
    wait(KEPT_SECONDS + 100)
    write(run, 3, 0)
    assert stored(run, "h") == 0
    assert stored(run, "s") == 2


def test_moment_before_the_kept_past_cannot_be_read(run, wait):
    """An answer that might be wrong is an error."""
    write(run, 1, 0)
    moment = run("generate_timestamp")["timestamp"]
    write(run, 1, 1)
    read = {"path": TABLE, "timestamp": moment}
    assert run("lookup_rows", [{"k": 1}], **read) == [{"k": 1, "v": 0}]
    wait(KEPT_SECONDS + 100)
    write(run, 1, 2)
    with pytest.raises(YtError, match="less than the retained timestamp"):
        run("lookup_rows", [{"k": 1}], **read)


@pytest.mark.parametrize(
    ("age", "others_write", "fits"),
    [(KEPT_SECONDS - 2, False, True), (KEPT_SECONDS + 2, False, False), (KEPT_SECONDS + 100, True, False)],
)  # fmt: skip
def test_old_transaction_cannot_write(run, wait, age, others_write, fits):
    """Pings keep it alive, and yet it is too old to be checked for conflicts, with or without one.

    `TSortedChunkStore::CheckRowLocks` in `server/node/tablet_node/sorted_chunk_store.cpp`.
    """
    transaction_id = run("start_transaction", type="tablet", timeout=10**9)["transaction_id"]
    run("insert_rows", [{"k": 1, "v": 1}], path=TABLE, transaction_id=transaction_id)
    wait(age)
    if others_write:
        write(run, 2, 1)
    if fits:
        run("commit_transaction", transaction_id=transaction_id)
        return
    with pytest.raises(YtError) as caught:
        run("commit_transaction", transaction_id=transaction_id)
    assert caught.value.contains(1729)


def begun(run):
    return run("start_transaction", type="tablet", timeout=60_000)["transaction_id"]


@pytest.fixture
def halves(run):
    """Two tablets of one table, flushed every 5 s; what is flushed can be checked for 10 s more."""
    path = "//tmp/halves"
    given = {"dynamic_store_auto_flush_period": 5000, "backing_store_retention_time": 10_000}
    run.table(path, [KEY, VALUE], pivot_keys=[[], [10]], **given)
    return path


@pytest.mark.parametrize(
    ("age", "key", "fits"), [(4, 2, True), (13, 2, True), (17, 2, False), (17, 12, True)]
)
def test_conflicts_with_flushed_rows_are_known_for_a_while(run, wait, halves, age, key, fits):
    """Then who began before a write of the tablet cannot commit, whatever the key; in others they can.

    `TSortedChunkStore::CheckRowLocks` in `server/node/tablet_node/sorted_chunk_store.cpp`.
    """
    transaction_id = begun(run)
    run("insert_rows", [{"k": 1, "v": 1}], path=halves)
    wait(age)
    run("insert_rows", [{"k": key, "v": 2}], path=halves, transaction_id=transaction_id)
    if fits:
        run("commit_transaction", transaction_id=transaction_id)
        return
    with pytest.raises(YtError) as caught:
        run("commit_transaction", transaction_id=transaction_id)
    assert caught.value.contains(1729)
    late = begun(run)
    run("insert_rows", [{"k": key, "v": 2}], path=halves, transaction_id=late)
    run("commit_transaction", transaction_id=late)


def test_conflict_with_a_flushed_row_is_one(run, wait, halves):
    """While the flushed rows are kept in memory, the row decides and not its tablet."""
    transaction_id = begun(run)
    run("insert_rows", [{"k": 1, "v": 1}], path=halves)
    wait(6)
    run("insert_rows", [{"k": 1, "v": 2}], path=halves, transaction_id=transaction_id)
    with pytest.raises(YtError) as caught:
        run("commit_transaction", transaction_id=transaction_id)
    assert caught.value.contains(1700)


@pytest.mark.parametrize("schema", [[KEY, VALUE], [VALUE]], ids=["sorted", "queue"])
def test_periodic_flush_makes_chunks(run, wait, schema):
    """One for each period that had rows, and none where the period is none."""
    path, column = "//tmp/flushed", schema[0]
    period = "dynamic_store_auto_flush_period"
    run.table(path, schema, **{period: None})

    def chunks():
        return run("get", path=f"{path}/@chunk_count", return_only_value=True)

    run("insert_rows", [{column["name"]: 1}], path=path)
    wait(1000)
    assert chunks() == 0
    run("set", path=f"{path}/@{period}", value=5000)
    run("remount_table", path=path)
    assert chunks() == 0
    wait(6)
    assert chunks() == 1
    wait(60)
    assert chunks() == 1
    for key in (2, 3):
        run("insert_rows", [{column["name"]: key}], path=path)
        wait(6)
    assert chunks() == 3


def test_idle_cluster_does_not_age_new_transactions(run, wait):
    """The last commit may be long ago when a transaction starts; that is not its own age."""
    write(run, 1, 1)
    wait(KEPT_SECONDS * 2)
    transaction_id = run("start_transaction", type="tablet")["transaction_id"]
    write(run, 2, 2)
    run("insert_rows", [{"k": 3, "v": 3}], path=TABLE, transaction_id=transaction_id)
    run("commit_transaction", transaction_id=transaction_id)


def test_retention_timestamp_hides_rows_written_before_it(run):
    """A reader may ask for what is new since a moment, now or at a later one."""
    write(run, 1, 10)
    between = run("generate_timestamp")["timestamp"]
    write(run, 2, 20)
    after = run("generate_timestamp")["timestamp"]
    write(run, 2, 30)
    keys = [{"k": 1}, {"k": 2}]
    query = f"* from [{TABLE}] order by k limit 10"
    for moments, expected in (
        ({"retention_timestamp": between}, [(2, 30)]),
        ({"retention_timestamp": between, "timestamp": after}, [(2, 20)]),
        ({"timestamp": after}, [(1, 10), (2, 20)]),
        ({"retention_timestamp": 2**64 - 1}, []),
    ):
        for rows in (
            run("lookup_rows", keys, path=TABLE, **moments),
            run("select_rows", query=query, **moments),
        ):
            assert [(row["k"], row["v"]) for row in rows] == expected


def test_retention_timestamp_after_the_read_timestamp_is_refused(run):
    """No row could be both; equal ones are fine."""
    first, second = (run("generate_timestamp")["timestamp"] for _ in range(2))
    for command, parameters in (
        ("lookup_rows", {"path": TABLE}),
        ("select_rows", {"query": f"* from [{TABLE}]"}),
    ):
        wrong = {"timestamp": first, "retention_timestamp": second}
        with pytest.raises(YtError, match="Retention timestamp cannot be greater than read"):
            run(command, [{"k": 1}], **wrong, **parameters)
        equal = {"timestamp": second, "retention_timestamp": second}
        assert run(command, [{"k": 1}], **equal, **parameters) == []
    path = to_yson_type(TABLE, {"timestamp": first, "retention_timestamp": second})
    with pytest.raises(YtError, match="Retention timestamp cannot be greater than read"):
        list(run("read_table", path=path))


def test_each_value_has_the_timestamp_of_its_own_write(run):
    """Through reads of every kind, a copy, and new columns in front of the old ones."""
    path, copied = "//tmp/u", "//tmp/c"
    u, v = ({"name": name, "type": "int64"} for name in "uv")
    run.table(path, [KEY, u, v])
    run("insert_rows", [{"k": 1, "u": 1, "v": 1}], path=path)
    between = run("generate_timestamp")["timestamp"]
    run("insert_rows", [{"k": 1, "u": 2}, {"k": 2, "v": 3}], path=path, update=True)
    run("unmount_table", path=path)
    run("alter_table", path=path, schema=[KEY, {**KEY, "name": "j"}, {**u, "name": "w"}, v, u])
    run("copy", source_path=path, destination_path=copied)
    for table in (path, copied):
        run("mount_table", path=table)
        keys = {"path": table}
        rows = run("lookup_rows", [{"k": 1}, {"k": 2}], versioned=True, **keys)
        cells = [
            {name: [int(each) for each in row.get(name, ())] for name in "uvw"} for row in rows
        ]
        assert cells == [{"u": [2, 1], "v": [1], "w": []}, {"u": [], "v": [3], "w": []}]
        first, second = rows[0].attributes["write_timestamps"][::-1]
        one = {"min_data_ttl": 0, "max_data_ttl": 10**9, "max_data_versions": 1}
        (row,) = run("lookup_rows", [{"k": 1}], versioned=True, retention_config=one, **keys)
        assert [[int(each) for each in row[name]] for name in "uv"] == [[2], [1]]
        assert rows[0]["v"][0].attributes["timestamp"] == first < between < second
        query = f"k, u, v, w from [{table}] order by k limit 9"
        for found in (
            run("lookup_rows", [{"k": 1}, {"k": 2}], retention_timestamp=between, **keys),
            run("select_rows", query=query, retention_timestamp=between),
        ):
            assert [[row[name] for name in "uvw"] for row in found] == [
                [2, None, None],
                [None, 3, None],
            ]


def test_many_rows_go_into_columns_of_any_name(run):
    """Those of the image that holds the new rows for a moment are taken by nobody."""
    path = "//tmp/v"
    run.table(path, [KEY, *({"name": name, "type": "int64"} for name in ("v0", "v1"))])
    for value in (1, 2):
        run("insert_rows", [{"k": k, "v0": k, "v1": value} for k in range(600)], path=path)
    keys = [{"k": k} for k in range(600)]
    found = run("lookup_rows", keys, path=path)
    assert found == [{"k": k, "v0": k, "v1": 2} for k in range(600)]


@pytest.mark.parametrize("first", [0, 599, 600, -599])
def test_many_rows_are_kept_for_earlier_reads_when_they_are_replaced(run, first):
    """All of them, one at an edge, or none: they are looked for only where keys overlap."""
    path = "//tmp/v"
    run.table(path, [KEY, {"name": "v", "type": "int64"}])
    run("insert_rows", [{"k": k, "v": 1} for k in range(600)], path=path)
    before = run("generate_timestamp")["timestamp"]
    run("insert_rows", [{"k": k, "v": 2} for k in range(first, first + 600)], path=path)
    keys = [{"k": 0}, {"k": 599}]
    assert [row["v"] for row in run("lookup_rows", keys, path=path, timestamp=before)] == [1, 1]
    expected = [2 if first <= key["k"] < first + 600 else 1 for key in keys]
    assert [row["v"] for row in run("lookup_rows", keys, path=path)] == expected


@pytest.mark.parametrize(("keep", "expected"), [(True, [None]), (False, [])])
def test_missing_rows_are_kept_in_a_partial_result_on_demand(run, keep, expected):
    """Servers of 2023 refused the two options together."""
    options = {"keep_missing_rows": keep, "enable_partial_result": True}
    assert run("lookup_rows", [{"k": 404}], path=TABLE, **options) == expected


def keys(run, **when):
    return [row["k"] for row in run("select_rows", query=f"k from [{TABLE}]", **when)]


def settings(run, **options):
    for name, value in options.items():
        run("set", path=f"{TABLE}/@{name}", value=value)


def remounted(run):
    run("unmount_table", path=TABLE)
    run("mount_table", path=TABLE)


def test_rows_past_their_ttl_go_with_the_next_mount(run, wait):
    """Those that are younger stay, and so does all where one version is to be kept."""
    settings(run, max_data_ttl=60_000, min_data_ttl=60_000)
    write(run, 1, 1)
    wait(40)
    write(run, 2, 2)
    wait(40)
    remounted(run)
    assert keys(run) == [1, 2]
    settings(run, min_data_versions=0)
    remounted(run)
    assert keys(run) == [2]
    assert run("get", path=f"{TABLE}/@row_count")["value"] == 1


def test_rows_past_their_ttl_go_while_the_table_is_written(run, wait):
    """Nobody has to mount it again."""
    settings(run, max_data_ttl=60_000, min_data_ttl=0, min_data_versions=0)
    run("remount_table", path=TABLE)
    write(run, 1, 1)
    wait(120)
    write(run, 2, 2)
    assert keys(run) == [2]


def test_rows_may_have_a_ttl_of_their_own(run, wait):
    """In milliseconds after their last write. It may be longer than that of the table, which rows without one
    have; never shorter than `min_data_ttl`."""
    path, ttl = "//tmp/ending", {"name": "$ttl", "type": "uint64"}
    given = {"max_data_ttl": 60_000, "min_data_ttl": 10_000, "min_data_versions": 0}
    run.table(path, [KEY, VALUE, ttl], **given)
    lives = {1: None, 2: 1, 3: 30_000, 4: 100_000, 5: 2**63 + 5, 6: 2**63 - 1}
    run("insert_rows", [{"k": k, "v": 0, "$ttl": ttl} for k, ttl in lives.items()], path=path)

    def left(seconds):
        wait(seconds)
        run("unmount_table", path=path)
        run("mount_table", path=path)
        return [row["k"] for row in run("select_rows", query=f"k from [{path}]")]

    assert left(5) == [1, 2, 3, 4, 5, 6]
    assert left(10) == [1, 3, 4, 5, 6]
    run("insert_rows", [{"k": 3, "v": 1, "$ttl": 30_000}], path=path)
    assert left(20) == [1, 3, 4, 5, 6]
    assert left(40) == [4, 5, 6]
    assert left(60) == [5, 6]
    run("set", path=f"{path}/@max_data_versions", value=0)
    assert left(0) == []


def test_flush_that_merges_drops_what_has_expired(run):
    """The one that does not leaves the rows to a later mount."""
    settings(run, max_data_ttl=0, min_data_ttl=0, min_data_versions=0)
    for merges, left in ((False, [1]), (True, [])):
        settings(run, merge_rows_on_flush=merges)
        remounted(run)
        write(run, 1, 1)
        run("freeze_table", path=TABLE)
        assert keys(run) == left


def test_past_that_is_not_retained_cannot_be_read(run, wait):
    """A read of it fails, as the answer could be anything; a young transaction still commits."""
    write(run, 1, 1)
    moment = run("generate_timestamp")["timestamp"]
    write(run, 1, 2)
    settings(run, min_data_ttl=0)
    assert keys(run, timestamp=moment) == [1]
    transaction_id = run("start_transaction", type="tablet", timeout=60_000)["transaction_id"]
    wait(1)
    remounted(run)
    with pytest.raises(YtError, match="retained timestamp"):
        keys(run, timestamp=moment)
    run("insert_rows", [{"k": 5, "v": 5}], path=TABLE, transaction_id=transaction_id)
    run("commit_transaction", transaction_id=transaction_id)
    assert keys(run) == [1, 5]


def test_queue_loses_expired_chunks_and_keeps_the_rows_it_must(run):
    """Chunk by chunk from the oldest on, never more than `row_count_to_keep` leaves."""
    given = {"min_data_ttl": 0, "max_data_ttl": 0, "min_data_versions": 0, "row_count_to_keep": 2}
    queue = "//tmp/q"
    run.table(queue, [{"name": "v", "type": "int64"}], **given)
    for count in (2, 1, 1, 1):
        run("insert_rows", [{"v": 1}] * count, path=queue)
        run("freeze_table", path=queue)
        run("unfreeze_table", path=queue)
    assert run("get", path=f"{queue}/@tablets/0/trimmed_row_count")["value"] == 3


def test_full_tablet_of_a_queue_takes_rows_again_when_it_was_trimmed(run):
    """From the next mount on `max_ordered_tablet_data_weight` closes each tablet by itself."""
    queue = "//tmp/q"
    limit = {"max_ordered_tablet_data_weight": 1}
    run.table(queue, [{"name": "v", "type": "int64"}], tablet_count=2, mount_config=limit)
    row = {"$tablet_index": 0, "v": 1}
    run("insert_rows", [row, row], path=queue)
    with pytest.raises(YtError, match="committing") as caught:
        run("insert_rows", [row], path=queue)
    assert caught.value.contains(1725)
    run("insert_rows", [{"$tablet_index": 1, "v": 1}], path=queue)
    run("trim_rows", path=queue, tablet_index=0, trimmed_row_count=2)
    run("insert_rows", [row], path=queue)
    run("remove", path=f"{queue}/@mount_config/max_ordered_tablet_data_weight")
    run("remount_table", path=queue)
    run("insert_rows", [row], path=queue)


@pytest.mark.parametrize(
    ("option", "value"), [("min_data_ttl", "soon"), ("max_data_versions", -1)], ids=str
)
def test_ttl_that_is_none_is_refused(run, option, value):
    """By either of its two names."""
    for path in (option, f"mount_config/{option}"):
        with pytest.raises(YtError, match=option):
            settings(run, **{path: value})


def test_settings_that_contradict_each_other_are_not_mounted(run):
    """The refusal names both."""
    settings(run, min_compaction_store_count=10)
    with pytest.raises(YtError, match="max_compaction_store_count"):
        run("remount_table", path=TABLE)
