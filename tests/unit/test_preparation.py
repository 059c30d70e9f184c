"""What is checked and made before a sink writes its first row, on a cluster in memory and without Spark."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pyarrow as pa
import pytest
from yt.common import YtResponseError
from yt.wrapper.errors import YtResolveError
from yt.yson import to_yson_type

from tests.kinds import optional
from yt_exactly_once import Changes, RetryPolicy, Target, TransactionalSink
from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.batch import MicroBatch, SourceRange
from yt_exactly_once.commit.entry import LEDGER_VERSION
from yt_exactly_once.commit.ledger import LEDGER_MARK, LEDGER_SCHEMA
from yt_exactly_once.delivery.memory import Memory, Prepared
from yt_exactly_once.errors import (
    BatchTooLargeError,
    ClusterUnavailableError,
    ConfigError,
    ConsumerNotRegisteredError,
    LedgerError,
    NewerFormatError,
    RequestRefusedError,
    SchemaMismatchError,
    TableNotFoundError,
    TableNotMountedError,
)
from yt_exactly_once.observability import Event
from yt_exactly_once.spark.compat.plan import PlannedQuery, PlannedSource
from yt_exactly_once.spark.engine import preparation
from yt_exactly_once.spark.engine.preparation import (
    check_before_start,
    prepare,
    require_output_mode,
)
from yt_exactly_once.spark.schema import spark_schema_of
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.targets import are_the_same, prepare_target
from yt_exactly_once.ytsaurus import queues
from yt_exactly_once.ytsaurus.tombstones import ensure_tombstones, tombstones_of

TARGET, LEDGER, REJECTED = "//t", "//ledger", "//rejected"
ID = {"name": "id", "type_v3": "int64"}
KEY = ID | {"sort_order": "ascending"}
SUM = {"name": "n", "type_v3": optional("int64"), "aggregate": "sum"}
ANY = {"name": "a", "type_v3": optional("yson")}
NUMBER = {"name": "n", "type_v3": "int64"}


class Cluster:
    """Tables and registrations, and whether a proxy takes Arrow; its own connection and client."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.tables = {}
        self.registered = set()
        self.probes = []
        self.reader = self
        self.is_read_only = False

    def create(self, kind, path, *, attributes, recursive=False, ignore_existing=False):
        """Create a table, unmounted."""
        assert recursive
        assert ignore_existing
        schema = attributes["schema"]
        self.tables[path] = attributes | {
            "type": kind,
            "id": f"id-{len(self.tables)}",
            "sorted": any("sort_order" in column for column in schema),
            "tablet_count": 2,
            "tablet_state": "unmounted",
        }

    def table(self, path, schema):
        """Create a mounted table."""
        made = {"dynamic": True, "schema": schema}
        self.create("table", path, attributes=made, recursive=True, ignore_existing=True)
        self.mount_table(path, sync=True)

    def exists(self, path):
        """Say whether there is a table, or an attribute of one."""
        table, _, attribute = path.partition("/@")
        return table in self.tables and (not attribute or attribute in self.tables[table])

    def set(self, path, value):
        """Set an attribute of a table, if that is allowed."""
        if self.is_read_only:
            raise YtResponseError({"code": 901, "message": "Access denied"})
        table, _, attribute = path.partition("/@")
        self.tables[table][attribute] = value

    def get(self, path, attributes=None, max_size=None):  # noqa: ARG002
        """Return the attributes of a table, or the table with some."""
        if not self.exists(path.removesuffix("/@")):
            raise YtResolveError({"code": 500, "message": f"Node {path} has no child"})
        found = self.tables[path.removesuffix("/@")]
        if path.endswith("/@"):
            return found
        return to_yson_type(None, {name: found[name] for name in attributes if name in found})

    def mount_table(self, path, *, sync):
        assert sync
        self.tables[path]["tablet_state"] = "mounted"

    def list_queue_consumer_registrations(self, *, queue_path, consumer_path):
        """Return the registrations of a consumer for a queue."""
        return [True] if (consumer_path, queue_path) in self.registered else []

    def begin(self, _timeout):
        return self

    def write(self, path, payloads, wire):
        """Take Arrow, or refuse it."""
        assert [payload.row_count for payload in payloads] == [0]
        self.probes.append((path, wire))
        if self.refusal is not None:
            raise self.refusal

    def abort(self):
        self.probes.append("aborted")


