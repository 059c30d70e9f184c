"""Rows that name their tables: all or none of a batch, which tables may be named, and what tools know."""

import ast
import json
import shlex

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampType
from yt.wrapper import YsonFormat

from tests.fan_out import (
    AMID_ROWS,
    BEFORE_MOUNT,
    SCHEMA,
    Given,
    connect,
    counts,
    deliver,
    die,
    ids_of,
    rows_of,
    running,
    spread,
)
from tests.local.operated import printed_by
from yt_exactly_once import Changes, Event, SinkOptions, Target, cli, create_table
from yt_exactly_once.commit.ledger import EARLIER_LEDGER_SCHEMA
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.errors import (
    AccessError,
    BatchTooLargeError,
    ConfigError,
    EncodingError,
    LedgerDivergedError,
    LedgerError,
    SchemaMismatchError,
    TableNotFoundError,
    TableNotMountedError,
    UnprovableError,
)
from yt_exactly_once.operations.audit.found import By, Verdict
from yt_exactly_once.operations.audit.run import audit
from yt_exactly_once.operations.ledgers import entries_of
from yt_exactly_once.operations.pruning import Use, judge_entries
from yt_exactly_once.operations.status import status
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import mode_of

KILLED_AT = (
    BEFORE_MOUNT,
    Event.TABLES_CREATED,
    Event.BATCH_STARTED,
    Event.LEDGER_READ,
    Event.BATCH_COMPUTED,
    Event.TRANSACTION_STARTED,
    AMID_ROWS,
    Event.ROWS_WRITTEN,
    Event.LEDGER_RECORDED,
    Event.TRANSACTION_COMMITTED,
    Event.BATCH_COMMITTED,
)
KEY = ["query_id", "target"]
COMMITTED = {Event.TRANSACTION_COMMITTED, Event.BATCH_COMMITTED}


@pytest.fixture
def fan(cluster, tmp):
    """What a sink needs whose rows name tables below a folder of the test."""

    class Fan:
        path = f"{tmp}/{{shop}}/orders"
        proxy = cluster.proxy_urls[0]
        connection = connect(cluster.proxy_urls[0])
        ledger = f"{tmp}/yt_exactly_once_ledger"

        def target(self, **options):
            return Target(self.path, **{"create": {}, **options})

        def table(self, shop):
            return f"{tmp}/{shop}/orders"

        def deliver(self, rows, number=0, *, given=None, **options):
            deliver(given or self.target(), rows, number, proxy=self.proxy, **options)

        def cli(self, *arguments):
            return printed_by(lambda: cli.main([*arguments, "--proxy", self.proxy]))

    return Fan()


@pytest.mark.further
@pytest.mark.timeout(300)
def test_batch_is_in_all_its_tables_or_in_none_wherever_its_driver_dies(fan, client):
    """200 tables, a process that is killed in each batch at a later moment, and the same batch again."""
    shops, rows = 200, 1_000
    paths = [fan.table(f"s{number}") for number in range(shops)]
    in_each = 0
    for number, moment in enumerate(KILLED_AT):
        batch = max(0, number - 2)
        assert die(moment, fan.target(), (shops, rows, batch), fan.proxy) == -9, moment
        visible = -1 if moment is BEFORE_MOUNT else in_each + 5 * (moment in COMMITTED)
        assert counts(fan.connection, paths) == {visible: shops}, moment
        if moment in {BEFORE_MOUNT, Event.TABLES_CREATED}:
            continue
        fan.deliver(spread(shops, rows, batch), batch, run=f"after {moment}")
        in_each += 5
        assert counts(fan.connection, paths) == {in_each: shops}, moment
    for shop in (0, 1, 199):
        wanted = range(shop, rows * (batch + 1), shops)
        assert ids_of(client, fan.table(f"s{shop}")) == [*wanted]
    assert fan.cli("audit", fan.path, "--by", "count")[0] == 0


def test_tables_are_created_with_columns_key_and_attributes(fan, client):
    """Of the DataFrame, and as `create` says; rows of a key replace each other."""
    given = fan.target(
        create={"key_columns": ["id"], "tablet_count": 2, "attributes": {"optimize_for": "scan"}}
    )
    fan.deliver(Given(rows_of(["a", "b", "a"]), rows_of(["a"])), given=given)
    for shop, ids in (("a", [0, 2]), ("b", [1])):
        path = fan.table(shop)
        assert ids_of(client, path) == ids
        assert client.get(f"{path}/@tablet_count") == 2
        assert client.get(f"{path}/@optimize_for") == "scan"
        assert [one["name"] for one in client.get(f"{path}/@schema")] == ["id", "shop"]


