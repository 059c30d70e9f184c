"""`doctor`: a healthy query has no faults, and each planted fault is found, explained and can be repaired."""

import json
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.cluster_fixtures import served
from tests.contract import tables
from tests.local.operated import Operated
from tests.local.pipelines import Pipeline
from yt_exactly_once import Changes, cli
from yt_exactly_once.commit.claims import CLAIMS_SCHEMA
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA
from yt_exactly_once.commit.other_sources import OtherSources
from yt_exactly_once.config import ClusterConfig, DeliveryMode
from yt_exactly_once.errors import AccessError, ClusterUnavailableError, RetriesExhaustedError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.operations.doctor import cluster as around
from yt_exactly_once.operations.doctor import driver
from yt_exactly_once.operations.doctor import tables as doctor_tables
from yt_exactly_once.operations.doctor.run import examine
from yt_exactly_once.operations.doctor.subject import Level, Queue, Subject
from yt_exactly_once.ytsaurus.client import Connection

TEXT, KEY = tables.VALUE, tables.KEY
RETAINED, SPECULATION = "spark.sql.streaming.minBatchesToRetain", "spark.speculation"
CONF = {"spark.driver.maxResultSize": "1g", RETAINED: "100"}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(proxies=2) as running:
        yield running


@pytest.fixture
def healthy(cluster, client, tmp):
    """A query that can start: a queue with rows, a vital consumer, a target with room."""
    create(client, f"{tmp}/queue", tablet_count=2)
    client.insert_rows(f"{tmp}/queue", [{"v": "x" * 100, "$tablet_index": 0}] * 10)
    client.create("queue_consumer", f"{tmp}/consumer")
    client.register_queue_consumer(f"{tmp}/queue", f"{tmp}/consumer", vital=True)
    create(client, f"{tmp}/target")
    return Subject(
        cluster=ClusterConfig(proxy=cluster.proxy_urls[0]),
        queues=(Queue(f"{tmp}/queue", f"{tmp}/consumer"),),
        targets=(f"{tmp}/target",),
        max_rows_per_partition=10_000,
        conf=CONF,
        conf_origin="--conf",
    )


def create(client, path, schema=(TEXT,), **attributes):
    tables.create(client, path, schema, mount=attributes.get("dynamic", True), **attributes)


def recreate(client, path, schema=(TEXT,), **attributes):
    client.remove(path, force=True)
    create(client, path, schema, **attributes)


def faults(subject, connect=Connection):
    """Return the findings that are bad, without what only this machine is to blame for."""
    found = list(examine(subject, connect=connect))
    bad = [finding for finding in found if finding.level in {Level.PROBLEM, Level.WARNING}]
    assert all(finding.why and finding.repair for finding in bad)
    assert [finding for finding in found if finding.level is Level.UNKNOWN] == []
    return bad


def test_healthy_query_has_no_faults(healthy):
    """Everything is named that was examined."""
    found = list(examine(healthy))
    assert {finding.level for finding in found} <= {Level.OK, Level.NOTE}
    assert {"proxy", "permission", "clock", "queue", "registration", "target", "batch size"} <= {
        finding.check for finding in found
    }


WARN, FAIL = Level.WARNING, Level.PROBLEM


def set_vital(client, at, vital):
    client.register_queue_consumer(at.queue, at.consumer, vital=vital)


def advance(client, at, offset):
    client.advance_queue_consumer(at.consumer, at.queue, 0, None, offset)


def expire(client, path):
    client.set(f"{path}/@min_data_versions", 0)
    client.set(f"{path}/@max_data_ttl", 60_000)