def batch(*sources, output_mode="append"):
    return MicroBatch("query", 0, "run", sources, output_mode=output_mode)


def rows_of(local=(), planned=None):
    """Return a DataFrame of two numbers."""
    columns = spark_schema_of(pa.schema([(name, KINDS[name]) for name in ("id", "n")]))
    return SimpleNamespace(
        schema_for=lambda _: columns,
        planned=lambda: planned,
        local_times=lambda _: local,
        conf=lambda _: None,
    )


def prepared(cluster, batch, *targets, local=(), **options):
    """Prepare a run; return its targets and the events."""
    given = dict.fromkeys(("dead_letter_path", "ledger_attributes", "show_values"))
    given |= {"advance_consumer": True, "wire_format": "auto", "rows_per_tablet_limit": 9}
    options = SimpleNamespace(
        targets=targets,
        ledger=LEDGER,
        mode="transactional",
        source_position=None,
        effective_dyn_batch_size=lambda _: 9,
        **given | options,
    )
    mode = SimpleNamespace(options=options, connection=cluster, prepare=lambda *_: None)
    events = []
    found = prepare(
        SimpleNamespace(
            mode=mode,
            rows=rows_of(local),
            batch=batch,
            emit=lambda event, **fields: events.append((event, fields)),
        )
    )
    return found, events


def test_columns_that_are_left_out_are_an_event():
    """Of a target that has them all there is none."""
    told = Event.COLUMNS_IGNORED, {"path": TARGET, "columns": ("n",)}
    for schema, expected in (([ID], [told]), ([ID, NUMBER], [])):
        cluster = with_target(*schema)
        _, events = prepared(cluster, batch(), Target(TARGET, on_new_columns="ignore"))
        assert [one for one in events if one[0] != Event.LEDGER_CREATED] == expected


def test_every_target_is_checked_before_the_first_row():
    """Nothing is made then, and the tombstones of changes otherwise."""
    cluster, changes = with_target(KEY, NUMBER), Target(TARGET, changes=Changes(sequence="n"))
    with pytest.raises(ConfigError, match="for output mode complete"):
        prepared(cluster, batch(), Target(TARGET, write="replace"))
    with pytest.raises(ConfigError, match="n is a local time"):
        prepared(cluster, batch(), changes, local=["n"])
    assert cluster.tables.keys() == {TARGET}
    prepared(cluster, batch(), Target(TARGET))
    assert cluster.tables.keys() == {TARGET, LEDGER}
    prepared(cluster, batch(), changes)
    assert cluster.tables.keys() == {TARGET, LEDGER, tombstones_of(TARGET)}


@pytest.mark.parametrize("known", [None, Prepared(None, (), "id", float("-inf"))])
def test_first_batch_of_a_run_asks_for_the_proxy_once(monkeypatch, known):
    """A wrong address is named at once. Later attempts and batches leave the client its patience."""
    done, answers = [], [ClusterUnavailableError("away"), ()]

    def answer(_):
        done.append("prepare")
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(preparation, "prepare", answer)
    monkeypatch.setattr(preparation, "require_cluster", lambda _: "id")
    connection = SimpleNamespace(
        require_proxy=lambda: done.append("proxy"), unpin=lambda: done.append("unpin")
    )
    options = SinkOptions(TARGET, proxy="x", retry=RetryPolicy(first_wait=timedelta(0)))
    delivery = SimpleNamespace(
        mode=SimpleNamespace(options=options, connection=connection),
        rows=SimpleNamespace(schema="schema"),
        memory=Memory("run", known),
        emit=lambda *_, **__: None,
    )
    found = preparation.prepare_again(delivery)
    assert (found.schema, found.targets, found.cluster_id) == ("schema", (), "id")
    assert done == [*(["proxy"] if known is None else []), "prepare", "unpin", "prepare"]


def test_ledger_is_created_and_mounted_once():
    """With the attributes it was asked to have; the event says so."""
    cluster = Cluster()
    attributes = {"tablet_cell_bundle": "b"}
    _, events = prepared(cluster, batch(), ledger_attributes=attributes)
    assert events == [(Event.LEDGER_CREATED, {"path": LEDGER})]
    ledger = cluster.tables[LEDGER]
    assert ledger["schema"] == LEDGER_SCHEMA
    assert (ledger["tablet_state"], ledger["tablet_cell_bundle"]) == ("mounted", "b")
    assert prepared(cluster, batch()) == ((), [])