def test_column_that_a_table_lacks_is_not_written_if_the_path_names_it(fan, client):
    create_table(fan.table("a"), pa.schema([("id", pa.int64())]), proxy=fan.proxy)
    fan.deliver(Given(rows_of(["a", "b"])))
    assert ids_of(client, fan.table("a")) == [0]
    create_table(fan.table("c"), pa.schema([("shop", pa.string())]), proxy=fan.proxy)
    with pytest.raises(SchemaMismatchError) as raised:
        fan.deliver(Given(rows_of(["c"])), 1)
    assert raised.value.where["target"] == fan.table("c")


def test_ledger_has_one_entry_that_names_the_tables(fan):
    """With the rows of the last batch, and of all batches."""
    fan.deliver(Given(rows_of(["a", "a", "b"])))
    fan.deliver(Given(rows_of(["b", "c"])), 1)
    (row,) = entries_of(fan.connection, fan.path)
    assert row.ledger == fan.ledger
    assert row.entry.tally.rows == 2
    assert {path: one[:2] for path, one in row.entry.tally.tables.items()} == {
        fan.table("a"): (0, 2), fan.table("b"): (1, 2), fan.table("c"): (1, 1)
    }  # fmt: skip
    (of_table,) = entries_of(fan.connection, fan.table("b"))
    assert (of_table.entry.tally.rows, of_table.entry.tally.total_rows) == (1, 2)


def test_table_that_another_query_writes_by_its_path_has_the_rows_of_both(fan):
    """Their ledgers are in two folders."""
    create_table(fan.table("a"), SCHEMA, proxy=fan.proxy)
    one = Target(fan.table("a"), digest=True)
    fan.deliver(Given(rows_of(["a", "a"])), given=one, query="another")
    fan.deliver(Given(rows_of(["a", "b"])), given=fan.target(digest=True))
    for by in (By.COUNT, By.DIGEST):
        found = audit(fan.table("a"), by=by, connection=fan.connection)
        assert (found.rows, found.expected_rows, found.verdict) == (3, 3, Verdict.UNPROVEN)


def test_rest_of_a_batch_goes_into_the_tables_of_its_written_parts(fan, client, monkeypatch):
    """The tables lack the column that names them, so the rows of another one look the same."""
    for name in "abc":
        create_table(fan.table(name), "id bigint", proxy=fan.proxy)
    cut = {"split_oversized": True, "rows_per_tablet_limit": 1, "dyn_batch_size": 1}
    commit = BatchCommit._commit_part

    def commit_or_die(self, part):
        if part.number > 1:
            raise KeyboardInterrupt
        return commit(self, part)

    with monkeypatch.context() as patched:
        patched.setattr(BatchCommit, "_commit_part", commit_or_die)
        with pytest.raises(KeyboardInterrupt):
            fan.deliver(Given(rows_of("aabb")), given=Target(fan.path), **cut)
    with pytest.raises(LedgerDivergedError, match="differs from the 1 of its 2 parts"):
        fan.deliver(Given(rows_of("aacc")), given=Target(fan.path), run="later", **cut)
    fan.deliver(Given(rows_of("aabb")), given=Target(fan.path), run="last", **cut)
    assert [ids_of(client, fan.table(name)) for name in "abc"] == [[0, 1], [2, 3], []]


def test_table_that_is_gone_is_not_created_again(fan, client):
    """Its rows would be missing, without a word. In the same run, and after a restart."""
    fan.deliver(Given(rows_of(["a", "a", "b"])))
    client.remove(fan.table("a"))
    for number, run in ((1, "run"), (1, "later")):
        with pytest.raises(TableNotFoundError, match="no such table") as raised:
            fan.deliver(Given(rows_of(["a", "b"])), number, run=run)
        assert "has written 2 rows there" in raised.value.remedy
        assert raised.value.where["path"] == fan.table("a")
    assert ids_of(client, fan.table("b")) == [2]
    create_table(fan.table("a"), SCHEMA, proxy=fan.proxy)
    fan.deliver(Given(rows_of(["a", "b"])), 1, run="last")
    assert ids_of(client, fan.table("a")) == [0]
    assert "lacks 2" in fan.cli("status", fan.path)[1]


