"""`verify-cluster`: nothing differs where nothing is, and each other behaviour is found and explained."""

import json
import os
import signal
from datetime import timedelta
from functools import partial
from typing import ClassVar

import pytest
from yt import yson
from yt.wrapper import YtResponseError

from tests.tiers import first_of
from yt_exactly_once import cli
from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.operations.verify.facts import FACTS
from yt_exactly_once.operations.verify.run import Verdict, verify_cluster
from yt_exactly_once.operations.verify.stage import Patience
from yt_exactly_once.ytsaurus.client import Connection

IMPATIENT = Patience(
    visible=timedelta(seconds=0.5), registered=timedelta(seconds=0.5), idle=timedelta(seconds=1.5)
)
DIRECTORY = "//tmp/verify"
BY_NAME = {fact.name: fact for fact in FACTS}


@pytest.fixture(scope="module")
def running():
    with LocalCluster(proxies=2) as cluster:
        yield cluster


def verify(cluster, *names, connect=Connection, patience=IMPATIENT, backend="http"):
    return verify_cluster(
        ClusterConfig(proxy=cluster.proxy_urls[0]),
        DIRECTORY,
        backends=[backend],
        facts=[BY_NAME[name] for name in names],
        patience=patience,
        connect=connect,
    )


def left_behind(cluster):
    client = cluster.client()
    return client.list(DIRECTORY) if client.exists(DIRECTORY) else []


@pytest.mark.further
def test_everything_holds_over_both_backends(running, tmp_path, capsys):
    """The command says so, writes the report, and leaves neither tables nor registrations."""
    pytest.importorskip("yt_driver_rpc_bindings")
    before = len(running.client().list_queue_consumer_registrations())
    arguments = ["--proxy", running.proxy_urls[0], "--directory", DIRECTORY, "--json"]
    code = cli.main(["verify-cluster", *arguments, "--report", str(tmp_path / "report")])
    found = json.loads(capsys.readouterr().out)
    assert [r for r in found["results"] if r["verdict"] in {"differs", "not shown"}] == []
    assert {(r["name"], r["backend"]) for r in found["results"]} == {
        (name, backend) for name in BY_NAME for backend in ("http", "rpc")
    }
    assert (code, found["holds"], found["affected"]) == (0, True, {})
    assert json.loads((tmp_path / "report.json").read_text()) == found
    assert "transaction.first-committer" in (tmp_path / "report.md").read_text()
    assert left_behind(running) == []
    assert len(running.client().list_queue_consumer_registrations()) == before


# Behaviours that the embedded cluster can be told to have.


HARMFUL = {
    "registration_lag_seconds": (5.0, "consumer.registration-lag", "does not know"),
    "visibility_delay_seconds": (5.0, "queue.visibility", "the rows are [], not ['late']"),
    # On a busy machine an insert comes too late already, not only the commit.
    "max_transaction_duration_seconds": (1.0, "transaction.lease", "Error: "),
    "max_transaction_timeout_seconds": (1.0, "transaction.lease", "Error: "),
}


@pytest.mark.parametrize("feature", first_of(HARMFUL))
@pytest.mark.further
def test_harmful_feature_is_reported(feature):
    """A cluster that is slower than the package waits for, or stricter."""
    value, fact, seen = HARMFUL[feature]
    with LocalCluster(features={feature: value}) as cluster:
        report = verify(cluster, fact)
    (result,) = report.results
    assert result.verdict is Verdict.DIFFERS
    assert seen in result.seen
    assert set(report.affected) == set(BY_NAME[fact].features)


# Behaviours that it cannot have: a client that changes requests or answers.


class Altered(Connection):
    """A connection whose clients behave as those of another cluster would.

    Attributes:
        methods: replace methods of the client, or commands of its sender; each gets the real one, and what it
            is called with.
    """

    methods: ClassVar[dict] = {}

    @property
    def reader(self):
        return self._changed(super().reader)

    def pinned(self):
        pinned = super().pinned()
        if "sender" not in vars(pinned):
            plain = pinned.sender
            pinned.sender = lambda number: self._changed_sender(plain(number))
        return pinned

    def _changed_sender(self, sender):
        self._changed(sender.client)
        if "send" not in vars(sender):
            real = sender.send

            def send(command, *given):
                sent = partial(real, command)
                return self.methods.get(command, lambda _, *same: sent(*same))(sent, *given)

            sender.send = send
        return sender

    def _changed(self, client):
        for name, change in self.methods.items():
            if name not in vars(client):
                setattr(client, name, partial(change, getattr(client, name)))
        return client


def reworded(old, new):
    """Every error of the cluster says one thing in another way."""

    def call(real, *args, **options):
        try:
            return real(*args, **options)
        except YtResponseError as error:
            text = json.dumps(error.error, default=str).replace(old, new)
            raise YtResponseError(json.loads(text)) from None

    return call


def recoded(old, new):
    return reworded(f'"code": {old}', f'"code": {new}')


def newest_rows(real, parameters, keys):
    """Lookups inside a transaction ignore it."""
    return real({**parameters, "transaction_id": "0-0-0-0"}, keys)


