"""Tablet transactions over RPC: the order of modifications, several clients, locks, moments."""

import itertools
import struct
from dataclasses import replace

import pytest

from tests.contract.tables import create
from tests.rpc_client import RawRpc, RpcError, message
from yt_exactly_once.local.rpc.rows import rowset_writer
from yt_exactly_once.local.tables.schema import Column
from yt_exactly_once.local.tables.types import type_v3_from_v1

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
COLUMNS = [
    Column(name, kind, type_v3_from_v1(kind, required=False), required=False)
    for name, kind in (("k", "int64"), ("v", "int64"), ("w", "int64"))
]
UNSIGNED = [replace(column, wire_type="uint64") for column in COLUMNS[:2]]
WRITE, DELETE, LOCK = 0, 1, 3


@pytest.fixture
def table(client, tmp):
    values = [{"name": name, "type": "int64", "lock": name} for name in ("v", "w")]
    schema = [KEY, *values]
    return create(client, f"{tmp}/t", schema)


def start(rpc):
    answer = rpc.call("StartTransaction", message("TReqStartTransaction", type=1, sticky=True))
    return (answer.id.first, answer.id.second), answer


def modification(
    transaction, table, row, number=None, source=0, kind=WRITE, columns=COLUMNS, **fields
):
    columns = [column for column in columns if column.name in row]
    request = message(
        "TReqModifyRows",
        transaction_id=transaction,
        path=table,
        row_modification_types=[kind],
        sequence_number_source_id=source,
        **fields,
    )
    if number is not None:
        request.sequence_number = number
    for column in columns:
        request.rowset_descriptor.name_table_entries.add(name=column.name.encode())
    return request, [rowset_writer.encode([row], columns)]


def modify(rpc, *args, **kwargs):
    return rpc.call("ModifyRows", *modification(*args, **kwargs))


def commit(rpc, transaction):
    return rpc.call(
        "CommitTransaction", message("TReqCommitTransaction", transaction_id=transaction)
    )


def rows(client, table):
    return list(client.select_rows(f"* from [{table}]"))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_modifications_apply_in_the_order_of_their_numbers(rpc, client, table, order):
    """Requests of a client run side by side; the last number wins, not the last one to come."""
    transaction, _ = start(rpc)
    for number in order:
        modify(rpc, transaction, table, {"k": 1, "v": number}, number)
    commit(rpc, transaction)
    assert rows(client, table) == [{"k": 1, "v": 2, "w": None}]


def test_every_client_of_a_transaction_counts_for_itself(rpc, cluster, client, table):
    """The one that attaches gets a source of its own, and counts from zero."""
    transaction, started = start(rpc)
    with RawRpc(cluster.rpc_addresses[0]) as other:
        request = message("TReqAttachTransaction", transaction_id=transaction, ping=False)
        attached = other.call("AttachTransaction", request)
        assert attached.start_timestamp == started.start_timestamp
        assert attached.sequence_number_source_id != started.sequence_number_source_id
        source = attached.sequence_number_source_id
        modify(other, transaction, table, {"k": 2, "v": 2}, 1, source)
        modify(rpc, transaction, table, {"k": 1, "v": 1}, 0)
        modify(other, transaction, table, {"k": 2, "v": 1}, 0, source)
        other.call(
            "DetachTransaction", message("TReqDetachTransaction", transaction_id=transaction)
        )
    commit(rpc, transaction)
    assert [row["v"] for row in rows(client, table)] == [1, 2]


def test_commit_without_all_modifications_is_refused(rpc, client, table):
    """Rows behind a gap must not vanish in silence, nor overtake what is missing."""
    transaction, _ = start(rpc)
    modify(rpc, transaction, table, {"k": 1, "v": 1}, 1)
    with pytest.raises(RpcError, match="sequence number 0 are missing") as caught:
        commit(rpc, transaction)
    assert 11003 in caught.value.codes
    assert rows(client, table) == []


@pytest.mark.parametrize(("number", "text"), [(0, "received already"), (10**6, "too far ahead")])
def test_impossible_sequence_number_is_refused(rpc, table, number, text):
    """A number comes once, and within reach."""
    transaction, _ = start(rpc)
    modify(rpc, transaction, table, {"k": 1, "v": 1}, 0)
    with pytest.raises(RpcError, match=text):
        modify(rpc, transaction, table, {"k": 1, "v": 2}, number)


@pytest.mark.parametrize(
    ("kind", "row"), [(WRITE, {"k": 1, "v": 1}), (DELETE, {"k": 1})], ids=["write", "delete"]
)
def test_number_of_another_type_is_refused(rpc, client, table, kind, row):
    """Values come with their types, and a server converts none of them."""
    transaction, _ = start(rpc)

    def delete_or_write():
        modify(rpc, transaction, table, row, 0, kind=kind, columns=UNSIGNED)
        commit(rpc, transaction)

    with pytest.raises(RpcError, match=r"int64.*actual.*uint64"):
        delete_or_write()
    assert rows(client, table) == []


def test_deletes_and_writes_of_one_request_keep_their_order(rpc, client, table):
    """Neighbours of one kind are one batch; what comes later wins."""
    client.insert_rows(table, [{"k": 1, "v": 1, "w": 1}])
    transaction, _ = start(rpc)
    request = message(
        "TReqModifyRows",
        transaction_id=transaction,
        path=table,
        row_modification_types=[DELETE, WRITE],
    )
    for name in ("k", "v"):
        request.rowset_descriptor.name_table_entries.add(name=name.encode())
    cell = struct.Struct("<HBBIq")
    key, value = cell.pack(0, 3, 0, 0, 1), cell.pack(1, 3, 0, 0, 7)
    count = struct.Struct("<Q").pack
    rpc.call("ModifyRows", request, [count(2) + count(1) + key, count(2) + key + value])
    commit(rpc, transaction)
    assert rows(client, table) == [{"k": 1, "v": 7, "w": None}]


MASKS = {
    "weak": {"row_legacy_read_locks": [0b10]},
    "strong": {"row_legacy_locks": [2 << 2]},
    "wide": {"row_locks": (2 << 4, 2)},
}


@pytest.mark.parametrize("form", MASKS)
def test_locks_of_every_form_are_taken(rpc, client, table, form):
    """Of the group that the mask names, and of no other: lock `v` is the second one."""
    client.insert_rows(table, [{"k": 1, "v": 1, "w": 1}])
    fields = dict(MASKS[form])
    wide = fields.pop("row_locks", None)
    transactions = {column: start(rpc)[0] for column in ("v", "w")}
    for changed, transaction in transactions.items():
        request, attachments = modification(transaction, table, {"k": 1}, kind=LOCK, **fields)
        if wide is not None:
            request.row_locks.add(bitmap=[wide[0]], size=wide[1])
        rpc.call("ModifyRows", request, attachments)
        if changed == "w":
            client.insert_rows(table, [{"k": 1, "w": 2}], update=True)
            commit(rpc, transaction)
    client.insert_rows(table, [{"k": 1, "v": 2}], update=True)
    with pytest.raises(RpcError) as caught:
        commit(rpc, transactions["v"])
    assert 1700 in caught.value.codes
