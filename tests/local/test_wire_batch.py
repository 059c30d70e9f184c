"""execute_batch: many commands in one request, each succeeding or failing alone."""

import json

import pytest


def test_parts_succeed_and_fail_alone(client, tmp):
    """One bad part does not harm the others."""
    batch = client.create_batch_client()
    made = batch.create("map_node", f"{tmp}/a")
    missing = batch.get(f"{tmp}/missing")
    there = batch.exists(tmp)
    batch.commit_batch()
    assert made.get_result()
    assert missing.get_error()["code"] == 500
    assert there.get_result()


def test_answers_come_in_the_order_of_the_parts(client, tmp):
    """However many run at once, the order stays."""
    for number in range(30):
        client.set(f"{tmp}/{number}", number)
    batch = client.create_batch_client(concurrency=7)
    answers = [batch.get(f"{tmp}/{number}") for number in range(30)]
    batch.commit_batch()
    assert [answer.get_result() for answer in answers] == list(range(30))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"command": "no_such"}, "Unknown command"),
        ({"command": "insert_rows", "parameters": {}}, "cannot be part of a batch"),
        ({}, "Missing required parameter"),
        (5, "expected a map"),
        ({"command": "get", "parameters": 5}, "expected a map"),
    ],
)
def test_malformed_part_fails_alone(raw, part, text):
    """The envelope of the part says what is wrong."""
    good = {"command": "exists", "parameters": {"path": "//tmp"}}
    answer = raw.command("POST", "execute_batch", {"requests": [part, good]})
    bad, fine = answer.json()["results"]
    assert text in bad["error"]["message"]
    assert fine["output"] == {"value": True}


def test_batch_needs_a_list(raw):
    """Without parts there is nothing to do."""
    assert raw.command("POST", "execute_batch", {}).status == 400
    assert raw.command("POST", "execute_batch", {"requests": []}).json() == {"results": []}


def test_parts_of_an_old_batch_answer_as_old_commands_do(raw, tmp):
    """In version 3 of the API values are not wrapped, and changes have no answer."""
    parts = [
        {"command": "set", "parameters": {"path": f"{tmp}/a"}, "input": 5},
        {"command": "get", "parameters": {"path": f"{tmp}/a"}},
        {"command": "exists", "parameters": {"path": f"{tmp}/b"}},
        {"command": "start_tx", "parameters": {}},
        {"command": "start_transaction", "parameters": {}},
    ]
    body = json.dumps({"requests": parts}).encode()
    results = raw(
        "POST", "/api/v3/execute_batch", {"Content-Type": "application/json"}, body
    ).json()
    assert results[:3] == [{}, {"output": 5}, {"output": False}]
    assert isinstance(results[3]["output"], str)
    assert "Unknown command" in results[4]["error"]["message"]