IN_TABLES = {
    "target missing": (lambda c, at: c.remove(at.target), "target", FAIL, "create_table"),
    "target static": (lambda c, at: recreate(c, at.target, dynamic=False), "target", FAIL, "alter-table"),
    "target unmounted": (lambda c, at: c.unmount_table(at.target, sync=True), "target", FAIL, "mount-table"),
    "target frozen": (lambda c, at: c.freeze_table(at.target, sync=True), "target", FAIL, "unfreeze-table"),
    "target without atomicity": (
        lambda c, at: recreate(c, at.target, atomicity="none"), "target", FAIL, "@atomicity full",
    ),
    "target a directory": (
        lambda c, at: (c.remove(at.target), c.create("map_node", at.target)),
        "target", FAIL, "Check the path",
    ),
    "ledger of another kind": (lambda c, at: create(c, f"{at.target}_ledger"), "ledger", FAIL, "ledger_path"),
    "ledger unmounted": (
        lambda c, at: (create(c, f"{at.target}_ledger"), c.unmount_table(f"{at.target}_ledger", sync=True)),
        "ledger", FAIL, "mount-table",
    ),
    "queue missing": (lambda c, at: c.remove(at.queue), "queue", FAIL, "Check the path"),
    "queue sorted": (lambda c, at: recreate(c, at.queue, [KEY, TEXT]), "queue", FAIL, "ordered dynamic"),
    "queue unmounted": (lambda c, at: c.unmount_table(at.queue, sync=True), "queue", FAIL, "mount-table"),
    "consumer missing": (lambda c, at: c.remove(at.consumer), "consumer", FAIL, "create-consumer"),
    "consumer a table": (lambda c, at: recreate(c, at.consumer), "consumer", FAIL, "create-consumer"),
    "consumer unmounted": (
        lambda c, at: c.unmount_table(at.consumer, sync=True), "consumer", FAIL, "mount-table",
    ),
    "not registered": (
        lambda c, at: c.unregister_queue_consumer(at.queue, at.consumer),
        "registration", FAIL, "register-queue-consumer",
    ),
    "not vital": (lambda c, at: set_vital(c, at, False), "registration", WARN, "--vital"),
    "not vital, and trimmed": (
        lambda c, at: (set_vital(c, at, False), c.set(f"{at.queue}/@auto_trim_config", {"enable": True})),
        "registration", FAIL, "--vital",
    ),
    "rows trimmed": (
        lambda c, at: (advance(c, at, 2), c.trim_rows(at.queue, 0, 5)),
        "offset", FAIL, "fail_on_data_loss",
    ),
    "consumer beyond the end": (lambda c, at: advance(c, at, 99), "offset", FAIL, "yt-exactly-once rewind"),
    "rows expire": (lambda c, at: expire(c, at.queue), "retention", WARN, "@max_data_ttl"),
    "rows of the consumer expire": (
        lambda c, at: expire(c, at.consumer), "retention", FAIL, "/consumer/@max_data_ttl",
    ),
    "ledger expires": (
        lambda c, at: (
            create(c, f"{at.target}_ledger", LEDGER_SCHEMA, expiration_timeout=60_000_000)
        ),
        "retention", FAIL, "_ledger/@expiration_timeout",
    ),
    "claims expire": (
        lambda c, at: (
            create(c, f"{at.target}_ledger_claims", CLAIMS_SCHEMA),
            expire(c, f"{at.target}_ledger_claims"),
        ),
        "table of claims", FAIL, "_ledger_claims/@max_data_ttl",
    ),
    "rows of the producer expire": (
        lambda c, at: (create(c, f"{at.target}_producer", [KEY, TEXT]), expire(c, f"{at.target}_producer")),
        "retention", FAIL, "_producer/@max_data_ttl",
    ),
}  # fmt: skip
"""Faults on the cluster: how one is planted, and the check, level and repair of what alone is found."""


def plant(client, subject, fault):
    (target,), (queue,) = subject.targets, subject.queues
    at = SimpleNamespace(target=target, queue=queue.path, consumer=queue.consumer)
    act, *expected = IN_TABLES[fault]
    act(client, at)
    return expected


