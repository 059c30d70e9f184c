"""Nodes that remove themselves."""

import time

import pytest
import yt.wrapper as yt

LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "end", [{"expiration_time": LONG_AGO}, {"expiration_timeout": 0}], ids=["time", "timeout"]
)
def test_expired_node_is_gone_with_all_below(client, tmp, end):
    """Whoever looks first; what has more time stays."""
    later = {"expiration_time": "2100-01-01T00:00:00Z", "expiration_timeout": 3_600_000}
    client.create("map_node", f"{tmp}/kept", attributes=later)
    client.create("table", f"{tmp}/folder/table", recursive=True)
    (name,) = end
    client.set(f"{tmp}/folder/@{name}", end[name])
    assert client.list(tmp) == ["kept"]


def test_access_renews_a_timeout(client, tmp):
    """So that only what nobody uses goes."""
    client.create("map_node", f"{tmp}/m", attributes={"expiration_timeout": 3_600_000})
    before = client.get(f"{tmp}/m/@access_time")
    client.list(f"{tmp}/m")
    assert client.get(f"{tmp}/m/@access_time") > before


def test_locked_node_waits_for_its_transaction(client, tmp):
    """It goes once nobody holds it."""
    client.create("map_node", f"{tmp}/m")
    other = client.start_transaction()
    with client.Transaction(transaction_id=other, ping=False):
        client.lock(f"{tmp}/m", mode="shared", attribute_key="mine")
    client.set(f"{tmp}/m/@expiration_time", LONG_AGO)
    assert client.exists(f"{tmp}/m")
    client.abort_transaction(other)
    assert not client.exists(f"{tmp}/m")


def test_timeout_begins_with_the_commit_and_after_the_lock(client, tmp):
    """Neither a late commit nor a long lock makes a node go at once."""
    client.create("map_node", f"{tmp}/m")
    with client.Transaction():
        client.set(f"{tmp}/m/@expiration_timeout", 1000)
        time.sleep(1.1)
    with client.Transaction():
        client.lock(f"{tmp}/m", mode="snapshot")
        time.sleep(1.1)
    assert client.exists(f"{tmp}/m")


def test_effective_end_is_the_earliest_above(client, tmp):
    """A folder takes what is in it along."""
    client.create("map_node", f"{tmp}/m", attributes={"expiration_timeout": 3_600_000})
    client.create("map_node", f"{tmp}/m/n", attributes={"expiration_time": "2044-01-01"})
    assert client.get(f"{tmp}/m/n/@effective_expiration") == {
        "time": {"value": "2044-01-01T00:00:00.000000Z", "path": f"{tmp}/m/n"},
        "timeout": {"value": 3_600_000, "path": f"{tmp}/m"},
    }


def test_wrong_end_is_refused(client, tmp):
    """It would be none."""
    with pytest.raises(yt.YtError, match="for the root"):
        client.set("//@expiration_time", LONG_AGO)
    with pytest.raises(yt.YtError, match="expected a time"):
        client.set(f"{tmp}/@expiration_time", "soon")