def test_ledger_that_a_person_created_gets_the_mark_by_which_tools_find_it():
    """Who may not set it writes without: the mark is for tools."""
    cluster = Cluster()
    cluster.table(LEDGER, LEDGER_SCHEMA)
    cluster.is_read_only = True
    prepared(cluster, batch())
    assert LEDGER_MARK not in cluster.tables[LEDGER]
    cluster.is_read_only = False
    prepared(cluster, batch())
    assert cluster.tables[LEDGER][LEDGER_MARK] == LEDGER_VERSION


def test_ledger_of_a_newer_version_is_refused():
    """Whatever columns it has; before a query starts, and in its first batch."""
    cluster = Cluster()
    cluster.table(LEDGER, [KEY])
    cluster.tables[LEDGER][LEDGER_MARK] = LEDGER_VERSION + 1
    options = SimpleNamespace(targets=(), ledger=LEDGER, dead_letter_path=None)
    for start in (
        lambda: prepared(cluster, batch()),
        lambda: check_before_start(
            SimpleNamespace(options=options, connection=cluster), None, None
        ),
    ):
        with pytest.raises(NewerFormatError, match="run that version again"):
            start()


def checked(cluster, target=TARGET, *, output_mode=None, planned=None, local=(), **options):
    """Check before the start; return what the mode was asked of the query, and see that nothing is made."""
    before, asked = [*cluster.tables], []
    options = SinkOptions(target, proxy="x", **{"ledger_path": LEDGER} | options)
    mode = SimpleNamespace(
        options=options,
        connection=cluster,
        require_query=lambda *given, shuffles: asked.append((*given, shuffles)),
    )
    check_before_start(mode, rows_of(local, planned), output_mode)
    assert [*cluster.tables] == before
    return asked


@pytest.mark.parametrize("output_mode", [None, "Complete", "append"])
def test_output_mode_is_checked_before_the_start_if_it_is_given(output_mode):
    """As it is in the first batch."""
    cluster, target = with_target(KEY, SUM), Target(TARGET, write="replace")
    if output_mode == "append":
        with pytest.raises(ConfigError, match="for output mode complete"):
            checked(cluster, target, output_mode=output_mode)
    else:
        checked(cluster, target, output_mode=output_mode)


def test_local_time_in_a_key_is_refused_before_the_start():
    checked(with_target(KEY, NUMBER), local=["n"])
    with pytest.raises(ConfigError, match="id is a local time"):
        checked(with_target(KEY, NUMBER), local=["id"])


def test_tables_of_the_sink_that_are_there_are_checked_before_the_start():
    """The first batch mounts what is unmounted, and nobody else unfreezes what is frozen."""
    cluster = with_target(ID, NUMBER)
    cluster.table(LEDGER, LEDGER_SCHEMA)
    cluster.table(REJECTED, REJECT_SCHEMA)
    for path in (LEDGER, REJECTED):
        for state in ("frozen", "unmounted"):
            cluster.tables[path]["tablet_state"] = state
            frozen = pytest.raises(TableNotMountedError, match=path)
            with frozen if state == "frozen" else nullcontext():
                checked(cluster, dead_letter_path=REJECTED)
    for path, error in ((LEDGER, LedgerError), (REJECTED, ConfigError)):
        cluster.table(path, [ID])
        with pytest.raises(error, match=path):
            checked(cluster, dead_letter_path=REJECTED)
        del cluster.tables[path]


def test_tombstones_that_are_gone_are_missed_before_the_start():
    """A late change would bring a deleted key back."""
    cluster, target = with_target(KEY, NUMBER), Target(TARGET, changes=Changes(sequence="n"))
    checked(cluster, target)
    ensure_tombstones(cluster, TARGET, target.changes)
    del cluster.tables[tombstones_of(TARGET)]
    with pytest.raises(TableNotFoundError, match="tombstones of the target are gone"):
        checked(cluster, target)


READ = PlannedSource("//q", "//c", "x")