@pytest.mark.further
@pytest.mark.parametrize("fault", IN_TABLES)
def test_fault_in_tables_is_found(client, healthy, fault):
    """With the command that repairs it."""
    check, level, repair = plant(client, healthy, fault)
    # Whoever may write in the folder may write the target and the ledger that is planted there.
    besides = {"batch size", "ledger rights"}
    (found,) = [finding for finding in faults(healthy) if finding.check not in besides]
    assert (found.check, found.level) == (check, level)
    assert repair in found.repair


@pytest.mark.parametrize(
    ("changes", "check", "level"),
    [
        ({"max_rows_per_partition": 60_000}, "batch size", FAIL),
        ({"max_rows_per_partition": None}, "batch size", WARN),
        ({"rows_per_tablet": 1_000}, "batch size", FAIL),
        ({"frame": pa.schema([("v", pa.int64())])}, "columns", FAIL),
        ({"conf": {RETAINED: "2"}}, RETAINED, WARN),
        ({"conf": {RETAINED: " ", SPECULATION: ""}}, RETAINED, FAIL),
        ({"conf": {"spark.driver.maxResultSize": "1m"}}, "spark.driver.maxResultSize", WARN),
        ({"conf": {"spark.driver.maxResultSize": "much"}}, "spark.driver.maxResultSize", FAIL),
        ({"conf": {"spark.yt.write.dynBatchSize": "many"}}, "spark.yt.write.dynBatchSize", FAIL),
        ({"conf": {SPECULATION: "true"}, "mode": DeliveryMode.AT_LEAST_ONCE}, SPECULATION, WARN),
    ],
    ids=lambda value: json.dumps(value, default=str) if isinstance(value, dict) else "",
)
def test_setting_that_does_not_fit_is_found(healthy, changes, check, level):
    """A batch that is too large for the target, the driver or a worker, and settings of Spark."""
    (found,) = faults(replace(healthy, **changes))
    assert (found.check, found.level) == (check, level)


def test_batch_is_not_said_to_be_split_where_the_sink_refuses_it(client, healthy):
    """Changes come together. In the modes of tasks no batch is too large."""
    large = replace(healthy, max_rows_per_partition=60_000)
    (found,) = faults(large)
    assert "split_oversized=True" in found.repair
    assert faults(replace(large, mode=DeliveryMode.AT_LEAST_ONCE)) == []
    (target,) = healthy.targets
    recreate(client, target, [KEY, TEXT])
    changed = replace(large, changes=Changes(sequence="v"), mode=DeliveryMode.TRANSACTIONAL)
    (found,) = (one for one in faults(changed) if one.check == "batch size")
    assert "split_oversized" not in found.repair
    assert found.repair.endswith("or add tablets")


@pytest.mark.parametrize(("kind", "level"), [(pa.bool_(), None), (pa.string(), FAIL), (None, FAIL)])
def test_column_that_deletes_is_no_column_of_the_target(healthy, kind, level):
    """As the sink sees it. Without the option it is a column that the table lacks."""
    more = [] if kind is None else [("gone", kind)]
    frame = pa.schema([("v", pa.string()), *more])
    found = faults(replace(healthy, frame=frame, delete_marker="gone"))
    assert [one.level for one in found if one.check == "columns"] == ([level] if level else [])
    if kind is not None:
        (unknown,) = (
            one for one in faults(replace(healthy, frame=frame)) if one.check == "columns"
        )
        assert "does not fit" in unknown.what


def test_rows_of_a_sorted_target_may_go_to_one_tablet(client, healthy):
    """There is room in all tablets together, and not in each."""
    (target,) = healthy.targets
    recreate(client, target, [KEY, TEXT], pivot_keys=[[], [5]])
    (found,) = faults(replace(healthy, max_rows_per_partition=90_000))
    assert (found.check, found.level) == ("batch size", WARN)


