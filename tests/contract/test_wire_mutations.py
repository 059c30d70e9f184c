"""Mutation ids: a repeated request of a master command gets the kept answer and changes nothing."""

import uuid

import pytest


def _guid():
    return "-".join(uuid.uuid4().hex[i : i + 8] for i in (0, 8, 16, 24))


@pytest.mark.parametrize("proxy", [0, 1])
def test_repeat_marked_as_retry_gets_the_first_answer(raw, tmp, cluster, proxy):
    """A lost answer to `create` does not turn into "already exists", on whichever proxy."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid(), "retry": False}
    first = raw.command("POST", "create", parameters).json()
    again = type(raw)(cluster.proxy_urls[proxy])
    assert again.command("POST", "create", {**parameters, "retry": True}).json() == first


def test_unmarked_duplicate_is_refused(raw, tmp):
    """An id used twice without `retry` is a mistake of the client."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid()}
    assert raw.command("POST", "create", parameters).status == 200
    answer = raw.command("POST", "create", parameters)
    assert answer.error["message"] == 'Duplicate request is not marked as "retry"'


def test_retry_of_an_unknown_mutation_is_executed(raw, client, tmp):
    """The first attempt may never have arrived."""
    parameters = {"path": f"{tmp}/a", "type": "map_node", "mutation_id": _guid(), "retry": True}
    assert raw.command("POST", "create", parameters).status == 200
    assert client.exists(f"{tmp}/a")


def test_failed_mutation_is_tried_again(raw, client, tmp):
    """Only what changed something is remembered."""
    parameters = {"path": f"{tmp}/a/b", "type": "map_node", "mutation_id": _guid()}
    assert raw.command("POST", "create", parameters).status == 400
    client.create("map_node", f"{tmp}/a")
    assert raw.command("POST", "create", {**parameters, "retry": True}).status == 200


@pytest.mark.parametrize("command", ["commit_transaction", "abort_transaction"])
def test_repeated_end_of_a_master_transaction_is_answered(raw, client, command):
    """A lost answer to a master commit is harmless, unlike that of a tablet commit."""
    parameters = {"transaction_id": client.start_transaction(), "mutation_id": _guid()}
    first = raw.command("POST", command, parameters)
    again = raw.command("POST", command, {**parameters, "retry": True})
    assert (again.status, again.body) == (200, first.body)


def test_repeated_tablet_commit_finds_no_transaction(raw, client):
    """Tablet commands keep no answers: the second commit is an error, as on a real cluster."""
    transaction_id = client.start_transaction(type="tablet")
    parameters = {"transaction_id": transaction_id, "mutation_id": _guid()}
    assert raw.command("POST", "commit_transaction", parameters).status == 200
    again = raw.command("POST", "commit_transaction", {**parameters, "retry": True})
    assert again.error["code"] == 11000