@pytest.mark.parametrize(
    ("sources", "others"),
    [((READ,), ""), ((READ, PlannedSource("//q")), ""), ((READ, PlannedSource()), "others")],
)
@pytest.mark.parametrize(
    ("schema", "columns"), [([ID, NUMBER], {TARGET: ["id", "n"]}), ([KEY, NUMBER], {})]
)
def test_mode_is_asked_before_the_start_whether_it_can_write_the_query(
    sources, others, schema, columns
):
    """The columns of an ordered target decide how its rows are numbered."""
    cluster = with_target(*schema)
    planned = PlannedQuery(sources, stateful=True, shuffles=True)
    ((query, given, shuffles),) = checked(cluster, planned=planned, advance_consumer=False)
    assert [(one.queue, one.consumer) for one in query.sources] == [
        (one.queue, one.consumer or None) for one in sources if one.queue
    ]
    assert (query.stateful, query.others, given, shuffles) == (True, others, columns, True)


@pytest.mark.parametrize("consumer", ["//c", ""])
def test_queue_that_is_read_twice_is_refused_before_the_start(consumer):
    """Two consumers of a queue are two sources; so are two sources that are no queues."""
    once = PlannedSource("//q", consumer)
    sources = (once, PlannedSource("//q", "//other"), PlannedSource(), PlannedSource())
    query = PlannedQuery(sources, stateful=False, shuffles=False)
    checked(with_target(ID, NUMBER), planned=query, advance_consumer=False)
    with pytest.raises(ConfigError, match="reads one queue twice"):
        checked(with_target(ID, NUMBER), planned=replace(query, sources=(once, *sources)))


def test_consumer_that_the_sink_moves_must_be_registered_before_the_start(monkeypatch):
    """Only the cluster of the sink can say so."""
    monkeypatch.setattr(queues.time, "sleep", lambda _: None)
    cluster = with_target(ID, NUMBER)
    cluster.table("//c", [])
    cluster.tables["//c"]["treat_as_queue_consumer"] = True

    def check(source, **options):
        checked(cluster, planned=PlannedQuery((source,), stateful=False, shuffles=False), **options)

    check(PlannedSource("//q"))
    check(replace(READ, proxy="elsewhere"))
    check(READ, advance_consumer=False)
    for source in (READ, replace(READ, proxy="")):
        with pytest.raises(ConsumerNotRegisteredError):
            check(source)
    cluster.registered.add(("//c", "//q"))
    check(READ)


def test_dead_letter_table_is_created_where_it_is_asked_for():
    """Not otherwise; it is ready for the first rejected row."""
    cluster = Cluster()
    prepared(cluster, batch())
    assert cluster.tables.keys() == {LEDGER}
    for _ in range(2):
        prepared(cluster, batch(), dead_letter_path=REJECTED)
    found = cluster.tables[REJECTED]
    assert (found["schema"], found["tablet_state"]) == (REJECT_SCHEMA, "mounted")


def test_consumer_must_be_registered_if_the_sink_advances_it(monkeypatch):
    """The first commit would fail otherwise, after all rows were sent."""
    monkeypatch.setattr(queues.time, "sleep", lambda _: None)
    cluster = Cluster()
    cluster.table("//c", [])
    cluster.tables["//c"]["treat_as_queue_consumer"] = True
    read = batch(SourceRange("local", "//q", "//c", ()))
    with pytest.raises(ConsumerNotRegisteredError):
        prepared(cluster, read)
    prepared(cluster, read, advance_consumer=False)
    cluster.registered.add(("//c", "//q"))
    prepared(cluster, read)


def test_queue_that_is_read_without_a_consumer_needs_no_registration():
    """There is nothing to advance."""
    prepared(Cluster(), batch(SourceRange("local", "//q", None, ())))


KINDS = {"id": pa.int64(), "n": pa.int64(), "a": pa.string(), "gone": pa.bool_()}


def target(cluster, wire="auto", more=(), sink=None, **options):
    """Prepare the target for a DataFrame with its columns, and maybe more."""
    names = [*(column["name"] for column in cluster.tables[TARGET]["schema"]), *more]
    schema = spark_schema_of(pa.schema([(name, KINDS[name]) for name in names]))
    return prepare_target(
        cluster,
        Target(TARGET, **options),
        schema,
        SinkOptions(TARGET, proxy="x", wire_format=wire, rows_per_tablet_limit=10, **(sink or {})),
    )


def with_target(*schema, refusal=None):
    cluster = Cluster(refusal)
    cluster.table(TARGET, list(schema))
    return cluster


