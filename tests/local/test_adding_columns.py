"""Columns for a table in use: what is added and refused, and what a process leaves that is killed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest import mock

import pytest
from yt.wrapper import http_driver

from tests.contract.tables import create
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.errors import (
    ConflictError,
    SchemaMismatchError,
    TableNotMountedError,
    TransientError,
)
from yt_exactly_once.operations.columns import add_columns
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.ytsaurus import alteration
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ALTERING
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

KEY = {"name": "k", "type": "int64", "sort_order": "ascending"}
VALUE = {"name": "v", "type": "utf8"}
KINDS = {"sorted": [KEY, VALUE], "ordered": [VALUE]}


@pytest.fixture
def connection(cluster):
    return Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))


@pytest.fixture(params=KINDS)
def table(request, client, tmp):
    """A mounted table with a row."""
    path = create(client, f"{tmp}/t", KINDS[request.param])
    row = {column["name"]: 1 if column["name"] == "k" else "x" for column in KINDS[request.param]}
    client.insert_rows(path, [row])
    return path


def names(client, path):
    return [column["name"] for column in client.get(f"{path}/@schema")]


def test_rows_of_before_have_null_and_new_ones_their_values(told, client, table):
    """Of every spelling of a type. A second call changes nothing, and a dry run does nothing."""
    wanted = {
        "a": ("bigint", 2**62), "b": ("decimal(10,2)", None), "c": ("uint64", 7), "d": ("any", {"x": 1}),
        "e": ('{"type_name": "list", "item": "int64"}', [1, 2]), "f": ("utf8", "\u044b"),
    }  # fmt: skip
    pairs = [word for name, (kind, _) in wanted.items() for word in (name, kind)]
    before = names(client, table)
    code, said = told("add-column", table, *pairs, "--dry-run", "--json")
    assert (code, list(said["added"]), said["dry_run"]) == (0, [*wanted], True)
    assert names(client, table) == before

    code, said = told("add-column", table, *pairs, "--json")
    assert (code, list(said["added"]), said["exists"]) == (0, [*wanted], [])
    row = {"v": "y", **({"k": 2} if "k" in before else {})}
    client.insert_rows(table, [{**row, **{name: value for name, (_, value) in wanted.items()}}])
    old, new = client.select_rows(f"{', '.join(wanted)} from [{table}]")
    assert old == dict.fromkeys(wanted)
    assert new == {name: value for name, (_, value) in wanted.items()}
    code, said = told("add-column", table, *pairs, "--json")
    assert (code, said["added"], said["exists"]) == (0, {}, [*wanted])
    assert not client.exists(f"{table}/@{ALTERING}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["v", "bigint"], "The table has the column v of type optional<utf8>"),
        (["V", "string"], "Spark ignores the case"),
        (["n", "bigin"], "The type bigin of n is not understood"),
        (["n", "{}"], "is not understood"),
        (["n"], "n has no type"),
        (["n", "int", "n", "int"], "named twice"),
        (["$n", "int"], "System columns|cannot|not allowed|Could not alter"),
    ],
)
def test_what_cannot_be_added_is_refused_and_the_table_stays_mounted(
    told, client, tmp, arguments, message
):
    path = create(client, f"{tmp}/t", [VALUE])
    code, said = told("add-column", path, *arguments)
    assert code == 2
    assert any(part in said for part in message.split("|")), said
    assert client.get(f"{path}/@tablet_state") == "mounted"
    assert not client.exists(f"{path}/@{ALTERING}")
    assert names(client, path) == ["v"]


def test_table_that_a_person_unmounted_stays_so(connection, client, table):
    client.unmount_table(table, sync=True)
    assert list(add_columns(connection, table, {"n": "int"}).added) == ["n"]
    assert client.get(f"{table}/@tablet_state") == "unmounted"
    client.mount_table(table, freeze=True, sync=True)
    with pytest.raises(TableNotMountedError):
        add_columns(connection, table, {"m": "int"})


class Dead(BaseException):
    """Raised instead of every request of a process that is dead."""


class Mortal:
    """Lets some requests of the client through, and no others, as if the process were killed."""

    def __init__(self, requests):
        self.left = requests
        self.thread = threading.get_ident()
        self.real = http_driver.make_request

    def __call__(self, *arguments, **options):
        if threading.get_ident() == self.thread:
            if not self.left:
                raise Dead
            self.left -= 1
        return self.real(*arguments, **options)


def test_killed_at_any_request_the_next_start_mounts_the_table(
    connection, client, tmp, monkeypatch
):
    """With the columns or without them, never in between; and no mark is left."""
    monkeypatch.setattr(alteration, "LEASE", timedelta(seconds=0.5))
    monkeypatch.setattr(alteration, "_LOOK_EVERY", timedelta(seconds=0.01))
    ended, states = [], set()
    for requests in range(4, 60):
        path = create(client, f"{tmp}/t{requests}", [KEY, VALUE])
        client.insert_rows(path, [{"k": 1, "v": "x"}])
        with mock.patch.object(http_driver, "make_request", Mortal(requests)):
            try:
                add_columns(connection, path, {"n": "int64"})
                ended.append(requests)
            except (Dead, TransientError):
                # On a busy machine the lease may end in between.
                pass
        states.add((client.get(f"{path}/@tablet_state"), len(names(client, path))))
        info = alteration.settled_table(connection, path)
        assert (info.tablet_state, info.altering) == ("mounted", "")
        assert [row["v"] for row in client.lookup_rows(path, [{"k": 1}])] == ["x"]
        if len(ended) > 1:
            break
    assert states == {("mounted", 2), ("unmounted", 2), ("unmounted", 3), ("mounted", 3)}
    assert ended


def test_columns_are_there_once_the_proxy_takes_rows_with_them(
    connection, client, tmp, monkeypatch
):
    """A proxy that knows the table as it was refuses a row with a new column."""
    path, refused, real = create(client, f"{tmp}/t", [KEY, VALUE]), [], TabletTransaction.insert

    def insert(self, path, rows):
        if len(refused) < 3:
            refused.append(rows)
            raise SchemaMismatchError('Could not write rows: No column "n" in table schema')
        real(self, path, rows)

    monkeypatch.setattr(TabletTransaction, "insert", insert)
    add_columns(connection, path, {"n": "int"})
    assert refused == [[{"n": None}]] * 3
    assert list(client.select_rows(f"* from [{path}]")) == []


def test_unmounted_table_that_another_process_alters_is_altered_again(connection, client, tmp):
    """The other process may have unmounted it; a column that this one did not see is no wish to remove it."""
    path = create(client, f"{tmp}/t", [VALUE])
    client.unmount_table(path, sync=True)

    def change(columns):
        add_columns(connection, path, {"theirs": "int"})
        return [*columns, {"name": "ours", "type_v3": {"type_name": "optional", "item": "int32"}}]

    with pytest.raises(ConflictError, match="Another process"):
        alteration.alter_columns(connection, path, change)
    add_columns(connection, path, {"ours": "int"})
    assert names(client, path) == ["v", "theirs", "ours"]


def test_several_processes_add_at_a_time(cluster, client, tmp):
    """Each gets its columns in, and nobody's are lost."""
    path = create(client, f"{tmp}/t", [VALUE])
    patient = RetryPolicy(attempts=30, max_wait=timedelta(seconds=0.5))

    def add(number):
        connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
        wanted = {f"n{number}": "int", "shared": "string"}
        run_attempts(
            lambda _: add_columns(connection, path, wanted), patient, lambda *_, **__: None
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert sorted(names(client, path)) == ["n0", "n1", "n2", "n3", "shared", "v"]
    assert client.get(f"{path}/@tablet_state") == "mounted"
    assert not client.exists(f"{path}/@{ALTERING}")
