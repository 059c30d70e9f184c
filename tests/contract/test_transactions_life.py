"""Tablet transactions: their ids, their one proxy, their leases, their ends."""

import pytest
from yt.wrapper import YtResponseError

from tests.contract.tables import KEY, VALUE, create, refused, remount

MASTER = {"type": "master"}


def start(client, **options):
    return client.start_transaction(type="tablet", **options)


def commit(client, transaction_id):
    client.commit_transaction(transaction_id)


def inside(client, transaction_id):
    return client.Transaction(transaction_id=transaction_id, ping=False)


def written(sticky, path, rows):
    """Start a transaction and insert rows in it."""
    member = sticky()
    transaction_id = start(member)
    with inside(member, transaction_id):
        member.insert_rows(path, rows)
    return member, transaction_id


def test_id_carries_the_type_of_a_tablet_transaction(raw):
    """Clients look at the low bits of the third group."""
    kinds = {}
    for atomicity in ("full", "none"):
        parameters = {"type": "tablet", "atomicity": atomicity}
        answer = raw.command("POST", "start_transaction", parameters)
        kinds[atomicity] = int(answer.json()["transaction_id"].split("-")[2], 16) & 0xFFFF
    assert kinds == {"full": 2, "none": 3}


def test_transaction_is_unknown_to_the_other_proxy(sticky):
    """It lives in the memory of the proxy that started it."""
    here, there = sticky(0), sticky(1)
    transaction_id = start(here)
    for act in (there.ping_transaction, there.commit_transaction, there.abort_transaction):
        with pytest.raises(YtResponseError, match=f"Sticky transaction {transaction_id}") as caught:
            act(transaction_id)
        assert caught.value.error["code"] == 11000
    here.ping_transaction(transaction_id)
    commit(here, transaction_id)


@pytest.mark.only_over("http", "the C++ driver knows only transactions of its own")
def test_anybody_who_knows_the_id_may_join_on_the_right_proxy(client, sticky, tmp):
    """The pool does not ask who started a transaction."""
    table = create(client, f"{tmp}/t")
    first, second = sticky(), sticky()
    transaction_id = start(first)
    for number, member in enumerate((first, second)):
        with inside(member, transaction_id):
            member.insert_rows(table, [{"k": number, "v": "x"}])
    assert client.get(f"{table}/@row_count") == 0
    commit(second, transaction_id)
    assert client.get(f"{table}/@row_count") == 2


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_ended_transaction_is_not_found(sticky, end):
    """There is no difference between ended and never existed."""
    client = sticky()
    transaction_id = start(client)
    getattr(client, f"{end}_transaction")(transaction_id)
    with pytest.raises(YtResponseError) as caught:
        commit(client, transaction_id)
    assert caught.value.error["code"] == 11000


@pytest.mark.only_over("http", "the C++ client itself keeps the state of its transactions")
def test_failed_commit_ends_the_transaction(client, sticky, tmp):
    """A commit is tried once."""
    table = create(client, f"{tmp}/t")
    member, transaction_id = written(sticky, table, [{"k": "not a number", "v": "x"}])
    with refused(307) as caught:
        commit(member, transaction_id)
    assert f"Error committing transaction {transaction_id}" in str(caught.value)
    with pytest.raises(YtResponseError) as caught:
        commit(member, transaction_id)
    assert caught.value.error["code"] == 11000


def test_override_gives_the_id_and_may_not_be_taken(sticky, raw):
    """The same id twice is an invalid state, and the first one stays alive."""
    wanted = "1-2-10002-abc"
    parameters = {"type": "tablet", "transaction_id_override": wanted}
    assert raw.command("POST", "start_transaction", parameters).json()["transaction_id"] == wanted
    refused = raw.command("POST", "start_transaction", parameters).error
    assert refused["code"] == 11003
    assert "duplicate sticky transaction" in refused["message"]
    sticky().abort_transaction(wanted)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"transaction_id": "1-1-10001-1"}, "cannot have a parent"),
        ({"coordinator_master_cell_tag": 1}, "master coordinator"),
        ({"suppress_start_timestamp_generation": True}, "suppress start timestamp"),
        ({"transaction_id_override": "1-1-10001-1"}, "has invalid type"),
        ({"durability": "async"}, "Durability must be"),
        ({"replicate_to_master_cell_tags": [1]}, "replication to master cells"),
        ({"prerequisite_transaction_ids": ["1-2-10001-3"]}, "cannot have prerequisites"),
        ({"type": "strange"}, "is not one of"),
        ({"transaction_id_override": "1-2-10001-3", **MASTER}, "Cannot use externally provided id"),
        ({"atomicity": "none", **MASTER}, 'Atomicity must be "full" for master transactions'),
        ({"durability": "async", **MASTER}, 'Durability must be "sync" for master transactions'),
    ],
)
def test_impossible_start_is_refused(raw, parameters, message):
    """Options that make no sense for a transaction of its type are errors."""
    answer = raw.command("POST", "start_transaction", {"type": "tablet", **parameters})
    assert (answer.status, answer.error["code"]) == (400, 1)
    assert message in answer.error["message"]


