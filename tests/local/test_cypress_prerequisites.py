"""Prerequisites: a command runs only while transactions live and nodes are unchanged."""

import pytest
import yt.wrapper as yt

NEEDED = "prerequisite_transaction_ids"


@pytest.fixture
def conditional(cluster):
    """A client whose every command has prerequisites."""

    def connect(**prerequisites):
        made = cluster.client()
        made.COMMAND_PARAMS.update(prerequisites)
        return made

    return connect


def _refused(call, *positional, **named):
    with pytest.raises(yt.YtResponseError, match="Prerequisite check failed") as caught:
        call(*positional, **named)
    assert caught.value.contains_code(1000)
    return str(caught.value)


def test_commands_run_while_the_transaction_lives(client, conditional, tmp):
    """Those that read and those that write, inside of it or not."""
    needed = client.start_transaction(timeout=60_000)
    member = conditional(**{NEEDED: [needed]})
    member.set(f"{tmp}/a", 1)
    assert client.get(f"{tmp}/a") == 1
    client.commit_transaction(needed)
    client.create("table", f"{tmp}/t")
    for call, arguments in (
        (member.set, (f"{tmp}/a", 2)),
        (member.create, ("map_node", f"{tmp}/b")),
        (member.remove, (f"{tmp}/a",)),
        (member.copy, (f"{tmp}/a", f"{tmp}/b")),
        (member.move, (f"{tmp}/a", f"{tmp}/b")),
        (member.link, (f"{tmp}/a", f"{tmp}/b")),
        (member.get, (f"{tmp}/a",)),
        (member.list, (tmp,)),
        (member.exists, (f"{tmp}/a",)),
        (member.start_transaction, ()),
    ):
        assert f"transaction {needed} is missing" in _refused(call, *arguments)
    assert client.get(f"{tmp}/a") == 1
    assert client.list(tmp) == ["a", "t"]


def test_every_prerequisite_must_hold(client, conditional, tmp):
    """One that is gone is enough."""
    first, second = (client.start_transaction(timeout=60_000) for _ in range(2))
    member = conditional(**{NEEDED: [first, second]})
    member.set(f"{tmp}/a", 1)
    client.abort_transaction(second)
    _refused(member.set, f"{tmp}/a", 2)
    client.abort_transaction(first)


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_transaction_does_not_outlive_its_prerequisite(client, tmp, end):
    """However that one ends; those that depend on this one end too."""
    needed = client.start_transaction(timeout=60_000)
    dependent = client.start_transaction(timeout=60_000, prerequisite_transaction_ids=[needed])
    last = client.start_transaction(timeout=60_000, prerequisite_transaction_ids=[dependent])
    assert client.get(f"#{dependent}/@prerequisite_transaction_ids") == [needed]
    with client.Transaction(transaction_id=dependent, ping=False):
        client.set(f"{tmp}/a", 1)
    getattr(client, end)(needed)
    for ended in (dependent, last):
        assert not client.exists(f"#{ended}")
    assert not client.exists(f"{tmp}/a")
    client.set(f"{tmp}/a", 2)


def test_commit_is_refused_when_another_transaction_is_gone(client, conditional, tmp):
    """And the refusal ends the transaction: a second try without the condition has nothing to commit."""
    needed, writer = (client.start_transaction(timeout=60_000) for _ in range(2))
    with client.Transaction(transaction_id=writer, ping=False):
        client.set(f"{tmp}/a", 1)
    client.abort_transaction(needed)
    _refused(conditional(**{NEEDED: [needed]}).commit_transaction, writer)
    with pytest.raises(yt.YtResponseError) as caught:
        client.commit_transaction(writer)
    assert caught.value.contains_code(11000)
    assert not client.exists(f"{tmp}/a")


def test_commands_run_while_the_node_is_unchanged(client, conditional, tmp):
    """A change, a removal and a new node of the name all break the condition."""
    client.create("map_node", f"{tmp}/a")
    revision = yt.create_revision_parameter(f"{tmp}/a", client=client)
    member = conditional(prerequisite_revisions=[revision])
    member.set(f"{tmp}/b", 1)
    client.set(f"{tmp}/a/@color", "red")
    assert "revision mismatch" in _refused(member.set, f"{tmp}/b", 2)
    client.remove(f"{tmp}/a")
    assert "failed to resolve path" in _refused(member.set, f"{tmp}/b", 2)
    client.create("map_node", f"{tmp}/a")
    assert "revision mismatch" in _refused(member.set, f"{tmp}/b", 2)
    assert client.get(f"{tmp}/b") == 1


@pytest.mark.parametrize(
    "parameters",
    [
        {NEEDED: 5},
        {NEEDED: [5]},
        {"prerequisite_revisions": {"path": "//tmp"}},
        {"prerequisite_revisions": [1]},
        {"prerequisite_revisions": [{"path": "//tmp"}]},
        {"prerequisite_revisions": [{"path": "//tmp", "revision": "x"}]},
        {"prerequisite_revisions": [{"revision": 1}]},
    ],
)
def test_malformed_prerequisites_are_refused(raw, parameters):
    """With an envelope, as every bad parameter."""
    answer = raw.command("GET", "get", {"path": "//tmp", **parameters})
    assert answer.status == 400
    assert answer.error["message"] != "Internal error"
