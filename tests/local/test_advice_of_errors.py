"""A query is broken in every way an operator meets, and whoever repairs it knows only what is printed.

Each error's remedy is executed word by word, then the query starts again, until it runs. Then every row is
compared.
"""

import itertools
import shutil
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from unittest import mock

import pytest

from tests.breaks_page import WRITES, require_line
from tests.cluster_fixtures import served
from tests.local.operated import QUEUE_SCHEMA, TARGET_SCHEMA, Operated, UndecidedError
from tests.remedies import unfollowed
from tests.tiers import first_of
from yt_exactly_once.commit import transactional
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.operations import status
from yt_exactly_once.ytsaurus import queues


def _consumer_unregistered(query):
    query.client.unregister_queue_consumer(query.queue, query.consumer)


def _moved(query, places):
    rows = [
        {
            "queue_cluster": query.cluster_name,
            "queue_path": query.queue,
            "partition_index": n,
            "offset": at,
        }
        for n, at in enumerate(places)
    ]
    query.client.insert_rows(query.consumer, rows)


def _consumer_of_another_queue(query):
    query.client.remove(query.consumer)
    query.create_table(f"{query.folder}/another", QUEUE_SCHEMA)
    query.command(f"yt-exactly-once create-consumer {query.consumer} {query.folder}/another")
    query.client.insert_rows(
        query.consumer,
        [{"queue_cluster": query.cluster_name, "queue_path": f"{query.folder}/another", "partition_index": 0,
          "offset": 7}],
    )  # fmt: skip


def _queue_trimmed(query):
    """Rows that nobody has read are gone: the advice names how to continue without them."""
    query.client.trim_rows(query.queue, 1, 12)
    query.gone = query.fed[25:27]


def _queue_replaced(query):
    query.gone = query.fed[20:]
    query.client.remove(query.queue)
    query.create_queue()
    query.feed(7)


def _queue_replaced_behind_a_link(query):
    query.gone = query.fed[20:]
    query.link_queue("2026")
    query.feed(7)


def _link_changed(query):
    """The first queue behind it was read to its end, and a person says that the change is meant."""
    _queue_replaced_behind_a_link(query)
    query.client.register_queue_consumer(query.queue, query.consumer, vital=True)
    query.loss = True
    query.run()
    query.link_queue("2027")
    query.feed(7)
    new = query.checkpoint.with_name("new")
    query.people["if the change is meant"] = lambda: setattr(query, "checkpoint", new)


def mounts(command, *names):
    """Unmount, freeze or mount tables of the query."""

    def act(query):
        for name in names:
            getattr(query.client, command)(getattr(query, name), sync=True)

    return act


def _removed(path):
    return lambda query: query.client.remove(getattr(query, path))


def _linked(query):
    query.client.unmount_table(query.target, sync=True)
    query.client.move(query.target, f"{query.target}_real")
    query.client.mount_table(f"{query.target}_real", sync=True)
    query.client.link(f"{query.target}_real", query.target)


def _oversized(query):
    query.options["rows_per_tablet_limit"] = 4


def _ledger_of_yesterday(query):
    """Rows are put back in place, and the target has what they lack."""
    rows = list(query.client.select_rows(f"* from [{query.ledger}]"))
    query.run()
    query.client.insert_rows(query.ledger, rows)
    query.feed(3)
    query.people["If they are there"] = lambda: query.options.update(accept_incomplete=1)


def _checkpoint_of_yesterday(query):
    shutil.copytree(query.checkpoint, f"{query.checkpoint}-copy")
    query.run(rows=2)
    query.feed(3)
    shutil.rmtree(query.checkpoint)
    shutil.move(f"{query.checkpoint}-copy", query.checkpoint)


def _commits_gone(query):
    shutil.rmtree(query.checkpoint / "commits")


def _last_batch_unlogged(query):
    query.kill("sink")


def _unlogged(broken):
    """The same while Spark's log has a batch that is planned, and not committed."""

    def act(query):
        query.kill("offsets")
        query.feed(2)
        broken(query)

    return act


def _checkpoint_lost(query):
    shutil.rmtree(query.checkpoint)