def any_epoch(real, parameters, rows):
    """Nobody is fenced: a push counts as one with the newest epoch."""
    for candidate in range(10):
        try:
            return real({**parameters, "epoch": candidate}, rows)
        except YtResponseError as error:
            if not (error.contains_code(3101) or error.contains_code(3102)):
                raise
    raise AssertionError


def swallowed(real, *sent):
    """A repeated commit is answered with success."""
    try:
        return real(*sent)
    except YtResponseError as error:
        if not error.contains_code(11000):
            raise
        return None


def small_limit(*_sent):
    raise YtResponseError({"code": 1717, "message": "Transaction affects too many rows in tablet"})


def plain_nulls(real, parameters, rows):
    """Nulls become entities, whatever the format says."""
    return real({**parameters, "input_format": "yson"}, rows)


def shuffled(real, *sent):
    rows = list(yson.loads(real(*sent), yson_type="list_fragment"))
    return yson.dumps(rows[::-1], yson_type="list_fragment")


OTHER = [
    ("transaction.first-committer", "commit_transaction", recoded(1700, 1799), "expected ConflictError"),
    ("claims.first-committer", "commit_transaction", recoded(1700, 1799), "expected ConflictError"),
    ("transaction.deletes", "delete_rows", lambda *_: None, "had deleted after it began"),
    ("transaction.snapshot", "lookup_rows", newest_rows, "a lookup inside a transaction"),
    ("transaction.ended", "commit_transaction", swallowed, "second commit of a transaction"),
    ("transaction.ended", "commit_transaction", recoded(11000, 1717), "refused as BatchTooLargeError"),
    ("transaction.row-limit", "commit_transaction", small_limit, "BatchTooLargeError"),
    ("transaction.unmounted", "commit_transaction", recoded(1702, 1717), "expected TransientError"),
    ("consumer.unregistered", "pull_queue_consumer", reworded("registered for queue", "known to"),
     "refused as AccessError"),
    ("consumer.old-offset", "advance_queue_consumer", reworded("current_offset", "offset_there"),
     "OffsetConflictError"),
    ("producer.epochs", "push_queue_producer", any_epoch, "took over are accepted"),
    ("rows.null-of-any", "insert_rows", plain_nulls, "YSON entity"),
    ("rows.lookup", "lookup_rows", shuffled, "order of the keys"),
]  # fmt: skip
"""A fact, the method of the client that behaves otherwise, how, and what is seen of it."""


@pytest.mark.further
@pytest.mark.parametrize(
    ("fact", "method", "change", "seen"), OTHER, ids=lambda one: one if isinstance(one, str) else ""
)
def test_other_behaviour_is_reported_with_its_meaning(running, fact, method, change, seen):
    """The verdict names what was seen, which modes it hits, and what to do."""
    connect = type("Other", (Altered,), {"methods": {method: change}})
    report = verify(running, fact, connect=connect)
    (result,) = report.results
    assert result.verdict is Verdict.DIFFERS
    assert seen in result.seen, result.seen
    assert not report.holds
    assert set(report.affected) == set(BY_NAME[fact].features)
    assert f"What it means: {BY_NAME[fact].meaning}" in report.to_markdown()
    assert left_behind(running) == []


# What it leaves behind.


@pytest.fixture
def interruptible():
    """A process that was started in the background of a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_run_leaves_nothing(running):
    """Ctrl-C in the middle of a check."""

    def interrupt(*_sent):
        os.kill(os.getpid(), signal.SIGINT)

    connect = type("Interrupted", (Altered,), {"methods": {"commit_transaction": interrupt}})
    with pytest.raises(KeyboardInterrupt):
        verify(running, "transaction.atomic", connect=connect)
    assert left_behind(running) == []


def test_what_cannot_be_removed_is_named(running):
    """With the command that removes it."""

    def refuse(*_args, **_options):
        raise YtResponseError({"code": 901, "message": "Access denied"})

    connect = type("Guarded", (Altered,), {"methods": {"remove": refuse}})
    report = verify(running, "transaction.abort", connect=connect)
    (name,) = left_behind(running)
    assert f"yt remove -rf {DIRECTORY}/{name}" in report.leftover
    assert report.leftover in report.summary()
    assert running.client().get(f"{DIRECTORY}/{name}/@expiration_timeout") == 3_600_000
    running.client().remove(f"{DIRECTORY}/{name}", recursive=True)


def test_fact_that_cannot_be_shown_is_no_success(running):
    """A proxy that goes away in the middle proves nothing."""

    def vanish(*_sent):
        raise ConnectionResetError

    connect = type("Away", (Altered,), {"methods": {"commit_transaction": vanish}})
    report = verify(running, "transaction.plain-writes", connect=connect)
    assert [result.verdict for result in report.results] == [Verdict.NOT_SHOWN]
    assert not report.holds


def test_backend_without_its_bindings_is_left_out(running, monkeypatch):
    """The report says which and why."""
    monkeypatch.setattr("yt_exactly_once.ytsaurus.backends.find_spec", lambda _: None)
    report = verify(running, "transaction.abort", backend="rpc")
    assert "ytsaurus-rpc-driver" in report.skipped["rpc"]
    assert not report.holds