@pytest.mark.parametrize(
    ("path", "attributes", "check"),
    [
        ("//sys/tablet_cell_bundles/default", {"health": "degraded"}, "tablet cell bundle"),
        (
            "//sys/accounts/tmp",
            {
                "resource_limits": {"node_count": 9, "disk_space_per_medium": {"default": 5}},
                "resource_usage": {"node_count": 1, "disk_space_per_medium": {"default": 5}},
            },
            "account",
        ),
    ],
    ids=["bundle", "account"],
)
def test_fault_around_the_tables_is_found(healthy, monkeypatch, path, attributes, check):
    """Whoever's fault it is, a table that suffers is named."""
    real = around.attributes_of
    monkeypatch.setattr(
        around,
        "attributes_of",
        lambda connection, at, names: attributes if at == path else real(connection, at, names),
    )
    (found,) = faults(healthy)
    assert (found.check, found.level) == (check, FAIL)
    assert "/queue" in found.what or "/target" in found.what


class Denying(Connection):
    """A cluster that allows everything except writes of the consumer."""

    @property
    def reader(self):
        client = super().reader
        client.check_permission = lambda _user, permission, path: {
            "action": "deny" if (permission, path[-9:]) == ("write", "/consumer") else "allow"
        }
        return client


def test_missing_permission_is_found(healthy):
    """With the entry that an administrator sets."""
    (found,) = faults(healthy, connect=Denying)
    assert (found.check, found.level) == ("permission", FAIL)
    assert "lacks the permission write on " in found.what
    assert "permissions=[write]" in found.repair


def test_table_that_may_not_be_looked_at_hides_no_other_one(healthy, monkeypatch):
    """It says what that means for the query, and the targets after it are examined."""
    (target,) = healthy.targets
    real = doctor_tables.attributes_of

    def guarded(connection, path, names):
        if path == f"{target}_first":
            raise AccessError("Access denied", remedy="Ask for the right")
        return real(connection, path, names)

    monkeypatch.setattr(doctor_tables, "attributes_of", guarded)
    found = list(examine(replace(healthy, targets=(f"{target}_first", target))))
    told = [(one.level, one.why) for one in found if one.check == "target"]
    assert told == [(FAIL, "The query would be refused in the same way"), (Level.OK, "")]


def test_permission_that_cannot_be_asked_for_is_not_granted(healthy, monkeypatch):
    """Each is unknown, and nothing says that all are there."""

    def refuse(*_args):
        raise AccessError("no", remedy="Ask")

    monkeypatch.setattr(around, "may", refuse)
    found = [one.level for one in examine(healthy) if one.check == "permission"]
    assert set(found) == {Level.UNKNOWN}


_ACL = [
    {
        "action": "allow",
        "subjects": [subject],
        "permissions": permissions,
        "inheritance_mode": "object_and_descendants",
    }
    for subject, permissions in (
        ("robot", ["read", "write"]),
        ("people", ["read"]),
        ("root", ["read", "write", "administer", "remove", "mount"]),
    )
]


def test_tables_of_a_sink_are_created_with_rights_of_their_own(client, healthy, told):
    """A second call changes nothing, a table that is there gets the rights, and a sink can use them all."""
    (target,) = healthy.targets
    command = ["create-ledger", target, "--mode", "idempotent", "--dead-letter", f"{target}_bad"]
    client.create("user", attributes={"name": "robot"}, ignore_existing=True)
    client.create("group", attributes={"name": "people"}, ignore_existing=True)
    command += ["--writer", "robot", "--reader", "people", "--json"]
    ready = replace(healthy, mode=DeliveryMode.IDEMPOTENT, dead_letter=f"{target}_bad")
    for is_new in (True, False):
        code, created = told(*command)
        names = [f"{target}_{name}" for name in ("ledger", "producer", "bad")]
        assert (code, created) == (0, dict.fromkeys(names, is_new))
        for path in created:
            assert client.get(f"{path}/@acl") == _ACL
            assert not client.get(f"{path}/@inherit_acl")
            if is_new:
                client.set(f"{path}/@inherit_acl", True)
                client.set(f"{path}/@acl", [])
    assert faults(ready) == []