@pytest.mark.parametrize("command", ["insert_rows", "delete_rows"])
def test_write_of_its_own_transaction_takes_the_same_options(client, tmp, raw, command):
    """What `start_transaction` refuses, a write without a transaction refuses too."""
    table = create(client, f"{tmp}/t")
    parameters = {"path": table, "durability": "async", "input_format": "json"}
    answer = raw.command("PUT", command, parameters, b'{"k": 1}')
    assert "Durability must be" in answer.error["message"]


def test_null_id_is_pinged_without_effect(raw):
    """A ping of nothing succeeds, a commit of nothing does not."""
    null = {"transaction_id": "0-0-0-0"}
    assert raw.command("POST", "ping_transaction", null).status == 200
    assert (
        "Transaction is required"
        in raw.command("POST", "commit_transaction", null).error["message"]
    )


def test_cypress_refuses_a_tablet_transaction(sticky):
    """The tree knows only master transactions."""
    client = sticky()
    with client.Transaction(type="tablet"), pytest.raises(YtResponseError) as caught:
        client.get("//tmp/@")
    assert "is not a valid master transaction id" in str(caught.value)


def test_commit_of_nothing_succeeds(sticky, raw):
    """It does not even touch a tablet, yet there is an answer."""
    transaction_id = start(sticky())
    answer = raw.command("POST", "commit_transaction", {"transaction_id": transaction_id})
    assert answer.status == 200
    assert set(answer.json()) == {"primary_commit_timestamp", "commit_timestamps"}


def test_commit_timestamps_grow_and_mark_the_rows(client, sticky, raw, tmp):
    """The answer names the timestamp that `$timestamp` of the rows has."""
    queue = create(client, f"{tmp}/q", [VALUE, {"name": "$timestamp", "type": "uint64"}])
    seen = []
    for _ in range(2):
        member = sticky()
        transaction_id = start(member)
        with inside(member, transaction_id):
            member.insert_rows(queue, [{"v": "x"}, {"v": "y"}])
        answer = raw.command("POST", "commit_transaction", {"transaction_id": transaction_id})
        seen += [answer.json()["primary_commit_timestamp"]] * 2
    rows = list(client.pull_queue(queue, 0, 0))
    assert [row["$timestamp"] for row in rows] == seen
    assert seen[0] < seen[2]


def test_unmount_before_the_commit_refuses_it(client, sticky, tmp):
    """Tablet states count at the commit."""
    table = create(client, f"{tmp}/t")
    member, transaction_id = written(sticky, table, [{"k": 1, "v": "x"}])
    client.unmount_table(table, sync=True)
    with refused(1702, match="has no mounted tablets") as caught:
        commit(member, transaction_id)
    assert f"Error submitting rows for table {table}" in str(caught.value)


def mount_again(client, table, _schema):
    remount(client, table)


def remove_and_create(client, table, schema):
    client.remove(table)
    create(client, table, schema)


@pytest.mark.only_over(
    "http", "the C++ client sends modifications in the background, maybe after the change"
)
@pytest.mark.parametrize(
    ("change", "schema", "said", "code"),
    [
        (mount_again, (KEY, VALUE), "Invalid mount revision", 1704),
        (mount_again, (VALUE,), "Invalid mount revision", 1704),
        (remove_and_create, (KEY, VALUE), "no longer exists", 1),
    ],
    ids=["remount", "remount of an ordered table", "removal"],
)
def test_change_of_the_table_in_between_refuses_the_commit(
    client, sticky, tmp, change, schema, said, code
):
    """Rows are meant for one mount of one table; a successor at the same path is another one."""
    table = create(client, f"{tmp}/t", schema)
    row = {column["name"]: {"k": 1, "v": "x"}[column["name"]] for column in schema}
    member, transaction_id = written(sticky, table, [row])
    change(client, table, schema)
    with refused(code, match=said):
        commit(member, transaction_id)
    assert list(client.select_rows(f"* from [{table}]")) == []