def test_table_that_was_replaced_gets_rows_that_are_encoded_for_it(fan, client, monkeypatch):
    """Whatever the run knows of the table that was there."""
    monkeypatch.setattr("yt_exactly_once.delivery.memory.LOOK_INTERVAL", -1.0)
    given = SinkOptions(fan.target(), proxy=fan.proxy)
    engine = Engine(mode_of(given, fan.connection))
    engine.deliver(running(0), Given(rows_of(["a", "b"])))
    client.remove(fan.table("a"))
    create_table(fan.table("a"), SCHEMA, key_columns=["id"], proxy=fan.proxy)
    engine.deliver(running(1), Given(rows_of(["a", "a", "b"])))
    assert ids_of(client, fan.table("a")) == [0, 1]
    assert ids_of(client, fan.table("b")) == [1, 2]


def test_table_that_is_not_there_stops_the_query_unless_it_is_to_be_created(fan):
    create_table(fan.table("a"), SCHEMA, proxy=fan.proxy)
    with pytest.raises(TableNotFoundError) as raised:
        fan.deliver(Given(rows_of(["a", "b"])), given=Target(fan.path))
    assert "the option create" in raised.value.remedy
    assert counts(fan.connection, [fan.table("a")]) == {0: 1}


def test_unmounted_table_with_rows_of_the_query_is_left_to_a_person(fan, client):
    """Somebody may have had a reason. The error has the command, and so has `repair`."""
    fan.deliver(Given(rows_of(["a", "b"])))
    client.unmount_table(fan.table("a"), sync=True)
    with pytest.raises(TableNotMountedError):
        fan.deliver(Given(rows_of(["a"])), 1, run="later")
    assert f"{fan.table('a')}: it is unmounted" in fan.cli("status", fan.path)[1]
    assert fan.cli("repair", fan.ledger, "--apply")[0] == 0
    assert client.get(f"{fan.table('a')}/@tablet_state") == "mounted"
    assert "it is unmounted" not in fan.cli("status", fan.path)[1]


NAMES = ["a", None, "../b", "", "a/b", "x" * 300, "a\n", "b"]


def test_rows_that_name_no_table_stop_the_batch_and_nothing_is_written(fan, client):
    """Nor created. No error shows the value."""
    with pytest.raises(EncodingError, match="6 rows name no table") as raised:
        fan.deliver(Given(rows_of(NAMES)))
    assert raised.value.where["column"] == "shop"
    assert not client.exists(fan.table("a"))


def test_rows_that_name_no_table_are_dead_letters_until_they_are_repaired(fan, client, tmp_path):
    """In the same transaction. A replay puts a letter into the table that its row names now."""
    letters = fan.path.partition("/{")[0] + "/letters"
    fan.deliver(Given(rows_of(NAMES)), dead_letter_path=letters)
    assert ids_of(client, fan.table("a")) == [0]
    assert ids_of(client, fan.table("b")) == [7]
    (row,) = entries_of(fan.connection, fan.path)
    assert (row.entry.tally.rows, row.entry.tally.rejected_rows) == (2, 6)

    code, text = fan.cli("dead-letters", "replay", letters)
    assert code == 1
    assert "0 can be written, 0 were replayed before, 6 do not fit" in text
    shown = json.loads(fan.cli("dead-letters", "show", letters, "--json")[1])
    for letter, shop in zip(shown, ["a", "b", "unheard of", "/", "a", "b"], strict=True):
        letter["row"]["shop"] = shop
    file = tmp_path / "letters.json"
    file.write_text(json.dumps(shown))
    text = fan.cli("dead-letters", "replay", letters, "--letters", str(file), "--apply")[1]
    assert "the query has written no table" in text
    assert ids_of(client, fan.table("a")) == [0, 1, 5]
    assert ids_of(client, fan.table("b")) == [7, 2, 6]
    assert fan.cli("audit", fan.path)[1].count("NOT proven") == 2, "counts agree"


USED = [
    "yt_exactly_once_ledger", "yt_exactly_once_ledger_claims", "other_producer", "past", "other",
    "other_tombstones",
]  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_row_names_no_table_that_the_sink_uses(fan, name, tmp):
    """Neither its own tables, which may be created later, nor another target."""
    create_table(f"{tmp}/other", SCHEMA, key_columns=["shop"], proxy=fan.proxy)
    other = Target(f"{tmp}/other", changes=Changes(sequence="id"))
    with pytest.raises(EncodingError, match="sink or its query uses"):
        fan.deliver(
            Given(rows_of([name])),
            given=[Target(f"{tmp}/{{shop}}", create={}), other],
            ledger_path=f"{tmp}/yt_exactly_once_ledger",
            history_path=f"{tmp}/past",
        )


