"""What refusals of a queue mean."""

import pickle
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from yt.common import YtError

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import (
    AccessError,
    ClusterUnavailableError,
    ConsumerNotRegisteredError,
    ReplicatedTableError,
    TableNotMountedError,
)
from yt_exactly_once.ytsaurus import queues
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import TableInfo, describe_table

QUEUE, CONSUMER = "//home/app/queue", "//home/app/consumer"


def remote(consumer=CONSUMER):
    return RemoteQueue(Connection(ClusterConfig(proxy="localhost:80")), QUEUE, consumer)


def refuse_pulls(monkeypatch, message):
    """Let every pull be answered with code 901 and a text, as proxies do."""

    def send(*_request):
        raise YtError("Pull failed", inner_errors=[YtError(message, code=901)])

    sender = SimpleNamespace(send=send)
    monkeypatch.setattr(Connection, "sending", lambda _: nullcontext(sender))


NOT_REGISTERED = f'Consumer "{CONSUMER}" is not registered for queue "{QUEUE}"'


@pytest.mark.parametrize("error", [ClusterUnavailableError, ConsumerNotRegisteredError])
def test_registration_that_the_proxy_does_not_know_is_waited_for_unless_it_is_gone(
    monkeypatch, error
):
    """Proxies learn of registrations after seconds; the pull may be repeated."""

    def require_registration(*_arguments):
        if error is ConsumerNotRegisteredError:
            raise ConsumerNotRegisteredError("gone")

    refuse_pulls(monkeypatch, NOT_REGISTERED)
    monkeypatch.setattr(queues, "require_registration", require_registration)
    with pytest.raises(error, match=r"gone|does not know it yet"):
        remote().pull(0, 0, 1, 1)


@pytest.mark.parametrize("consumer", [CONSUMER, None])
def test_missing_permission_is_an_error_at_once(monkeypatch, consumer):
    """It has the same code as a missing registration."""
    refuse_pulls(monkeypatch, "Access denied")
    with pytest.raises(AccessError):
        remote(consumer).pull(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("states", "reads"),
    [("mounted frozen freezing mixed", True), ("unmounted none unmounting mounting", False)],
)
def test_queue_is_read_unless_it_is_unmounted(monkeypatch, states, reads):
    """Only writes need a mounted table; the error shows how to mount it."""
    monkeypatch.setattr(queues, "require_registration", lambda *_: None)
    for state in states.split():
        info = TableInfo(QUEUE, "1-2-3-4", False, 1, state, [])
        monkeypatch.setattr(queues, "describe_table", lambda *_, info=info: info)
        if reads:
            assert remote().require_readable() is info
            continue
        with pytest.raises(TableNotMountedError, match=f"{state}.*yt mount-table {QUEUE}"):
            remote().require_readable()


def test_consumer_less_queue_has_no_stored_offsets():
    """Nothing is asked."""
    assert remote(consumer=None).stored_offsets("local", [0]) == {}


def test_queue_travels_without_its_connections():
    """A task opens its own."""
    there = pickle.loads(pickle.dumps(remote()))
    assert (there.path, there.consumer) == (QUEUE, CONSUMER)
    assert there.connection.config == remote().connection.config


@pytest.mark.parametrize("looks", [1, 3, None])
def test_registration_is_asked_for_until_the_proxy_knows_it(monkeypatch, looks):
    """For as long as the caches of proxies may hide it, 25 s; `None` is one that never comes."""
    asked, pauses = [], []

    class Reader:
        def get(self, _path, **_options):
            return SimpleNamespace(attributes={"type": "table", "treat_as_queue_consumer": True})

        def list_queue_consumer_registrations(self, **names):
            asked.append(names)
            return [names] if len(asked) == looks else []

    monkeypatch.setattr(Connection, "reader", Reader())
    monkeypatch.setattr(queues.time, "sleep", pauses.append)
    connection = Connection(ClusterConfig(proxy="localhost:80"))
    if looks:
        queues.require_registration(connection, CONSUMER, QUEUE)
        assert len(pauses) == looks - 1
    else:
        with pytest.raises(ConsumerNotRegisteredError, match="yt register-queue-consumer"):
            queues.require_registration(connection, CONSUMER, QUEUE)
        assert sum(pauses) >= 25
    assert asked[0] == {"queue_path": QUEUE, "consumer_path": CONSUMER}


ORDINARY = {
    "type": "table",
    "dynamic": True,
    "id": "1-2-3-4",
    "sorted": False,
    "tablet_count": 1,
    "tablet_state": "mounted",
    "treat_as_queue_consumer": True,
}


@pytest.mark.parametrize(
    "kind", ["replicated_table", "replication_log_table", "chaos_replicated_table"]
)
@pytest.mark.parametrize(
    "look",
    [
        lambda one: one.describe(),
        lambda one: queues.require_consumer(one.connection, CONSUMER, QUEUE),
        lambda one: describe_table(one.connection, QUEUE),
    ],
    ids=["queue", "consumer", "target"],
)
def test_replicated_table_is_refused_by_name(monkeypatch, kind, look):
    """Its rows are on several clusters, and no test has shown that a batch is exact there."""
    answer = SimpleNamespace(attributes={**ORDINARY, "type": kind})
    monkeypatch.setattr(Connection, "reader", SimpleNamespace(get=lambda *_, **__: answer))
    with pytest.raises(ReplicatedTableError, match=f"is a {kind}.*not replicated"):
        look(remote())


def test_replica_is_read_and_not_written(monkeypatch):
    """Tablet nodes refuse each direct write to it, at the commit and without a code.

    `Write` in `server/node/tablet_node/tablet_service.cpp`.
    """
    answer = SimpleNamespace(attributes={**ORDINARY, "upstream_replica_id": "7-8-2ff-9"})
    monkeypatch.setattr(Connection, "reader", SimpleNamespace(get=lambda *_, **__: answer))
    info = remote().describe()
    with pytest.raises(ReplicatedTableError, match="a replica of 7-8-2ff-9"):
        info.require_mounted()
    answer.attributes["upstream_replica_id"] = "0-0-0-0"
    remote().describe().require_mounted()