def _checkpoint_copied(query):
    """The copy is started after the query has continued."""
    copy = query.checkpoint.with_name("copied")
    shutil.copytree(query.checkpoint, copy)
    query.run(rows=2)
    query.feed(3)
    query.checkpoint = copy


def _until_asked(words, action, repaired="clear_faults", **rule):
    """Requests fail until a person does what they are asked for."""

    def act(query):
        query.cluster.inject(action, count=None, **rule)
        query.people[words] = getattr(query.cluster, repaired)

    return act


def _robot(query):
    """Run the query as a user, who may do what all may."""
    name = f"robot-{uuid.uuid4().hex[:8]}"
    query.client.create("user", attributes={"name": name})
    query.token = query.client.issue_token(name)
    return name


def _token_wrong(query):
    _robot(query)
    right, query.token = query.token, "wrong"
    query.people["Pass a valid token"] = lambda: setattr(query, "token", right)


def _token_revoked(query):
    """By an administrator, after the batch was planned."""
    name = _robot(query)
    query.meanwhile = lambda: query.client.revoke_token(name, token=query.token)
    query.people["Pass a valid token"] = lambda: setattr(
        query, "token", query.client.issue_token(name)
    )


def _read_only(path):
    """The error has the command of the administrator, who is this client."""

    def act(query):
        acl = [{"action": "allow", "subjects": [_robot(query)], "permissions": ["read"]}]
        query.client.set(f"{getattr(query, path)}/@inherit_acl", False)
        query.client.set(f"{getattr(query, path)}/@acl", acl)

    return act


def _proxy_wrong(query):
    right, query.proxy = query.proxy, "localhost:1"
    query.people["Check the address of the proxy"] = lambda: setattr(query, "proxy", right)


def _other_cluster(query):
    """Its name and its tables are the same; a copy of the ledger has the query."""
    other = LocalCluster().start()
    copy = replace(query, cluster=other, fed=[], _numbers=itertools.count()).create()
    copy.feed(15)
    copy.client.create("table", copy.ledger, attributes={"dynamic": True, "schema": LEDGER_SCHEMA})
    copy.client.mount_table(copy.ledger, sync=True)
    copy.client.insert_rows(copy.ledger, list(query.client.select_rows(f"* from [{query.ledger}]")))
    right, query.proxy = query.proxy, other.proxy_urls[0]

    def repaired():
        query.proxy = right
        other.stop()

    query.people["Set the proxy back"] = repaired


def _sink_elsewhere(query):
    """On an empty cluster of the same name, where nothing is made."""
    other = LocalCluster().start()
    query.options["proxy"] = other.proxy_urls[0]

    def repaired():
        del query.options["proxy"]
        assert not other.client().exists(query.folder)
        other.stop()

    query.people["Set the proxy back"] = repaired


def static(name):
    """Put a static table in the place of one of the query."""

    def act(query):
        path = getattr(query, name)
        query.client.remove(path)
        query.client.create("table", path, attributes={"schema": TARGET_SCHEMA})

    return act


def _remounted(change):
    """Change a table while it is not mounted."""

    def made(name, *args, **options):
        def act(query):
            path = getattr(query, name)
            query.client.unmount_table(path, sync=True)
            change(query.client, path, *args, **options)
            query.client.mount_table(path, sync=True)

        return act

    return made


@_remounted
def without_atomicity(client, path):
    client.set(f"{path}/@atomicity", "none")


@_remounted
def _resharded(client, path, **layout):
    client.reshard_table(path, sync=True, **layout)


@_remounted
def _widened(client, path):
    client.alter_table(path, schema=[*TARGET_SCHEMA, {"name": "note", "type": "string"}])


def _offsets_newer(query):
    newest = query.checkpoint / "offsets/0"
    newest.write_text(newest.read_text().replace('"yt_exactly_once": 1', '"yt_exactly_once": 99'))


def _another_consumer(query):
    right, query.consumer = query.consumer, f"{query.folder}/another"
    query.command(f"yt-exactly-once create-consumer {query.consumer} {query.queue}")
    query.people["Set the consumer back"] = lambda: setattr(query, "consumer", right)


