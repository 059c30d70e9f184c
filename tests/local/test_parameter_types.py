"""Parameters and attributes of a wrong type, on every kind of command: an error that names them."""

import pytest
from yt.wrapper import errors, yson
from yt.wrapper.driver import make_request

SORTED = [
    {"name": "key", "type": "int64", "sort_order": "ascending"},
    {"name": "value", "type": "string"},
]
ORDERED = [{"name": "value", "type": "string"}]
TOO_LARGE = yson.YsonUint64(2**63)


@pytest.fixture
def tables(client, tmp):
    """A sorted table `t`, a queue `q` of two tablets and a consumer `c`, all mounted."""
    client.create("table", f"{tmp}/t", attributes={"dynamic": True, "schema": SORTED})
    queue = {"dynamic": True, "schema": ORDERED, "tablet_count": 2}
    client.create("table", f"{tmp}/q", attributes=queue)
    client.create("queue_consumer", f"{tmp}/c")
    for name in "tq":
        client.mount_table(f"{tmp}/{name}", sync=True)
    return tmp


def refused(call, name):
    with pytest.raises(errors.YtResponseError) as caught:
        call()
    text = str(caught.value)
    assert f'"{name}"' in text
    assert "Internal error" not in text


@pytest.mark.parametrize("partitions", [5, "0", [None], ["a"], [[0]], [True], [1.5], {}])
def test_registration_of_partitions_that_are_no_integers_is_refused(client, tables, partitions):
    """Partitions of a registration are a list of integers."""
    parameters = {
        "queue_path": f"{tables}/q",
        "consumer_path": f"{tables}/c",
        "vital": False,
        "partitions": partitions,
    }
    refused(lambda: command(client, "register_queue_consumer", parameters), "partitions")
    assert client.list_queue_consumer_registrations(queue_path=f"{tables}/q") == []


@pytest.mark.parametrize("indexes", [0, "all", [None], ["x"], [{}], [2**63]])
def test_tablet_indexes_that_are_no_integers_are_refused(client, tables, indexes):
    """Tablets are asked for by a list of integers."""
    parameters = {"path": f"{tables}/q", "tablet_indexes": indexes}
    refused(lambda: command(client, "get_tablet_infos", parameters), "tablet_indexes")


@pytest.mark.parametrize("locks", [5, "a", [1], {"a": 1}])
def test_lock_names_that_are_no_strings_are_refused(client, tables, locks):
    """Lock groups are a list of names, and the transaction goes on without them."""
    with client.Transaction(type="tablet") as transaction:
        parameters = {
            "path": f"{tables}/t",
            "locks": locks,
            "transaction_id": transaction.transaction_id,
            "input_format": "yson",
        }
        refused(lambda: command(client, "lock_rows", parameters, b"{key=1};"), "locks")


@pytest.mark.parametrize("offset", [TOO_LARGE, str(-(2**64)), str(2**64), 1.5, [0]])
def test_offset_beyond_64_bits_is_refused(client, tables, offset):
    """Offsets are int64; what does not fit is an error of the parameter, not of the store."""
    parameters = {"queue_path": f"{tables}/q", "partition_index": 0, "output_format": "json"}
    refused(lambda: command(client, "pull_queue", {**parameters, "offset": offset}), "offset")


def test_timestamp_is_unsigned(client, tables):
    """Timestamps are uint64: two large ones name the newest state, others beyond the range nothing."""
    client.insert_rows(f"{tables}/t", [{"key": 1, "value": "a"}])
    for name in (0x3FFFFFFFFFFFFF01, 0x3FFFFFFFFFFFFF04):
        newest = client.select_rows(f"* from [{tables}/t]", timestamp=name)
        assert list(newest) == [{"key": 1, "value": "a"}]
    assert list(client.select_rows(f"* from [{tables}/t]", timestamp=1)) == []
    refused(lambda: client.select_rows(f"* from [{tables}/t]", timestamp=-1), "timestamp")
    for wrong in (0, 0x3FFFFFFFFFFFFF02, 2**64 - 1):
        with pytest.raises(errors.YtResponseError, match=f"Invalid read timestamp {wrong:x}"):
            client.lookup_rows(f"{tables}/t", [{"key": 1}], timestamp=wrong)


@pytest.mark.parametrize("kind", ["table", "queue_consumer", "queue_producer"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tablet_count", "many"),
        ("tablet_count", [1]),
        ("tablet_count", 2**64 - 1),
        ("pivot_keys", 5),
        ("pivot_keys", [1, 2]),
        ("pivot_keys", [[], 1]),
        ("pivot_keys", {}),
    ],
)
def test_shape_of_a_wrong_type_is_refused_at_creation(client, tmp, kind, name, value):
    """A table that cannot be cut as asked is not created at all."""
    attributes = {"dynamic": True, "schema": SORTED} if kind == "table" else {}
    wrong = {**attributes, name: value}
    refused(lambda: client.create(kind, f"{tmp}/new", attributes=wrong), name)
    assert not client.exists(f"{tmp}/new")


@pytest.mark.parametrize("pivots", [5, [1], "x"])
def test_reshard_by_pivot_keys_of_a_wrong_type_is_refused(client, tables, pivots):
    """Pivot keys are lists of values."""
    client.unmount_table(f"{tables}/t", sync=True)
    parameters = {"path": f"{tables}/t", "pivot_keys": pivots}
    refused(lambda: command(client, "reshard_table", parameters), "pivot_keys")


@pytest.mark.parametrize("counts", [5, [-1, 0], ["a", 0], [1]])
def test_trimmed_row_counts_of_a_wrong_shape_are_refused(client, tmp, counts):
    """Each new tablet of a queue may begin at a row of its own, and there is one number for each."""
    attributes = {
        "dynamic": True,
        "schema": ORDERED,
        "tablet_count": 2,
        "trimmed_row_counts": counts,
    }
    create = lambda: client.create("table", f"{tmp}/new", attributes=attributes)  # noqa: E731
    refused(create, "trimmed_row_counts")


@pytest.mark.parametrize("name", ["retained_rows", "retained_lifetime_duration"])
def test_auto_trim_config_of_a_wrong_type_is_refused(client, tables, name):
    """Limits of trimming are integers."""
    refused(lambda: client.set(f"{tables}/q/@auto_trim_config", {name: "much"}), name)


def command(client, name, parameters, body=None):
    """Send a command with parameters that the client's own functions would never send."""
    return make_request(name, parameters, data=body, client=client)