def test_letters_of_a_table_without_the_column_that_names_it_are_replayed(
    fan, client, tmp, tmp_path
):
    """Of one that was found, and of one that was not."""
    letters = f"{tmp}/letters"
    create_table(fan.table("a"), [{"name": "id", "type": "uint64"}], proxy=fan.proxy)
    fan.deliver(Given(rows_of(["a", "a", "/"], first=-1)), dead_letter_path=letters)
    shown = json.loads(fan.cli("dead-letters", "show", letters, "--json")[1])
    assert {tuple(one["row"]) for one in shown} == {("id",), ("shop", "id")}
    for one in shown:
        one["row"] |= {
            "id": one["row"]["id"] + 8,
            **({"shop": "a"} if "shop" in one["row"] else {}),
        }
    file = tmp_path / "letters.json"
    file.write_text(json.dumps(shown))
    answer = fan.cli("dead-letters", "replay", letters, "--letters", str(file), "--apply")
    assert answer[0] == 0, answer
    assert sorted(ids_of(client, fan.table("a"))) == [0, 7, 9]


@pytest.mark.parametrize("name", ["letters", "letters_replayed"])
def test_row_names_no_table_of_dead_letters(fan, client, name, tmp):
    """Nor that of their replays: it is created by the first one."""
    letters = f"{tmp}/letters"
    fan.deliver(
        Given(rows_of([name, "a"])),
        given=Target(f"{tmp}/{{shop}}", create={}),
        dead_letter_path=letters,
    )
    assert client.get(f"{letters}/@tablet_count") == 1
    assert ids_of(client, f"{tmp}/a") == [1]
    (letter,) = client.select_rows(f"reason from [{letters}]", format=YsonFormat())
    assert "sink or its query uses" in letter["reason"]
    assert not client.exists(f"{letters}_replayed")


@pytest.mark.parametrize("create", [{"key_columns": ["id"], "tablet_count": 2}, None])
def test_table_that_is_gone_is_created_like_the_others_as_the_error_says(fan, client, create):
    """With their key: an ordered table would take each row as one more."""
    names = ["o'hara", "b"]
    for name in names:
        create_table(fan.table(name), SCHEMA, key_columns=["id"], proxy=fan.proxy)
    given = Target(fan.path, create=create)
    fan.deliver(Given(rows_of(names)), given=given)
    client.remove(fan.table(names[0]))
    with pytest.raises(TableNotFoundError) as raised:
        fan.deliver(Given(rows_of(names)), 1, given=given, run="next")
    said = raised.value.remedy.partition(", run: " if create is None else ", create it: ")[2]
    if create is None:
        assert fan.cli(*shlex.split(said)[1:])[0] == 0
    else:
        call = ast.parse(said, mode="eval").body
        options = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        path = ast.literal_eval(call.args[0])
        assert create_table(path, SCHEMA, proxy=fan.proxy, **options)
    fan.deliver(Given(rows_of(names)), 1, given=given, run="last")
    assert client.get(f"{fan.table(names[0])}/@key_columns") == ["id"]
    assert ids_of(client, fan.table(names[0])) == [0]


def test_local_time_is_no_key_of_a_table_that_somebody_has_created(fan, client):
    """Which columns are its key is known once a row names it."""

    class Local(Given):
        schema = StructType([StructField("shop", StringType()), StructField("at", TimestampType())])

        def local_times(self, target):  # noqa: ARG002 - the interface
            return ["at"]

    create_table(fan.table("a"), "at timestamp, shop string", key_columns=["at"], proxy=fan.proxy)
    at = pa.array([0, 1], pa.timestamp("us", "UTC"))
    rows = Local(pa.record_batch({"shop": ["a", "a"], "at": at}))
    with pytest.raises(ConfigError, match="at is a local time"):
        fan.deliver(rows, given=fan.target(create=None))
    assert list(client.select_rows(f"* from [{fan.table('a')}]")) == []


def test_batch_with_more_tables_than_it_may_have_creates_none(fan, client):
    with pytest.raises(BatchTooLargeError, match="name 5 tables or more, and max_tables is 4"):
        fan.deliver(Given(rows_of(list("abcde"))), given=fan.target(max_tables=4))
    assert not client.exists(fan.table("a"))
    fan.deliver(Given(rows_of(list("abcde"))), given=fan.target(max_tables=5), run="again")


