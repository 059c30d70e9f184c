"""The tombstones of a target with changes: what makes them useless is found, and said how it is repaired."""

import json
import re
import shlex

import pytest

from tests import remedies
from tests.changed_target import Changed, ChangedTarget
from tests.fan_out import running
from tests.flows import columns, create_table
from tests.local.operated import printed_by, run_yt
from yt_exactly_once import Changes, SinkOptions, cli
from yt_exactly_once.errors import (
    AccessError,
    BatchTooLargeError,
    ConfigError,
    TableError,
    TableNotFoundError,
    TableNotMountedError,
    UnprovableError,
)
from yt_exactly_once.operations.audit.found import By, Verdict
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.operations.doctor import tables as doctor_tables
from yt_exactly_once.operations.doctor.run import examine
from yt_exactly_once.operations.doctor.subject import Level, Subject
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.ytsaurus.tables import TOMBSTONES

TYPES = {"key": "int64", "lsn": "int64?"}


class Kept(ChangedTarget):
    """A target whose tombstones somebody breaks, and repairs as is said."""

    followed = ()

    def cli(self, *arguments):
        return printed_by(lambda: cli.main([*arguments, "--proxy", self.proxy]))

    def follow(self, text):
        """Run the commands of an advice as they are printed."""
        self.followed = [*self.followed, text]
        for command in remedies.COMMAND.findall(text):
            program, *words = shlex.split(command)
            code, said = run_yt(self.proxy, words) if program == "yt" else self.cli(*words)
            assert code == 0, said

    def replace(self, types=None, keys=("key",), **attributes):
        """Put another table in the place of the tombstones."""
        self.client.remove(self.beside, force=True)
        given = {"min_data_versions": 0, "max_data_ttl": 86_400_000, **attributes}
        create_table(self.client, self.beside, columns(types or TYPES, keys), **given)

    def copied(self, path):
        """Copy a table, and return where the copy is."""
        self.client.freeze_table(path, sync=True)
        self.client.copy(path, f"{path}_copy")
        self.client.unfreeze_table(path, sync=True)
        self.client.mount_table(f"{path}_copy", sync=True)
        return f"{path}_copy"

    def findings(self, *levels, **known):
        subject = Subject(cluster=self.connection.config, targets=(self.path,), **known)
        return [one for one in examine(subject) if one.level in levels]


@pytest.fixture
def kept(cluster, client, tmp):
    return Kept(client, cluster.proxy_urls[0], f"{tmp}/customers").filled()


def test_target_is_marked_with_its_tombstones_and_their_sequence(kept, client):
    assert client.get(f"{kept.path}/@{TOMBSTONES}") == {
        "id": client.get(f"{kept.beside}/@id"),
        "sequence": ["lsn"],
    }
    assert (kept.rows, kept.tombstones) == ({1: "Ann"}, {2: 20})


def _put_back(kept):
    copy = kept.copied(kept.beside)
    kept.client.unmount_table(copy, sync=True)
    kept.client.remove(kept.beside)
    kept.client.move(copy, kept.beside)
    kept.client.mount_table(kept.beside, sync=True)


LOST = {
    "removed": (lambda kept: kept.client.remove(kept.beside), "are gone", False),
    "created anew": (lambda kept: kept.replace(), "were replaced by another table", False),
    "put back": (_put_back, "were replaced by another table", True),
}
"""What happens to tombstones, what is said, and whether they are known again once that is followed."""


@pytest.mark.parametrize("how", LOST)
def test_lost_tombstones_stop_the_query_until_a_person_decides(kept, how):
    """An empty table in their place would let a late insert bring the key back, without a word."""
    act, what, is_known = LOST[how]
    act(kept)
    late = 2, 15, "c", "Bob"
    with pytest.raises(TableNotFoundError, match=what) as raised:
        kept.write(late, number=1)
    assert raised.value.where == {"path": kept.beside, "target": kept.path}
    assert kept.rows == {1: "Ann"}
    kept.follow(raised.value.remedy)
    kept.write(late, number=1)
    assert kept.rows == {1: "Ann"} | ({} if is_known else {2: "Bob"})
    assert remedies.unfollowed("tombstones gone", kept.followed) == []