def test_ledger_without_writers_is_not_created(client, healthy, told):
    """Nobody could use it."""
    (target,) = healthy.targets
    code, said = told("create-ledger", target)
    assert (code, "--writer" in said) == (2, True)
    assert not client.exists(f"{target}_ledger")


@pytest.mark.parametrize(
    ("on_ledger", "found"),
    [
        ({"robot": "write", "etl": "write"}, ["etl"]),
        ({"robot": "write", "etl": "read"}, []),
        ({"etl": "administer write"}, []),
    ],
    ids=["as the target", "read only", "operators"],
)
def test_those_who_can_forge_a_ledger_entry_are_named(
    healthy, client, monkeypatch, on_ledger, found
):
    """They may write the target, so nothing else keeps them from it."""
    (target,) = healthy.targets
    create(client, f"{target}_ledger", LEDGER_SCHEMA)
    rights = {target: {"root": "write", "etl": "write"}, f"{target}_ledger": on_ledger}
    real = around.attributes_of

    def told(connection, path, names):
        if names != ["effective_acl"]:
            return real(connection, path, names)
        entries = [
            {"action": "allow", "subjects": [subject], "permissions": permissions.split()}
            for subject, permissions in rights[path].items()
        ]
        return {"effective_acl": entries}

    monkeypatch.setattr(around, "attributes_of", told)
    named = [fault for fault in faults(healthy) if fault.check == "ledger rights"]
    assert [fault.what.split()[0] for fault in named] == found
    assert all(fault.repair.startswith("yt-exactly-once create-ledger") for fault in named)


@pytest.mark.parametrize("error", [AccessError, ClusterUnavailableError])
def test_refused_token_is_one_problem(healthy, monkeypatch, error):
    """Not one for each question that the cluster does not answer then; nor is no answer no problem."""

    def refuse(_connection):
        raise error("the proxy refused the token", remedy="Pass a valid token")

    monkeypatch.setattr(around, "user_of", refuse)
    found = [one for one in examine(healthy) if one.level not in {Level.OK, Level.NOTE}]
    assert [(one.check, one.level) for one in found] == [
        ("token", FAIL),
        ("cluster", Level.UNKNOWN),
    ]
    assert ("No token is set" in found[0].what) == (error is AccessError)


# Faults of addresses and of this machine.


@pytest.fixture
def serve():
    """Start a web server that answers with a status, and the JSON for its path; return its address."""
    with ExitStack() as started:
        yield lambda status, answers=None: started.enter_context(
            served(lambda path: (status, answers and answers[path]))
        )


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (404, "is no proxy of YTsaurus: it answers GET /api with HTTP 404"),
        (401, "refused the token"),
        (503, "answers HTTP 503"),
        (302, "redirects to"),
    ],
)
def test_address_of_another_server_is_found(serve, status, what):
    """The address is in the message, and nothing else is reported as broken."""
    address = serve(status)
    (bad,) = faults_of_address(address)
    assert bad.check == "proxy"
    assert what in bad.what
    assert address in bad.what


def test_other_commands_say_it_too(serve, capsys):
    """Before a request of theirs fails for a reason that nobody understands."""
    assert cli.main(["status", "--proxy", serve(404)]) == 2
    assert "is no proxy of YTsaurus" in capsys.readouterr().err


