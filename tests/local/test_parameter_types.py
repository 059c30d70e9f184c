"""Parameters and attributes of a wrong type, on every kind of command: an error that names them."""

from contextlib import nullcontext

import pytest
from yt.wrapper import errors, yson
from yt.wrapper.driver import make_request

from tests.contract.tables import columns, create, key_columns

ORDERED = columns(value="string")
SORTED = [*key_columns(key="int64"), *ORDERED]
TOO_LARGE = yson.YsonUint64(2**63)


@pytest.fixture
def tables(client, tmp):
    """Sorted tables `t` and `u`, a queue `q` of two tablets and a consumer `c`; all but `u` are mounted."""
    create(client, f"{tmp}/t", SORTED)
    create(client, f"{tmp}/u", SORTED, mount=False)
    create(client, f"{tmp}/q", ORDERED, tablet_count=2)
    client.create("queue_consumer", f"{tmp}/c")
    return tmp


def refused(call, name):
    with pytest.raises(errors.YtResponseError) as caught:
        call()
    text = str(caught.value)
    assert f'"{name}"' in text
    assert "Internal error" not in text


WRONG = {
    "partitions": (
        "register_queue_consumer",
        {"queue_path": "q", "consumer_path": "c", "vital": False},
        [5, "0", [None], ["a"], [[0]], [True], [1.5], {}],
    ),
    "tablet_indexes": ("get_tablet_infos", {"path": "q"}, [0, "all", [None], ["x"], [{}], [2**63]]),
    "locks": ("lock_rows", {"path": "t", "input_format": "yson"}, [5, "a", [1], {"a": 1}]),
    # What does not fit is an error of the parameter, not of the store.
    "offset": (
        "pull_queue",
        {"queue_path": "q", "partition_index": 0, "output_format": "json"},
        [TOO_LARGE, str(-(2**64)), str(2**64), 1.5, [0]],
    ),
    "pivot_keys": ("reshard_table", {"path": "u"}, [5, [1], "x"]),
}
"""Commands with a parameter that is a number, or a list of numbers, names or keys, and what it cannot be."""


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (*_, wrong) in WRONG.items() for value in wrong]
)
def test_parameter_of_a_wrong_type_is_refused(client, tables, name, value):
    """Nothing is done; a transaction goes on without the command."""
    command, given, _ = WRONG[name]
    given = {key: f"{tables}/{v}" if key.endswith("path") else v for key, v in given.items()}
    with client.Transaction(type="tablet") if name == "locks" else nullcontext() as transaction:
        if transaction:
            given["transaction_id"] = transaction.transaction_id
        body = b"{key=1};" if transaction else None
        # The client's own functions would never send it.
        refused(
            lambda: make_request(command, given | {name: value}, data=body, client=client), name
        )
    assert client.list_queue_consumer_registrations(queue_path=f"{tables}/q") == []


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


@pytest.mark.parametrize("counts", [5, [-1, 0], ["a", 0], [1]])
def test_trimmed_row_counts_of_a_wrong_shape_are_refused(client, tmp, counts):
    """Each new tablet of a queue may begin at a row of its own, and there is one number for each."""
    given = {"tablet_count": 2, "trimmed_row_counts": counts}
    refused(lambda: create(client, f"{tmp}/new", ORDERED, **given), "trimmed_row_counts")


@pytest.mark.parametrize("name", ["retained_rows", "retained_lifetime_duration"])
def test_auto_trim_config_of_a_wrong_type_is_refused(client, tables, name):
    """Limits of trimming are integers."""
    refused(lambda: client.set(f"{tables}/q/@auto_trim_config", {name: "much"}), name)