def test_copy_of_a_target_has_no_tombstones_of_its_own(kept, client):
    """Whoever continues with the copy is told that they did not come along."""
    copy = Kept(client, kept.proxy, kept.copied(kept.path))
    with pytest.raises(TableNotFoundError, match="are gone"):
        copy.write((2, 15, "c", "Bob"))


def test_new_target_takes_the_tombstones_that_are_there(kept, client):
    """They are true of the source, whatever happens to the target."""
    client.remove(kept.path)
    kept.create()
    kept.write((1, 10, "c", "Ann"), (2, 15, "c", "Bob"), number=1)
    assert kept.rows == {1: "Ann"}
    assert client.get(f"{kept.path}/@{TOMBSTONES}/id") == client.get(f"{kept.beside}/@id")


def test_tombstones_that_go_while_the_query_runs_stop_it(kept, monkeypatch):
    """At the next look at the tables."""
    monkeypatch.setattr("yt_exactly_once.delivery.memory.LOOK_INTERVAL", -1.0)
    engine = Engine(mode_of(SinkOptions(kept.target(), proxy=kept.proxy), kept.connection))
    engine.deliver(running(1), Changed((3, 30, "c", "Eve")))
    kept.replace()
    with pytest.raises(TableNotFoundError, match="were replaced"):
        engine.deliver(running(2), Changed((2, 15, "c", "Bob")))
    assert kept.rows == {1: "Ann", 3: "Eve"}


def test_another_sequence_is_refused_for_a_target_that_has_one(kept):
    """Its rows and its tombstones were compared by the first."""
    kept.changes = Changes(sequence="name", operation="op")
    with pytest.raises(TableError, match="was lsn, and is name now") as raised:
        kept.write((1, 9, "c", "Zoe"), number=1)
    assert TOMBSTONES in raised.value.remedy
    assert kept.rows == {1: "Ann"}


def test_row_without_a_sequence_is_refused_where_rows_are_changes(kept):
    """Of a sink, and of a replay of dead letters: a late one would replace a newer one."""
    rows = kept.target(changes=None, on_new_columns="ignore")
    with pytest.raises(ConfigError, match="changes with the sequence lsn") as raised:
        kept.write((1, 9, "c", "late"), number=1, given=rows)
    kept.follow(raised.value.remedy)
    kept.write((1, 9, "c", "late"), number=1, given=rows)
    assert kept.rows == {1: "late"}