def test_address_that_leads_nowhere_is_found(monkeypatch):
    """A port that nobody listens at, and a name that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    (down,) = faults_of_address(address)
    assert f"does not answer (Connection refused) [proxy=http://{address}]" in down.what

    def unknown(*_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("YT_PROXY", "no.such.name:80")
    (unresolved,) = faults_of_address("no.such.name:80")
    assert "no.such.name does not resolve" in unresolved.what


def faults_of_address(address):
    found = examine(Subject(cluster=ClusterConfig(proxy=address)))
    return [finding for finding in found if finding.level is FAIL]


def test_listed_proxy_that_cannot_be_reached_is_found(healthy, monkeypatch):
    """The others are fine."""
    listed = around.proxies_of
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setattr(around, "proxies_of", lambda *args: [*listed(*args), dead])
    (found,) = faults(healthy)
    assert (found.check, found.level) == ("http proxies", WARN)
    assert dead in found.what


def test_fault_of_this_machine_is_found(healthy, monkeypatch, tmp_path):
    """Java, packages, and the clock."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(driver, "requires", lambda _: ["pyarrow>=999", "no-such-package"])
    now = time.time
    monkeypatch.setattr(around.time, "time", lambda: now() + 60)
    assert [(finding.check, finding.level) for finding in faults(healthy)] == [
        ("java", WARN),
        ("package pyarrow", FAIL),
        ("package no-such-package", FAIL),
        ("clock", WARN),
    ]


# The command.


def test_command_takes_settings_and_prints_findings(healthy, told, tmp_path, monkeypatch):
    """The exit code says whether there is a problem."""
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# comment\nspark.driver.maxResultSize  much\nspark.speculation=true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (queue,), (target,) = healthy.queues, healthy.targets
    arguments = ["doctor", "--json", "--target", target]
    arguments += ["--queue", queue.path, "--consumer", queue.consumer]
    arguments += ["--max-rows-per-partition", "1000", "--backend", "rpc"]
    code, found = told(*arguments)
    assert (code, found["problems"]) == (1, 1)
    (bad,) = [finding for finding in found["findings"] if finding["level"] == "problem"]
    assert str(defaults) in bad["what"]
    assert told(*arguments, "--conf", "spark.driver.maxResultSize=2g")[0] == 0


def test_settings_and_failures_are_read_from_a_running_driver(healthy, serve):
    """As Spark's own UI lists them; of failures, those that come from the Python of the executors."""
    lacks = "ModuleNotFoundError: No module named 'yt_exactly_once'"
    other = "Spark's executors have yt-exactly-once 0.0.9, and the driver has 0.1.0. Install yt"
    answers = {
        "/api/v1/applications/local-1/stages?status=failed": [
            {"failureReason": why} for why in (lacks, lacks, other, "lost")
        ],
        "/api/v1/applications": [{"id": "local-1"}],
        "/api/v1/applications/local-1/environment": {"sparkProperties": [["spark.a", "1"]]},
    }

    conf, failures = driver.from_ui(serve(200, answers))
    assert conf == {"spark.a": "1"}
    found = faults(replace(healthy, failures=failures))
    assert [one.check for one in found] == ["executors"] * 2
    assert "no package" in found[0].what
    assert "yt-exactly-once==0.1.0 on every executor" in found[1].repair


def test_producer_sessions_are_compared_with_the_ledger(cluster, client, tmp, tmp_path):
    """Gone, ahead of it, or as it left them."""
    query = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    query.feed(2)
    query.run()
    (row,) = client.select_rows(f"* from [{query.ledger}]")
    client.insert_rows(query.ledger, [row | {"mode": "idempotent"}])
    (lost,) = query.repairs()
    assert "audit" in lost
    producer = f"{query.target}_producer"
    client.create("queue_producer", producer)
    client.mount_table(producer, sync=True)
    (emptied,) = query.repairs()
    assert "section 'A producer is missing'" in emptied
    name = f"{query.query_id}:{query.target}:partition-0"
    client.create_queue_producer_session(producer, query.target, name)
    for batch, said in ((0, "agree with the ledger"), (1, "pushed rows of batch 1")):
        (session,) = client.select_rows(f"* from [{producer}]")
        client.insert_rows(producer, [session | {"user_meta": {"batch": batch}}])
        assert said in query.doctor()[1]