def _another_checkpoint(query):
    """Of a query that reads another queue."""
    place = query.checkpoint.with_name("another")
    fresh = {"fed": [], "heard": {}, "said": [], "done": [], "followed": []}
    other = replace(query, folder=f"{query.folder}/more", checkpoint=place, **fresh).create()
    other.feed(4)
    other.run()
    right, query.checkpoint = query.checkpoint, place
    query.people["this query's own checkpoint"] = lambda: setattr(query, "checkpoint", right)


def _ledger_unreadable(query):
    acl = [{"action": "allow", "subjects": [_robot(query)], "permissions": ["write"]}]
    query.client.set(f"{query.ledger}/@inherit_acl", False)
    query.client.set(f"{query.ledger}/@acl", acl)


def _proxy_gone(query):
    query.cluster.kill_proxy()
    query.people["whether the cluster is healthy"] = query.cluster.restart_proxy


def _balancer_without_proxies(query):
    """It has none to send anybody to."""
    balancer = ExitStack()
    right = query.proxy
    query.proxy = balancer.enter_context(served(lambda _: (503, None)))

    def repaired():
        query.proxy = right
        balancer.close()

    query.people["whether the cluster is healthy"] = repaired


def _old_driver_woken(query):
    """It was paused after it had planned a batch; the new one has written that and another one."""

    def new_driver():
        query.run()
        query.feed(2)
        query.run()

    query.meanwhile = new_driver
    query.people["Stop other runs"] = lambda: None


def _clock(**off):
    """The driver that wrote last has a clock that is wrong; everything else has the right one."""

    def act(query):
        clock = mock.Mock(wraps=datetime, now=lambda zone: datetime.now(zone) + timedelta(**off))
        with mock.patch.object(transactional, "datetime", clock):
            query.run(rows=2)
        query.feed(3)
        query.client.remove(query.consumer)

    return act


def _letters_gone(query):
    query.options["dead_letter_path"] = f"{query.folder}/letters"
    query.run()
    query.client.remove(f"{query.folder}/letters")
    query.feed(3)


BREAKS = {
    "consumer removed": _removed("consumer"),
    "consumer unregistered": _consumer_unregistered,
    "consumer moved back": lambda query: _moved(query, [3, 0]),
    "consumer moved ahead": lambda query: _moved(query, [12, 15]),
    "consumer moved both ways": lambda query: _moved(query, [3, 15]),
    "consumer moved beyond the end": lambda query: _moved(query, [10, 99]),
    "consumer of another queue": _consumer_of_another_queue,
    "consumer no longer marked as one": lambda query: query.client.set(
        f"{query.consumer}/@treat_as_queue_consumer", False
    ),
    "consumer unmounted": mounts("unmount_table", "consumer"),
    "consumer frozen": mounts("freeze_table", "consumer"),
    "queue unmounted": mounts("unmount_table", "queue"),
    "queue frozen": mounts("freeze_table", "queue"),
    "queue trimmed": _queue_trimmed,
    "queue replaced": _queue_replaced,
    "queue replaced behind a link": _queue_replaced_behind_a_link,
    "queue replaced behind a link, twice": _link_changed,
    "queue replaced behind a link, a batch planned": _unlogged(_queue_replaced_behind_a_link),
    "queue resharded up": _resharded("queue", tablet_count=3),
    "target unmounted": mounts("unmount_table", "target"),
    "target frozen": mounts("freeze_table", "target"),
    "target resharded": _resharded("target", tablet_count=2),
    "target behind a link": _linked,
    "target with one more column": _widened("target"),
    "ledger unmounted": mounts("unmount_table", "ledger"),
    "ledger without atomicity": without_atomicity("ledger"),
    "ledger cannot be read": _ledger_unreadable,
    "another consumer of the queue": _another_consumer,
    "checkpoint of another query": _another_checkpoint,
    "ledger frozen": mounts("freeze_table", "ledger"),
    "ledger resharded": _resharded("ledger", pivot_keys=[[], ["8"]]),
    "batch too large": _oversized,
    "batch too large, planned": _unlogged(_oversized),
    "ledger of yesterday": _ledger_of_yesterday,
    "checkpoint of yesterday": _checkpoint_of_yesterday,
    "commits gone": _commits_gone,
    "driver killed after the commit": _last_batch_unlogged,
    "checkpoint lost": _checkpoint_lost,
    "checkpoint copied": _checkpoint_copied,
    "token wrong": _token_wrong,
    "token revoked in mid-run": _token_revoked,
    "target read-only": _read_only("target"),
    "ledger read-only": _read_only("ledger"),
    "consumer read-only": _read_only("consumer"),
    "quota reached": _until_asked(
        "Free space in the account", "error", code=902, command="insert_rows"
    ),
    "bundle without cells": _until_asked(
        "Ask the administrators of the cluster about the bundle",
        "error",
        code=1737,
        command="insert_rows",
    ),
    "row too big": _until_asked("Filter such rows out", "error", code=308, command="insert_rows"),
    "proxy wrong": _proxy_wrong,
    "proxy gone": _proxy_gone,
    "proxy of another cluster": _other_cluster,
    "proxy of another cluster, for the sink": _sink_elsewhere,
    "proxy of another cluster, a batch planned": _unlogged(_other_cluster),
    "balancer without proxies": _balancer_without_proxies,
    "old driver woken": _old_driver_woken,
    "clock a day ahead": _clock(days=1),
    "clock a day behind": _clock(days=-1),
    "dead letters gone": _letters_gone,
    "consumer removed, a batch planned": _unlogged(_removed("consumer")),
    "consumer moved ahead, a batch planned": _unlogged(lambda query: _moved(query, [13, 12])),
    "queue resharded up, a batch planned": _unlogged(_resharded("queue", tablet_count=3)),
}
"""What is broken, and how. The query has committed ten rows of each partition, and five more wait."""