SHAPES = {
    "another key": ({"other": "int64", "lsn": "int64?"}, ("other",)),
    "a longer key": ({"key": "int64", "more": "int64?", "lsn": "int64?"}, ("key", "more")),
    "no sequence": ({"key": "int64", "pos": "int64?"}, ("key",)),
    "a sequence of another type": ({"key": "int64", "lsn": "utf8?"}, ("key",)),
    "a column that nobody fills": ({"key": "int64", "lsn": "int64?", "more": "int64"}, ("key",)),
    "an ordered table": (TYPES, ()),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_table_that_cannot_keep_tombstones_is_refused(kept, client, shape):
    """The doctor says the same. Without it the first batch writes as ever."""
    kept.replace(*SHAPES[shape])
    client.remove(f"{kept.path}/@{TOMBSTONES}")
    with pytest.raises(TableError, match="cannot serve as the tombstones") as raised:
        kept.write((3, 30, "d", None), number=1)
    (found,) = kept.findings(Level.PROBLEM, changes=kept.changes)
    assert (found.check, found.repair) == ("table of tombstones", raised.value.remedy)
    kept.follow(raised.value.remedy)
    kept.write((3, 30, "d", None), number=1)
    assert kept.tombstones == {3: 30}
    assert remedies.unfollowed("tombstones of another shape", kept.followed) == []


def test_sequence_that_became_wider_in_the_target_becomes_so_beside_it(cluster, client, tmp):
    """Otherwise a delete could not be remembered."""
    path, narrow = f"{tmp}/narrow", {"key": "int64", "name": "utf8?", "lsn": "int32?"}
    create_table(client, path, columns(narrow, ["key"]))
    kept = Kept(client, cluster.proxy_urls[0], path)
    create_table(client, kept.beside, columns({"key": "int64", "lsn": "int32?"}, ["key"]))
    client.insert_rows(kept.beside, [{"key": 7, "lsn": 70}])
    client.unmount_table(path, sync=True)
    client.alter_table(path, columns({**narrow, "lsn": "int64?"}, ["key"]))
    client.mount_table(path, sync=True)
    kept.write((1, 2**40, "d", None), (7, 60, "c", "late"))
    assert (kept.rows, kept.tombstones) == ({}, {1: 2**40, 7: 70})


def warnings_of(kept):
    return [one for one in kept.findings(Level.WARNING) if one.check == "table of tombstones"]


def _resharded(kept, path, *pivots):
    """Cut a table at these keys, and let a tablet take four rows of a transaction."""
    kept.client.unmount_table(path, sync=True)
    kept.client.set(f"{path}/@max_rows_per_transaction", 4)
    kept.client.reshard_table(path, [[], *([key] for key in pivots)], sync=True)
    kept.client.mount_table(path, sync=True)


def test_deletes_need_as_many_tablets_beside_the_target(kept, client):
    """Whoever reshards the target hears of it from the doctor, or before a batch with too many of them."""
    deletes = [(key, 40, "d", None) for key in (1, 2, 3, 11, 12, 21, 22)]
    _resharded(kept, kept.path, 10, 20)
    _resharded(kept, kept.beside)
    (warned,) = warnings_of(kept)
    assert "1 tablet" in warned.what
    with pytest.raises(BatchTooLargeError, match=r"7 deletes, .* 1 tablets") as raised:
        kept.write(*deletes, number=1, rows_per_tablet_limit=4)
    assert raised.value.remedy == f"Run: {warned.repair}"
    kept.follow(raised.value.remedy)
    kept.write(*deletes, number=1, rows_per_tablet_limit=4)
    assert (kept.rows, len(kept.tombstones)) == ({}, 7)
    assert client.get(f"{kept.beside}/@pivot_keys") == client.get(f"{kept.path}/@pivot_keys")
    assert warnings_of(kept) == []
    assert remedies.unfollowed("fewer tablets for tombstones", kept.followed) == []


@pytest.mark.parametrize("deletes", [False, True])
def test_changes_that_one_tablet_cannot_take_are_not_told_to_be_split(kept, deletes):
    """Before they are sent, and where the cluster refuses those that meet in one tablet."""
    changes = [(key, 40, "d" if deletes else "u", "name") for key in range(5)]
    for path in (kept.path, kept.beside):
        _resharded(kept, path, 10)
    for limit, what in ((2, "5 rows for 2 tablets"), (4, "more rows|too many rows")):
        with pytest.raises(BatchTooLargeError, match=what) as raised:
            kept.write(*changes, number=1, rows_per_tablet_limit=limit)
        assert re.search("give .*target,? .*more tablets", raised.value.remedy, re.IGNORECASE)
    for path in (kept.path, kept.beside):
        _resharded(kept, path, 3, 10)
    kept.write(*changes, number=1, rows_per_tablet_limit=4)


# Tools


def _never_end(kept):
    kept.client.remove(f"{kept.beside}/@max_data_ttl")


def _expire(kept):
    kept.client.set(f"{kept.beside}/@expiration_timeout", 3_600_000)


FAULTS = {
    "removed": (LOST["removed"][0], Level.PROBLEM, "Restore"),
    "replaced": (LOST["created anew"][0], Level.PROBLEM, "Restore"),
    "unmounted": (
        lambda kept: kept.client.unmount_table(kept.beside, sync=True),
        Level.PROBLEM,
        "mount-table",
    ),
    "frozen": (
        lambda kept: kept.client.freeze_table(kept.beside, sync=True),
        Level.PROBLEM,
        "unfreeze-table",
    ),
    "never end": (_never_end, Level.WARNING, "@max_data_ttl"),
    "expire as a whole": (_expire, Level.PROBLEM, "@expiration_timeout"),
}


def test_doctor_finds_nothing_wrong_with_healthy_tombstones(kept):
    assert kept.findings(Level.PROBLEM, Level.UNKNOWN) == []
    (said,) = [one.what for one in kept.findings(Level.OK) if one.check == "table of tombstones"]
    assert said == f"The table of tombstones {kept.beside} is mounted, and keeps each for 30 days"


@pytest.mark.parametrize("fault", FAULTS)
def test_doctor_finds_what_is_wrong_with_tombstones(kept, fault):
    """With the command that repairs it."""
    act, level, repair = FAULTS[fault]
    act(kept)
    (found,) = [
        one for one in kept.findings(Level.PROBLEM, Level.WARNING) if "tombstones" in one.check
    ]
    assert (found.level, found.why != "") == (level, True)
    assert repair in found.repair
    kept.follow(found.repair)
    kept.write(number=1)
    assert [
        one for one in kept.findings(Level.PROBLEM, Level.WARNING) if "tombstones" in one.check
    ] == []
    assert fault != "never end" or remedies.unfollowed("tombstones never end", kept.followed) == []


def test_doctor_says_what_a_query_needs_before_its_first_start(cluster, client, tmp):
    """Only who names the sequence has changes. The operation is no column of the target."""
    kept = Kept(client, cluster.proxy_urls[0], f"{tmp}/customers").create()
    frame = ["--schema", "key bigint not null, name string, lsn bigint, op string"]
    code, said = kept.cli("doctor", "--target", kept.path, *frame)
    assert (code, "tombstones" in said) == (1, False)
    asked = ["--changes-sequence", "lsn", "--changes-operation", "op"]
    code, said = kept.cli("doctor", "--target", kept.path, *frame, *asked)
    assert (code, f"no tombstones at {kept.beside} yet" in said) == (0, True), said
    assert kept.cli("doctor", "--target", kept.path, *asked[2:])[0] == 2


def test_doctor_names_tombstones_that_cannot_be_read(kept, monkeypatch):
    real = doctor_tables.attributes_of

    def guarded(connection, path, names):
        if path == kept.beside:
            raise AccessError("Access denied", remedy="Ask for the right")
        return real(connection, path, names)

    monkeypatch.setattr(doctor_tables, "attributes_of", guarded)
    (found,) = kept.findings(Level.PROBLEM)
    assert (found.check, found.repair) == ("table of tombstones", "Ask for the right")


def test_doctor_asks_for_rights_on_tombstones(kept, monkeypatch):
    monkeypatch.setattr(
        "yt_exactly_once.operations.doctor.cluster.may",
        lambda _connection, _user, permission, path: (permission, path) != ("write", kept.beside),
    )
    (found,) = kept.findings(Level.PROBLEM)
    assert f"lacks the permission write on {kept.beside}" in found.what


def test_status_and_repair_know_tombstones(kept, client):
    """What is unmounted is mounted. What is gone is for a person."""
    shown = json.loads(kept.cli("status", kept.ledger, "--json")[1])
    (target,) = shown[0]["targets"] if isinstance(shown, list) else shown["queries"][0]["targets"]
    assert target["tombstones"] == {"path": kept.beside, "state": "mounted", "problem": ""}
    client.unmount_table(kept.beside, sync=True)
    assert f"{kept.beside}: it is unmounted. Run: " in kept.cli("status", kept.path)[1]
    assert kept.cli("repair", kept.ledger, "--apply")[0] == 0
    assert client.get(f"{kept.beside}/@tablet_state") == "mounted"
    assert "unmounted" not in kept.cli("status", kept.path)[1]
    client.remove(kept.beside)
    assert "tombstones of the target are gone" in kept.cli("status", kept.path)[1]
    code, said = kept.cli("repair", kept.ledger, "--apply")
    assert (code, "tombstones of the target are gone" in said) == (2, True), said


def test_frozen_tombstones_stop_the_query(kept, client):
    client.freeze_table(kept.beside, sync=True)
    with pytest.raises(TableNotMountedError) as raised:
        kept.write((3, 30, "c", "Eve"), number=1)
    kept.follow(raised.value.remedy)
    kept.write((3, 30, "c", "Eve"), number=1)


def allow(client, path, user, *permissions):
    """Let a user have these permissions, and nobody else any."""
    acl = [{"action": "allow", "subjects": [user], "permissions": [*permissions]}]
    client.set(f"{path}/@inherit_acl", False)
    client.set(f"{path}/@acl", acl if permissions else [])


def test_rights_of_the_page_are_enough_and_each_is_needed(cluster, client, tmp):
    """The user of a query reads and writes the target and its tombstones, which somebody else has created."""
    kept = Kept(client, cluster.proxy_urls[0], f"{tmp}/customers").create()
    user = "robot-of-tombstones"
    client.create("user", attributes={"name": user}, ignore_existing=True)
    command = ["create-ledger", kept.path, "--writer", user, "--changes-sequence", "lsn"]
    assert kept.cli(*command)[0] == 0
    allow(client, kept.path, user, "read", "write")
    token = client.issue_token(user)
    kept.write((1, 10, "c", "Ann"), (2, 20, "d", None), token=token)
    for path in (kept.path, kept.beside):
        for missing, left in (("read", "write"), ("write", "read")):
            allow(client, path, user, left)
            with pytest.raises(AccessError) as raised:
                kept.write((1, 30, "d", None), number=1, token=token)
            assert f"permissions=[{missing}]" in raised.value.remedy
            assert path in raised.value.remedy
        allow(client, path, user, "read", "write")
    kept.write((1, 30, "d", None), number=1, token=token)
    assert (kept.rows, kept.tombstones) == ({}, {1: 30, 2: 20})


# Audit


def test_audit_of_changes_says_what_it_cannot_prove(kept):
    """Rows that were deleted stay so; whether a change is missing nobody can tell."""
    found = audit(kept.path, connection=kept.connection)
    assert (found.by, found.verdict) == (By.SEQUENCE, Verdict.UNPROVEN)
    assert (found.tombstones, found.rows, found.outlived) == (1, 0, 0)
    assert kept.cli("audit", kept.path)[0] == 1
    code, said = kept.cli("audit", kept.path, "--by", "sequence")
    assert (code, said.splitlines()[-1]) == (0, "NOT proven")
    assert "not proven: that no change is missing" in said


@pytest.mark.parametrize("lsn", [19, 20, None])
def test_audit_finds_a_row_that_is_older_than_the_delete_of_its_key(kept, client, lsn):
    """It is of a copy that was put back, or of another writer."""
    client.insert_rows(kept.path, [{"key": 2, "name": "Bob", "lsn": lsn}])
    found = audit(kept.path, connection=kept.connection)
    assert (found.verdict, found.rows, found.outlived) == (Verdict.WRONG, 1, 1)
    code, said = kept.cli("audit", kept.path, "--by", "sequence")
    assert (code, said.splitlines()[-1]) == (1, "NOT exact")


def test_audit_lets_a_newer_row_of_a_deleted_key_pass(kept):
    """Its tombstone is no longer needed, and does no harm."""
    kept.write((2, 21, "c", "Bob"), (3, 5, "d", None), number=1)
    found = audit(kept.path, connection=kept.connection)
    assert (found.tombstones, found.rows, found.outlived) == (2, 1, 0)


@pytest.mark.parametrize("by", [By.SOURCE, By.DIGEST, By.COUNT])
def test_audit_refuses_what_needs_all_rows(kept, by):
    with pytest.raises(UnprovableError, match="the newest one alone") as raised:
        audit(kept.path, by=by, connection=kept.connection)
    assert "--by sequence" in raised.value.remedy


def test_audit_by_sequence_needs_changes(cluster, client, tmp):
    kept = Kept(client, cluster.proxy_urls[0], f"{tmp}/rows").create()
    kept.write((1, 10, "c", "Ann"), given=kept.target(changes=None, on_new_columns="ignore"))
    with pytest.raises(UnprovableError, match="has no tombstones"):
        audit(kept.path, by=By.SEQUENCE, connection=kept.connection)


# Creating


def test_tombstones_are_created_with_a_table_or_with_rights_of_their_own(kept, client, tmp):
    given = ["--changes-sequence", "lsn", "--changes-operation", "op"]
    schema = ["--schema", "key bigint, lsn bigint, op string", "--key", "key"]
    assert kept.cli("create-table", f"{tmp}/orders", *schema, *given)[0] == 0
    assert [one["name"] for one in client.get(f"{tmp}/orders/@schema")] == ["key", "lsn"]
    assert client.get(f"{tmp}/orders_tombstones/@tablet_state") == "mounted"
    client.create("user", attributes={"name": "robot-of-changes"}, ignore_existing=True)
    command = [
        "create-ledger",
        f"{tmp}/orders",
        "--writer",
        "robot-of-changes",
        *given[:2],
        "--json",
    ]
    code, said = kept.cli(*command)
    assert (code, json.loads(said)[f"{tmp}/orders_tombstones"]) == (0, False)
    assert not client.get(f"{tmp}/orders_tombstones/@inherit_acl")
    acl = client.get(f"{tmp}/orders_tombstones/@acl")
    assert ["read", "write"] in [one["permissions"] for one in acl]