@pytest.mark.parametrize(
    ("schema", "options", "why"),
    [
        ([ID], {"update_columns": True}, "update_columns needs a sorted target"),
        ([ID], {"write": "replace"}, "write='replace' needs a sorted target"),
        ([ID], {"delete_marker": "id"}, "delete_marker needs a sorted target"),
        ([ID], {"aggregate": True}, "aggregate needs a sorted target"),
        ([ID], {"write": "upsert"}, "'upsert' is for sorted targets, this one is ordered"),
        ([KEY, SUM], {"write": "append"}, "'append' is for ordered targets, this one is sorted"),
        ([KEY, ANY], {"aggregate": True}, "this one has none"),
        ([KEY, ANY], {"delete_marker": "gone"}, "DataFrame has no such column"),
        ([KEY, ANY], {"delete_marker": "id"}, "DataFrame has a column of type int64"),
        ([KEY, ANY], {"placement": "round_robin"}, "placement needs an ordered target"),
    ],
)
def test_option_that_contradicts_the_table_is_refused(schema, options, why):
    """Before anything is sent, not even a probe."""
    cluster = with_target(*schema)
    with pytest.raises(ConfigError, match=why):
        target(cluster, **options)
    assert cluster.probes == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "('//t', df.schema)"),
        ({"delete_marker": "gone"}, "('//t', df.drop('gone').schema, key_columns=['KEY'])"),
        ({"write": "upsert"}, "('//t', df.schema, key_columns=['KEY'])"),
        (
            {"changes": Changes(sequence="n")},
            "('//t', df.schema, key_columns=['KEY'], changes=CHANGES)",
        ),
    ],
)
def test_target_that_is_missing_is_to_be_created_with_the_key_that_its_options_need(
    options, wanted
):
    """Created without one it would be refused, with the advice to leave the option out."""
    with pytest.raises(TableNotFoundError) as raised:
        prepare_target(
            Cluster(),
            Target(TARGET, **options),
            spark_schema_of(pa.schema([("id", pa.int64())])),
            SinkOptions(TARGET, proxy="x"),
        )
    assert raised.value.remedy.endswith(f"yt_exactly_once.create_table{wanted}")


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ([ID], {}),
        ([ID], {"write": "append", "placement": "round_robin"}),
        ([KEY, SUM], {"write": "upsert"}),
        ([KEY, SUM], {"update_columns": True, "aggregate": True}),
        ([KEY, SUM], {"write": "replace"}),
    ],
)
def test_option_that_fits_the_table_is_accepted(schema, options):
    """The target knows what it was prepared for."""
    found = target(with_target(*schema), **options)
    assert (found.path, found.tablet_count, found.rows_per_tablet_limit) == (TARGET, 2, 10)
    assert found.is_sorted is ("sort_order" in schema[0])


def test_delete_marker_is_no_column_of_the_table():
    """It travels with the rows and is not written."""
    found = target(with_target(KEY, SUM), more=["gone"], delete_marker="gone")
    assert set(found.plan.names) == {"id", "n"}


def numbered_by(*columns):
    return {"mode": "idempotent", "source_position": columns}


@pytest.mark.parametrize("more", [["a", "n"], ["a"]])
def test_source_position_is_written_where_the_table_has_it(more):
    """It numbers the rows either way."""
    schema = [ID] if "n" in more else [ID, NUMBER]
    found = target(with_target(*schema), more=more, sink=numbered_by("a", "n"))
    assert found.plan.names == tuple(column["name"] for column in schema)


@pytest.mark.parametrize(
    ("schema", "columns", "why"),
    [
        ([KEY, SUM], ("id", "n"), "for ordered targets, this one is sorted"),
        ([ID], ("a", "offset"), "names offset, and the DataFrame has no such column"),
        ([ID], ("n", "a"), "names a, which has the type string"),
        ([ID], ("gone", "n"), "names gone, which has the type bool"),
    ],
)
def test_source_position_that_cannot_number_rows_is_refused(schema, columns, why):
    """Before the first row."""
    has = {column["name"] for column in schema}
    more = [name for name in KINDS if name not in has]
    with pytest.raises(ConfigError, match=why):
        target(with_target(*schema), more=more, sink=numbered_by(*columns))


@pytest.mark.parametrize(
    ("schema", "wire", "refusal", "chosen"),
    [
        ([ID], "auto", None, WireFormat.ARROW),
        ([ID], "arrow", None, WireFormat.ARROW),
        ([ID], "auto", RequestRefusedError("no"), WireFormat.YSON),
        ([ID], "auto", SchemaMismatchError("no"), WireFormat.YSON),
    ],
)
def test_arrow_is_used_if_the_proxy_takes_it(schema, wire, refusal, chosen):
    """It is asked with an empty request, whose transaction is aborted whatever the answer."""
    cluster = with_target(*schema, refusal=refusal)
    assert target(cluster, wire).wire is chosen
    assert cluster.probes == [(TARGET, WireFormat.ARROW), "aborted"]