def test_first_batch_that_failed_is_not_taken_for_a_lost_ledger(faulty, tmp, tmp_path):
    """It is noted, and has no entry. With the batch logged, or another table, it is lost."""
    query = Operated(faulty, tmp, tmp_path / "checkpoint").create()
    client, checkpoint = query.client, f"--checkpoint {query.checkpoint}"
    query.feed(2)
    faulty.inject("error", "commit_transaction", code=1700, count=2)
    with pytest.raises(RetriesExhaustedError):
        query.run()
    code, said = query.doctor(checkpoint)
    assert (code, "Batch 0 is the first one" in said) == (0, True), said
    copied = f"{query.ledger}_copy"
    client.unmount_table(query.ledger, sync=True)
    client.move(query.ledger, copied)
    client.copy(copied, query.ledger)
    client.mount_table(query.ledger, sync=True)
    code, said = query.doctor(checkpoint)
    assert (code, "has a note of a ledger" in said) == (1, True), said
    client.remove(query.ledger)
    client.move(copied, query.ledger)
    client.mount_table(query.ledger, sync=True)
    query.run()
    client.delete_rows(query.ledger, [{"query_id": query.query_id, "target": query.target}])
    code, said = query.doctor(checkpoint)
    assert (code, "has a note of a ledger" in said) == (1, True), said


def test_queries_that_read_the_same_rows_into_one_table_are_named(cluster, client, tmp, tmp_path):
    """Each of them is exact by itself, so nothing else can tell of it."""
    query = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    query.feed(2)
    query.run()
    assert "have both read them" not in query.doctor()[1]
    (row,) = client.select_rows(f"* from [{query.ledger}]")
    client.insert_rows(query.ledger, [row | {"query_id": "another"}])
    assert "have both read them, so they may be there twice" in query.doctor()[1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"type": "replicated_table"}, "is a replicated_table"),
        ({"upstream_replica_id": "7-8-2ff-9"}, "a replica of 7-8-2ff-9"),
    ],
)
def test_replicated_target_is_found(monkeypatch, healthy, answer, said):
    """The embedded cluster has none, so its answer is changed."""
    described, ask = doctor_tables.tables, doctor_tables.tables.attributes_of
    monkeypatch.setattr(described, "attributes_of", lambda *names: (ask(*names) or {}) | answer)
    found = [one for one in faults(healthy) if one.check == "target"]
    assert [one.level for one in found] == [Level.PROBLEM]
    assert said in found[0].what


@pytest.mark.parametrize(
    ("kind", "said"),
    [("table", "it lacks or misplaces"), ("map_node", "is a map_node, not a table")],
)
def test_dead_letter_table_that_the_sink_would_refuse_is_found(client, healthy, kind, said):
    """With other columns, or no table at all."""
    place = f"{healthy.targets[0]}_bad"
    create(client, place) if kind == "table" else client.create(kind, place)
    (found,) = faults(replace(healthy, dead_letter=place))
    assert (found.check, found.level) == ("dead-letter table", Level.PROBLEM)
    assert said in found.what


def test_doctor_says_how_far_topics_are_by_ledger_and_log(cluster, tmp, tmp_path):
    """Spark has planned a batch that the ledger does not have yet."""
    query, ends = Pipeline(cluster, tmp).create(), ({"orders": {"0": 7}}, {"orders": {"0": 10}})
    query.others = OtherSources((), ends[:1], ends[1:]).to_text()
    query.commit([], [])
    for name, lines in {
        "metadata": [json.dumps({"id": query.query})],
        "offsets/0": ["v1", "{}", json.dumps(ends[0])],
        "commits/0": ["v1", "{}"],
        "offsets/1": ["v1", "{}", json.dumps({"orders": {"0": 9}})],
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines))
    subject = Subject(
        cluster=ClusterConfig(proxy=cluster.proxy_urls[0]),
        queues=(),
        targets=(query.target,),
        checkpoint=str(tmp_path),
    )
    (found,) = [one for one in examine(subject) if "other sources" in one.what]
    assert found.level is Level.OK
    assert "3 offsets of its topics came after it" in found.what
    assert "Spark has planned batch 1, 2 offsets more" in found.what
    assert found.details == ("orders partition 0: at offset 7 of 10",)
