"""Queues: appends, partitions, pulls, trims, and what the queue tells about itself."""

import pytest
from yt.wrapper import YtResponseError

from tests.contract import tables
from tests.contract.tables import SYSTEM, VALUE, refused


def create(client, path, schema=(VALUE,), **attributes):
    return tables.create(client, path, schema, **attributes)


def fill(client, path, count, tablet=0, first=0):
    rows = [{"v": f"{index}", "$tablet_index": tablet} for index in range(first, first + count)]
    client.insert_rows(path, rows)


def info(client, path, tablet=0):
    ((found),) = client.get_tablet_infos(path, [tablet])["tablets"]
    return found


def pull(client, path, offset, tablet=0, **limits):
    return list(client.pull_queue(path, offset, tablet, **limits))


def test_rows_without_an_index_share_one_tablet_per_request(client, tmp):
    """The tablet is chosen at random per request, and not per row."""
    queue = create(client, f"{tmp}/q", tablet_count=5)
    for _ in range(30):
        before = [info(client, queue, tablet)["total_row_count"] for tablet in range(5)]
        client.insert_rows(queue, [{"v": "x"}] * 3)
        after = [info(client, queue, tablet)["total_row_count"] for tablet in range(5)]
        grown = [new - old for old, new in zip(before, after, strict=True)]
        assert sorted(grown) == [0, 0, 0, 0, 3]
    assert sum(count > 0 for count in after) > 1


def test_rows_without_an_index_keep_their_order_among_those_with_one(client, tmp):
    """The tablet that is chosen may be one that other rows of the request name."""
    queue = create(client, f"{tmp}/q", tablet_count=2)
    first, found = 0, []
    for _ in range(20):
        client.insert_rows(queue, [{"v": "0", "$tablet_index": 0}, {"v": "1"}] * 2)
        found.append("".join(row["v"] for row in pull(client, queue, first, 0)))
        first += len(found[-1])
    assert set(found) == {"00", "0101"}


def test_random_tablet_is_a_mounted_one(client, tmp):
    """Unmounted tablets are left out of the choice."""
    queue = create(client, f"{tmp}/q", tablet_count=3)
    client.unmount_table(queue, first_tablet_index=0, last_tablet_index=1, sync=True)
    for _ in range(10):
        client.insert_rows(queue, [{"v": "x"}])
    assert info(client, queue, 2)["total_row_count"] == 10


def test_system_columns_are_filled_and_not_written(client, tmp):
    """The weight runs on over requests; a row weighs itself and both system columns."""
    queue = create(client, f"{tmp}/q", [VALUE, *SYSTEM])
    client.insert_rows(queue, [{"v": "foo"}, {"v": None}])
    client.insert_rows(queue, [{"v": "longer"}])
    rows = pull(client, queue, 0)
    assert [row["$cumulative_data_weight"] for row in rows] == [20, 37, 60]
    assert rows[0]["$timestamp"] == rows[1]["$timestamp"] < rows[2]["$timestamp"]
    for name in ("$timestamp", "$cumulative_data_weight", "$row_index"):
        with refused(307, match="No column"):
            client.insert_rows(queue, [{"v": "x", name: 1}])


def test_weight_limit_of_a_pull_lets_at_least_one_row_through(client, tmp):
    """Progress is always possible."""
    queue = create(client, f"{tmp}/q")
    client.insert_rows(queue, [{"v": "x" * 99}] * 5)
    assert len(pull(client, queue, 0, max_data_weight=1)) == 1
    assert len(pull(client, queue, 0, max_data_weight=250)) == 3
    assert len(pull(client, queue, 0, max_data_weight=10_000)) == 5


def test_pull_ends_where_a_chunk_ends(client, tmp):
    """A tablet node reads one store per request; whoever wants more pulls again."""
    queue = create(client, f"{tmp}/q")
    for _ in range(2):
        fill(client, queue, 10)
        client.freeze_table(queue, sync=True)
        client.unfreeze_table(queue, sync=True)
    fill(client, queue, 10)
    pulled = [
        [row["$row_index"] for row in pull(client, queue, offset)] for offset in (3, 10, 20, 25)
    ]
    assert pulled == [
        list(range(3, 10)),
        list(range(10, 20)),
        list(range(20, 30)),
        list(range(25, 30)),
    ]
    client.trim_rows(queue, 0, 12)
    assert [row["$row_index"] for row in pull(client, queue, 0)] == list(range(12, 20))


def test_pull_is_limited_to_16_mib_whatever_is_asked_for(client, tmp):
    """The limit is the tablet node's."""
    queue = create(client, f"{tmp}/q")
    for _ in range(3):
        client.insert_rows(queue, [{"v": "x" * (1 << 20)}] * 8)
    assert len(pull(client, queue, 0, max_data_weight=1 << 40)) < 24