def test_limit_of_a_tablet_holds_for_each_table(fan, client):
    """A batch is too large if one table has too many rows, and split where that is wanted."""
    rows = Given(rows_of(["a"] * 5 + ["b"] * 3))
    with pytest.raises(BatchTooLargeError, match="tablet 0") as raised:
        fan.deliver(rows, rows_per_tablet_limit=4)
    assert raised.value.where["target"] == fan.table("a")
    fan.deliver(rows, rows_per_tablet_limit=2, split_oversized=True, run="again")
    assert ids_of(client, fan.table("a")) == [0, 1, 2, 3, 4]
    assert ids_of(client, fan.table("b")) == [5, 6, 7]
    (row,) = entries_of(fan.connection, fan.path)
    assert row.entry.part_count == 3
    assert row.entry.tally.tables[fan.table("a")][:2] == (5, 5)


def test_requests_grow_by_one_for_each_table(fan, cluster):
    """All others are for all tables together: looks, creation and mounts."""
    given = SinkOptions(fan.target(), proxy=fan.proxy)
    engine, made, later = Engine(mode_of(given, fan.connection)), [], []
    for number, shops in enumerate((2, 52)):
        before = cluster.request_counts()
        engine.deliver(running(2 * number), spread(shops, 520, 0))
        made.append(cluster.request_counts() - before)
        before = cluster.request_counts()
        engine.deliver(running(2 * number + 1), spread(shops, 520, 0))
        later.append(cluster.request_counts() - before)
    inserts = "/api/v4/insert_rows"
    assert [one[inserts] for one in later] == [3, 53], "and the ledger"
    assert made[1]["/api/v4/execute_batch"] < 12
    assert later[1].total() - later[1][inserts] <= 4


def test_rows_of_one_table_keep_their_order_in_each_of_its_tablets(fan, client):
    """As in a target of its own: Spark partition i goes to tablet i."""
    names = ["a", "b"] * 4
    partitions = [rows_of(names, 10 * number) for number in range(3)]
    fan.deliver(Given(*partitions), given=fan.target(create={"tablet_count": 3}))
    for shop, offset in (("a", 0), ("b", 1)):
        query = f"id, [$tablet_index] as tablet from [{fan.table(shop)}]"
        found = [(row["tablet"], row["id"]) for row in client.select_rows(query)]
        assert sorted(found) == [(t, 10 * t + n) for t in range(3) for n in range(offset, 8, 2)]
        assert found == sorted(found)


def test_audit_of_a_table_counts_its_rows_and_proves_no_more(fan):
    """The queue has the rows of all tables, and the ledger no digest."""
    fan.deliver(Given(rows_of(["a", "a", "b"])))
    found = audit(fan.table("a"), connection=fan.connection)
    assert (found.rows, found.expected_rows, found.by) == (2, 2, By.COUNT)
    with pytest.raises(UnprovableError, match="those of all tables"):
        audit(fan.table("a"), by=By.SOURCE, connection=fan.connection)
    with pytest.raises(UnprovableError, match="no digest"):
        audit(fan.table("a"), by=By.DIGEST, connection=fan.connection)
    code, said = fan.cli("audit", fan.path, "--by", "count")
    assert (code, "to prove it: give the target digest=True" in said) == (0, True)


def test_audit_of_a_table_by_digest_proves_its_rows(fan, client):
    """Of a batch in parts, of several batches, and of a table that comes later; not if a batch had none."""
    given = fan.target(digest=True)
    limits = {"rows_per_tablet_limit": 2, "split_oversized": True}
    fan.deliver(Given(rows_of(["a"] * 5 + ["b"])), given=given, **limits)
    fan.deliver(Given(rows_of(["c", "a"], 6)), 1, given=given)
    assert "exact" in fan.cli("audit", fan.path)[1].splitlines()
    assert fan.cli("audit", fan.path)[0] == 0
    client.insert_rows(fan.table("b"), [{"shop": "b", "id": 1}])
    assert not audit(fan.table("b"), connection=fan.connection).exact
    fan.deliver(Given(rows_of(["a", "d"], 8)), 2)
    assert audit(fan.table("a"), connection=fan.connection).by is By.COUNT
    assert audit(fan.table("c"), connection=fan.connection).exact