@pytest.fixture
def query(cluster, tmp, tmp_path, monkeypatch):
    if not WRITES:
        monkeypatch.setattr(queues, "_PAUSE_SECONDS", 0.05)
    made = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    made.feed(10)
    made.run(rows=6)
    made.feed(5)
    yield made
    cluster.clear_faults()


def _target_recreated(query):
    query.client.remove(query.target)
    query.create_table(query.target, TARGET_SCHEMA)


def test_recreated_target_is_named_with_the_rows_that_it_lacks(query, monkeypatch):
    """The sink takes it, as somebody may have replaced it on purpose; the tools say what is gone."""
    monkeypatch.setattr(status, "_PAUSE_SECONDS", 0)
    _target_recreated(query)
    query.run()
    for command in ("status --check", "repair"):
        code, said = query.command(f"yt-exactly-once {command} {query.folder}")
        assert code == 1
        assert "lacks 20. Restore it, or empty it and begin again" in said
    code, said = query.command(f"yt-exactly-once repair {query.target} --new-checkpoint --apply")
    assert code == 2
    assert "a person must decide" in said
    _, said = query.command(f"yt-exactly-once audit {query.target}")
    assert "NOT exact" in said


REFUSED = {
    "queue resharded down": _resharded("queue", tablet_count=1),
    "queue gone": _removed("queue"),
    "queue is a static table": static("queue"),
    "offsets of a newer version": _offsets_newer,
    "target gone": _removed("target"),
    "ledger gone": _removed("ledger"),
}
"""What no command brings back: the query stays stopped, and says what a person must decide."""


@pytest.mark.parametrize("broken", first_of(BREAKS, count=3))
def test_remedies_are_followed_to_the_letter(query, broken):
    """Rows are lost only where a remedy named them, and none is there twice."""
    BREAKS[broken](query)
    query.look()
    query.restart_with_advice()
    kept = [row for row in query.fed if row not in query.gone]
    query.assert_exact(kept)
    assert not query.people
    were_gone = f", {len(query.gone)} were gone" if query.gone else ""
    require_line("Repaired", broken, query, f"{len(kept)} rows, exact{were_gone}")
    assert unfollowed(broken, query.followed) == []


@pytest.mark.parametrize("broken", first_of(REFUSED))
def test_what_only_a_person_can_decide_changes_nothing(query, broken):
    """No advice repeats or loses a row on the way."""
    before = query.written()
    REFUSED[broken](query)
    query.look()
    with pytest.raises(UndecidedError):
        query.restart_with_advice()
    left = Counter() if broken == "target gone" else query.written()
    assert left in (Counter(), before)
    at_stake = len(query.fed) - left.total()
    require_line("Stopped", broken, query, f"refused, {at_stake} rows at stake")