@pytest.mark.parametrize(("column", "wire"), [(SUM, "yson"), (ANY, "auto"), (ANY, "yson")])
def test_proxy_is_not_asked_about_arrow_that_cannot_be_used(column, wire):
    """By the option, or by a column that some proxies would store as something else."""
    cluster = with_target(KEY, column)
    assert target(cluster, wire).wire is WireFormat.YSON
    assert cluster.probes == []


@pytest.mark.parametrize(
    ("column", "refusal", "why"),
    [
        (SUM, RequestRefusedError("no"), "does not take these rows as Arrow"),
        (ANY, None, "cannot be sent as Arrow"),
    ],
)
def test_arrow_that_was_asked_for_and_cannot_be_used_is_an_error(column, refusal, why):
    """Nothing else is chosen silently."""
    cluster = with_target(KEY, column, refusal=refusal)
    with pytest.raises(ConfigError, match=why):
        target(cluster, "arrow")


def test_target_is_the_same_until_it_is_recreated_or_altered():
    """Rows are encoded for the columns it had."""
    cluster = with_target(ID)
    known = target(cluster)
    assert are_the_same(cluster, [known])
    cluster.tables[TARGET]["schema"] = [ID, ANY]
    assert not are_the_same(cluster, [known])
    cluster.tables[TARGET] |= {"schema": [ID], "id": "another"}
    assert not are_the_same(cluster, [known])


def test_target_with_more_or_fewer_tablets_is_looked_at_again():
    """A table of more tablets gets rows in all of them, and none goes to a tablet that is gone."""
    cluster = with_target(ID)
    known = target(cluster)
    cluster.tables[TARGET]["tablet_count"] += 1
    assert not are_the_same(cluster, [known])


@pytest.mark.parametrize(
    ("rows", "refused"),
    [
        ({0: 10, 1: 10}, None),
        ({0: 11}, "11 rows for tablet 0"),
        ({None: 20}, None),
        ({None: 21}, "21 rows for 2 tablets"),
    ],
)
def test_batch_that_one_transaction_cannot_carry_is_refused(rows, refused):
    """By tablet where it is known; else by all of them together."""
    known = target(with_target(ID))
    if refused is None:
        known.require_room(rows)
        return
    with pytest.raises(BatchTooLargeError, match=refused):
        known.require_room(rows)


@pytest.mark.parametrize(
    ("options", "output_mode", "why"),
    [
        ({"write": "replace"}, "append", "for output mode complete, and this query has append"),
        ({"write": "replace"}, None, "depends on the output mode"),
        ({"aggregate": True}, None, "depends on the output mode"),
        ({"aggregate": True}, "complete", "would add the whole result again"),
        ({"write": "replace"}, "complete", None),
        ({"aggregate": True}, "update", None),
        ({}, None, None),
    ],
)
def test_result_is_replaced_only_if_complete_and_added_up_only_if_not(options, output_mode, why):
    """An unknown output mode matters to these two alone."""
    given = batch(output_mode=output_mode), Target(TARGET, **options)
    if why is None:
        require_output_mode(*given)
        return
    with pytest.raises(ConfigError, match=why):
        require_output_mode(*given)


@pytest.mark.parametrize("options", [{}, {"write": "replace"}, {"changes": Changes(sequence="n")}])
def test_batch_that_is_too_large_is_split_only_where_it_can_be(options):
    """What an error says to do is no option that the sink refuses."""
    cluster = Cluster()
    cluster.table(TARGET, [KEY, NUMBER])
    columns = spark_schema_of(pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    given = Target(TARGET, **options)
    prepared = prepare_target(cluster, given, columns, SinkOptions(TARGET, proxy="x"))
    with pytest.raises(BatchTooLargeError) as raised:
        prepared.require_room({None: 10**9})
    advised = "split_oversized=True" in raised.value.remedy
    assert advised is not bool(options), raised.value.remedy
    if not advised:
        with pytest.raises(ConfigError, match="exclude each other"):
            TransactionalSink(given, proxy="x", split_oversized=True)