def test_default_pull_is_limited_to_a_thousand_rows(client, tmp):
    """Whoever wants more asks for more."""
    queue = create(client, f"{tmp}/q")
    fill(client, queue, 25_000)
    assert len(pull(client, queue, 0)) == 1000
    rows = pull(client, queue, 0, max_row_count=25_000)
    assert [row["$row_index"] for row in rows] == list(range(25_000))


def test_proxy_looks_for_the_cell_of_a_tablet_without_one(client, tmp):
    """It takes it from its mount cache, so the error has no code of a tablet that is not mounted."""
    queue = create(client, f"{tmp}/q")
    client.unmount_table(queue, sync=True)
    for ask in (lambda: client.get_tablet_infos(queue, [0]), lambda: pull(client, queue, 0)):
        with pytest.raises(YtResponseError, match="Unknown cell 0-0-0-0") as caught:
            ask()
        assert not caught.value.contains_code(1702)


def test_trimmed_rows_are_gone_and_indexes_stay(client, tmp):
    """A pull below the trimmed prefix starts at the first row that is left."""
    queue = create(client, f"{tmp}/q", [VALUE, *SYSTEM])
    fill(client, queue, 10)
    client.trim_rows(queue, 0, 6)
    assert [row["$row_index"] for row in pull(client, queue, 0)] == [6, 7, 8, 9]
    found = info(client, queue)
    assert (found["total_row_count"], found["trimmed_row_count"]) == (10, 6)
    assert client.get(f"{queue}/@tablets/0/trimmed_row_count") == 6
    client.trim_rows(queue, 0, 3)
    client.trim_rows(queue, 0, -1)
    assert info(client, queue)["trimmed_row_count"] == 6
    fill(client, queue, 1, first=10)
    assert [row["v"] for row in pull(client, queue, 9)] == ["9", "10"]
    weight = pull(client, queue, 10)[0]["$cumulative_data_weight"]
    assert weight == 10 * 18 + 19


def test_infos_come_in_the_order_asked_for(client, tmp):
    """One entry per index, repeated ones too."""
    queue = create(client, f"{tmp}/q", tablet_count=2)
    fill(client, queue, 3, tablet=1)
    infos = client.get_tablet_infos(queue, [1, 0, 1])["tablets"]
    assert [found["total_row_count"] for found in infos] == [3, 0, 3]
    assert infos[0]["last_write_timestamp"] > infos[1]["last_write_timestamp"] == 0
    with refused(1701):
        client.get_tablet_infos(queue, [2])


def test_queue_tells_about_itself(client, tmp, cluster_name):
    """The attributes that a real cluster's queue agent would publish are there."""
    queue = create(client, f"{tmp}/q", [VALUE, *SYSTEM], tablet_count=2)
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=True)
    fill(client, queue, 4)
    client.trim_rows(queue, 0, 1)
    status = client.get(f"{queue}/@queue_status")
    assert status["family"] == "ordered_dynamic_table"
    assert status["partition_count"] == 2
    assert status["has_timestamp_column"]
    assert status["has_cumulative_data_weight_column"]
    assert status["registrations"] == [
        {"queue": f"{cluster_name}:{queue}", "consumer": f"{cluster_name}:{tmp}/c", "vital": True}
    ]
    first, second = client.get(f"{queue}/@queue_partitions")
    assert (first["lower_row_index"], first["upper_row_index"]) == (1, 4)
    assert (first["available_row_count"], first["available_data_weight"]) == (3, 54)
    assert second["available_row_count"] == 0
    client.advance_queue_consumer(f"{tmp}/c", queue, 0, None, 3)
    behind = client.get(f"{tmp}/c/@queue_consumer_partitions")[f"{cluster_name}:{queue}"]
    assert [partition["next_row_index"] for partition in behind] == [3, 0]


def test_tablets_created_trimmed_continue_their_numbering(client, tmp):
    """A queue may be born with a past."""
    queue = create(
        client,
        f"{tmp}/q",
        [VALUE, *SYSTEM],
        tablet_count=2,
        trimmed_row_counts=[5, 0],
        cumulative_data_weights=[100, 0],
    )
    fill(client, queue, 1)
    ((row),) = pull(client, queue, 0)
    assert (row["$row_index"], row["$cumulative_data_weight"]) == (5, 118)


@pytest.fixture
def behind(client, tmp, cluster_name):
    """A queue of three rows whose first is trimmed, its consumer, and what is published of it."""
    queue = create(client, f"{tmp}/q", [VALUE, *SYSTEM], tablet_count=2)
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    fill(client, queue, 3)
    client.trim_rows(queue, 0, 1)

    def published(offset, *, client_side=False):
        client.advance_queue_consumer(f"{tmp}/c", queue, 0, None, offset, client_side=client_side)
        first, second = client.get(f"{tmp}/c/@queue_consumer_partitions")[f"{cluster_name}:{queue}"]
        assert (second["partition_index"], second["unread_row_count"]) == (1, 0)
        return first

    return published