@pytest.mark.parametrize("source", ["attribute", "mount_config"])
def test_too_many_rows_per_tablet_are_refused(client, sticky, tmp, source):
    """The limit is per tablet and transaction; merged writes of one key count once."""
    limit = {"max_rows_per_transaction": 10}
    settings = limit if source == "attribute" else {"mount_config": limit}
    table = create(client, f"{tmp}/t", pivot_keys=[[], [100]], **settings)

    def write(*keys):
        member = sticky()
        with member.Transaction(type="tablet"):
            for key in keys:
                member.insert_rows(table, [{"k": key, "v": "x"}])

    write(*range(10), *range(100, 110))
    write(*[5] * 12)
    with refused(1717, match="too many rows in tablet") as caught:
        write(*range(11))
    assert caught.value.find_matching_error(code=1717).attributes["limit"] == 10
    assert client.get(f"{table}/@row_count") == 20


def test_rows_of_a_queue_count_by_their_tablet(client, tmp):
    """Spreading rows over tablets stays below the limit."""
    queue = create(client, f"{tmp}/q", [VALUE], tablet_count=2, max_rows_per_transaction=10)
    client.insert_rows(queue, [{"v": "x", "$tablet_index": index % 2} for index in range(20)])
    with refused(1717):
        client.insert_rows(queue, [{"v": "x"}] * 11)


@pytest.mark.only_over("http", "the C++ client keeps schemas for a while")
def test_schema_changed_through_one_proxy_holds_on_the_other(client, sticky, tmp):
    """No proxy works with a table as it was."""
    table = create(client, f"{tmp}/t")
    here, there = sticky(0), sticky(1)
    for member in (here, there):
        member.insert_rows(table, [{"k": 1, "v": "x"}])
    here.unmount_table(table, sync=True)
    here.alter_table(table, schema=[KEY, VALUE, {"name": "w", "type": "int64"}])
    here.mount_table(table, sync=True)
    there.insert_rows(table, [{"k": 2, "v": "y", "w": 1}])
    here.insert_rows(table, [{"k": 3, "v": "z", "w": 2}])
    assert [row["w"] for row in there.select_rows(f"w from [{table}]")] == [None, 1, 2]


@pytest.fixture
def commit_while(raw):
    """Return a function that commits while other transactions live, and gives the whole answer."""

    def send(transaction_id, *others):
        parameters = {
            "transaction_id": transaction_id,
            "prerequisite_transaction_ids": list(others),
        }
        return raw.command("POST", "commit_transaction", parameters)

    return send


@pytest.mark.parametrize("schema", [(KEY, VALUE), (VALUE,)], ids=["sorted", "queue"])
@pytest.mark.parametrize("end", ["abort", "commit"])
def test_ended_prerequisite_refuses_the_commit(client, sticky, tmp, commit_while, schema, end):
    """A writer that lost its master transaction writes nothing, and its transaction is gone."""
    table = create(client, f"{tmp}/t", schema)
    lease = client.start_transaction()
    getattr(client, f"{end}_transaction")(lease)
    row = {column["name"]: {"k": 1, "v": "x"}[column["name"]] for column in schema}
    _, transaction_id = written(sticky, table, [row])
    answer = commit_while(transaction_id, lease)
    assert answer.status == 400
    assert YtResponseError(answer.error).contains_code(1000)
    assert "Prerequisite check failed" in str(answer.error)
    assert list(client.select_rows(f"* from [{table}]")) == []
    assert commit_while(transaction_id).error["code"] == 11000


def test_living_prerequisites_let_the_commit_through(client, sticky, tmp, commit_while):
    """All of them must be alive; nested transactions count like others."""
    table = create(client, f"{tmp}/t")
    outer = client.start_transaction()
    with inside(client, outer):
        inner = client.start_transaction()

    def status(*others):
        _, transaction_id = written(sticky, table, [{"k": 1, "v": "x"}])
        return commit_while(transaction_id, *others).status

    assert status(outer, inner) == 200
    client.abort_transaction(inner)
    assert (status(outer), status(outer, inner)) == (200, 400)
    client.abort_transaction(outer)