def test_tools_know_the_query(fan, client):
    """The status has its tables, doctor looks at each, and prune keeps the entry while one is there."""
    fan.deliver(Given(rows_of(["a", "b"])))
    (one,) = status(fan.path, connection=fan.connection)
    (target,) = one.targets
    assert (target.path, target.state, target.rows) == (fan.path, "mounted", 2)
    assert [table.path for table in target.of_tables] == [fan.table("a"), fan.table("b")]
    assert one.problems == []
    assert status(fan.table("a"), connection=fan.connection)[0].row == one.row
    code, text = fan.cli("doctor", "--target", fan.path)
    assert (code, "has written 2 tables" in text, "unknown " in text) == (0, True, False)
    assert [each.use for each in judge_entries(fan.connection, fan.ledger)] == [Use.IN_USE]
    client.remove(fan.table("a"))
    assert [each.use for each in judge_entries(fan.connection, fan.ledger)] == [Use.IN_USE]
    assert "there is no table" in fan.cli("status", fan.path)[1]
    assert "there is nothing at" in fan.cli("doctor", "--target", fan.path)[1].lower()
    client.remove(fan.table("b"))
    assert [each.use for each in judge_entries(fan.connection, fan.ledger)] == [Use.TARGET_GONE]


def test_rights_of_the_page_are_enough_for_new_tables(fan, client, tmp):
    """On the folder, its account and its bundle; each table inherits those of the folder."""
    user = "robot-of-shops"
    client.create("user", attributes={"name": user}, ignore_existing=True)
    client.set(f"{tmp}/@inherit_acl", False)
    token = client.issue_token(user)

    def allow(*permissions):
        acl = [{"action": "allow", "subjects": [user], "permissions": [*permissions]}]
        client.set(f"{tmp}/@acl", acl)

    rights = ["read", "write", "mount"]
    for missing in rights:
        allow(*(each for each in rights if each != missing))
        with pytest.raises(AccessError) as raised:
            fan.deliver(Given(rows_of(["a", "b"])), run=f"without {missing}", token=token)
        assert f"permissions=[{missing}]" in raised.value.remedy
    allow(*rights)
    fan.deliver(Given(rows_of(["a", "b"])), token=token)
    assert counts(fan.connection, [fan.table("a"), fan.table("b")]) == {1: 2}


def test_doctor_says_which_rights_new_tables_would_need(fan, monkeypatch):
    """Only the sink knows whether it creates tables, so it is no problem."""
    fan.deliver(Given(rows_of(["a"])))
    folder = fan.path.partition("/{")[0]
    monkeypatch.setattr(
        "yt_exactly_once.operations.doctor.cluster.may",
        lambda _connection, _user, permission, path: (permission, path) != ("mount", folder),
    )
    code, said = fan.cli("doctor", "--target", fan.path)
    assert (code, f"lacks the permission mount on {folder}" in said) == (0, True)


def test_ledger_of_an_earlier_version_cannot_name_tables(fan):
    """It is refused before the first row. For one table it is as good as any."""
    create_table(fan.ledger, EARLIER_LEDGER_SCHEMA, key_columns=KEY, proxy=fan.proxy)
    with pytest.raises(LedgerError, match="lacks or misplaces tables"):
        fan.deliver(Given(rows_of(["a"])))
    create_table(fan.table("a"), SCHEMA, proxy=fan.proxy)
    fan.deliver(Given(rows_of(["a"])), given=Target(fan.table("a")), ledger_path=fan.ledger)
    assert counts(fan.connection, [fan.table("a")]) == {1: 1}


@pytest.mark.parametrize(("options", "what"), [
    ({"mode": "idempotent"}, "mode 'idempotent': its tasks write"),
    ({"mode": "at-least-once"}, "mode 'at-least-once': its tasks write"),
    ({"sent_by": "tasks"}, "a path with columns in braces exclude each other"),
])  # fmt: skip
def test_what_needs_the_tables_before_the_rows_is_refused(fan, options, what):
    with pytest.raises(ConfigError, match=what):
        fan.deliver(Given(), **options)


@pytest.mark.parametrize(("options", "what"), [
    ({"write": "replace"}, "write='replace' and a path"),
    ({"placement": "preserve"}, "placement and a path"),
    ({"create": {"keys": []}}, "create has no option keys"),
    ({"max_tables": 0}, "max_tables is 0"),
])  # fmt: skip
def test_option_of_a_target_that_tables_of_rows_cannot_have_is_refused(options, what):
    with pytest.raises(ConfigError, match=what):
        Target("//home/{shop}/orders", **options)


@pytest.mark.parametrize("options", [{"create": {}}, {"max_tables": 3}])
def test_option_of_tables_of_rows_is_refused_for_one_table(options):
    with pytest.raises(ConfigError, match="is for a path with columns in braces"):
        Target("//home/orders", **options)