@pytest.mark.parametrize(
    ("offset", "disposition"),
    [
        (0, "expired"),
        (1, "pending_consumption"),
        (2, "pending_consumption"),
        (3, "up_to_date"),
        (4, "ahead"),
    ],
)
def test_consumer_is_told_how_far_behind_it_is(behind, offset, disposition):
    """Behind the trimmed rows, among the rows, at the end, and beyond."""
    partition = behind(offset)
    assert partition["disposition"] == disposition
    assert partition["unread_row_count"] == 3 - offset
    # What was trimmed has no time any more.
    assert isinstance(partition["next_row_commit_time"], str) == (0 < offset < 3)
    assert (partition["processing_lag"] > 0) == (0 < offset < 3)


def test_weight_that_is_unread_is_known_from_the_rows_read(behind):
    """From the meta of the offset, or else from the queue itself."""
    for client_side in (True, False):
        assert behind(2, client_side=client_side)["unread_data_weight"] == 18
        assert behind(3, client_side=client_side)["unread_data_weight"] == 0


def test_consumer_lists_queues_that_are_gone(client, tmp, cluster_name):
    """Its other queues are not affected."""
    paths = [create(client, f"{tmp}/q{number}") for number in range(2)]
    client.create("queue_consumer", f"{tmp}/c")
    for path in paths:
        client.register_queue_consumer(path, f"{tmp}/c", vital=True)
    client.remove(paths[0])
    queues = client.get(f"{tmp}/c/@queue_consumer_status")["queues"]
    gone, there = (queues[f"{cluster_name}:{path}"] for path in paths)
    assert "error" in gone
    assert (there["partition_count"], there["vital"]) == (1, True)


def test_columns_that_come_later_are_null_in_the_rows_before(client, tmp):
    """The weight runs on from the rows that had none."""
    queue = create(client, f"{tmp}/q")
    fill(client, queue, 2)
    client.unmount_table(queue, sync=True)
    client.alter_table(queue, schema=[VALUE, *SYSTEM])
    client.mount_table(queue, sync=True)
    fill(client, queue, 1, first=2)
    rows = pull(client, queue, 0) + pull(client, queue, 2)  # the old rows are a chunk
    weights = [row["$cumulative_data_weight"] for row in rows]
    assert weights[:2] == [None, None]
    assert weights[2] > 0
    client.create("queue_consumer", f"{tmp}/c")
    client.register_queue_consumer(queue, f"{tmp}/c", vital=False)
    ((partition,),) = client.get(f"{tmp}/c/@queue_consumer_partitions").values()
    assert partition["next_row_index"] == 0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c, at: pull(c, f"{at}/q", -1), "at a negative offset -1"),
        (lambda c, at: pull(c, f"{at}/q", 0, 5), r"expected in range \[0,0\], got 5"),
        (lambda c, at: pull(c, tables.create(c, f"{at}/t"), 0), "is not ordered"),
        (lambda c, at: c.trim_rows(f"{at}/q", 0, 11), "Cannot trim tablet .* only has 10 row"),
        (lambda c, at: c.trim_rows(f"{at}/q", 1, 1), "Invalid tablet index"),
        (
            lambda c, at: c.insert_rows(f"{at}/q", [{"v": "x", "$tablet_index": -1}]),
            "Invalid tablet index: actual -1",
        ),
        (
            lambda c, at: c.insert_rows(f"{at}/q", [{"v": "x", "$tablet_index": 1}]),
            "Invalid tablet index: actual 1",
        ),
    ],
)
def test_impossible_place_in_a_queue_is_refused(client, tmp, ask, message):
    """No such row, no such tablet, or no queue."""
    fill(client, create(client, f"{tmp}/q"), 10)
    with pytest.raises(YtResponseError, match=message):
        ask(client, tmp)


def test_trim_inside_a_transaction_happens_at_once(client, sticky, tmp):
    """An abort does not bring the rows back."""
    queue = create(client, f"{tmp}/q")
    fill(client, queue, 3)
    inside = sticky()
    transaction_id = inside.start_transaction(type="tablet")
    with inside.Transaction(transaction_id=transaction_id):
        inside.trim_rows(queue, 0, 2)
    inside.abort_transaction(transaction_id)
    assert [row["v"] for row in pull(client, queue, 0)] == ["2"]


def test_retried_append_without_a_transaction_doubles_rows(client, tmp):
    """The server knows nothing of an earlier try."""
    queue = create(client, f"{tmp}/q")
    for _ in range(2):
        client.insert_rows(queue, [{"v": "again"}])
    assert [row["v"] for row in pull(client, queue, 0)] == ["again", "again"]
