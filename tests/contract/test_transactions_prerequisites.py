"""Tablet transactions that may only commit while a master transaction is alive."""

import pytest

from tests.contract.tables import KEY, VALUE, create

SCHEMAS = {"sorted": [KEY, VALUE], "queue": [VALUE]}


@pytest.fixture
def tables(client, tmp):
    """Return a function that creates a sorted table or a queue."""
    return lambda kind: create(client, f"{tmp}/{kind}", SCHEMAS[kind])


@pytest.fixture
def commit(raw):
    """Return a function that commits with prerequisites and gives the whole answer."""

    def send(transaction_id, *prerequisites):
        parameters = {"transaction_id": transaction_id}
        parameters["prerequisite_transaction_ids"] = list(prerequisites)
        return raw.command("POST", "commit_transaction", parameters)

    return send


@pytest.fixture
def write(sticky):
    """Return a function that starts a transaction and writes one row in it."""

    def send(table):
        row = {"v": "x"} if table.endswith("/queue") else {"k": 1, "v": "x"}
        inside = sticky()
        transaction_id = inside.start_transaction(type="tablet")
        with inside.Transaction(transaction_id=transaction_id, ping=False):
            inside.insert_rows(table, [row])
        return transaction_id

    return send


def codes(error):
    """Return every code of an error and of the errors inside."""
    inner = error.get("inner_errors", ())
    return {error["code"]}.union(*(codes(item) for item in inner))


def count(client, table):
    return len(list(client.select_rows(f"* from [{table}]")))


@pytest.mark.parametrize("kind", ["sorted", "queue"])
@pytest.mark.parametrize("end", ["abort", "commit"])
def test_ended_prerequisite_refuses_the_commit(client, write, tables, commit, kind, end):
    """A writer that lost its master transaction writes nothing, and its transaction is gone."""
    table = tables(kind)
    lease = client.start_transaction()
    getattr(client, f"{end}_transaction")(lease)
    transaction_id = write(table)
    answer = commit(transaction_id, lease)
    assert answer.status == 400
    assert 1000 in codes(answer.error)
    assert "Prerequisite check failed" in str(answer.error)
    assert count(client, table) == 0
    assert commit(transaction_id).error["code"] == 11000


def test_living_prerequisites_let_the_commit_through(client, write, tables, commit):
    """All of them must be alive; nested transactions count like others."""
    table = tables("sorted")
    outer = client.start_transaction()
    with client.Transaction(transaction_id=outer, ping=False):
        inner = client.start_transaction()
    assert commit(write(table), outer, inner).status == 200
    client.abort_transaction(inner)
    assert commit(write(table), outer).status == 200
    assert commit(write(table), outer, inner).status == 400
    client.abort_transaction(outer)
