"""What works gets no command: healthy pipelines of every kind."""

from __future__ import annotations

import json
import re

import pytest

from tests.local.operated import TARGET_SCHEMA, Operated
from tests.local.pipelines import Pipeline
from tests.tiers import first_of


@pytest.fixture
def query(cluster, tmp, tmp_path):
    made = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    made.feed(10)
    made.run(rows=6)
    return made


def more(query):
    """Let the query commit two more batches."""
    for _ in range(2):
        query.feed(2)
        query.run()


def target_of(query, name, schema=TARGET_SCHEMA):
    query.create_table(f"{query.folder}/{name}", schema)
    return f"{query.folder}/{name}"


def copy(query, path, to):
    query.client.unmount_table(path, sync=True)
    query.client.copy(path, to, recursive=True)
    for table in (path, to):
        query.client.mount_table(table, sync=True)


def copied(query):
    copy(query, query.ledger, f"{query.folder}/a_copy")
    more(query)


def copied_just_now(query):
    more(query)
    copy(query, query.ledger, f"{query.folder}/a_copy")


def copied_with_its_target(query):
    for path in (query.ledger, query.target):
        copy(query, path, path.replace(query.folder, f"{query.folder}/before"))
    more(query)


def new_target(query):
    query.target = target_of(query, "next")
    query.options["new_ledger"] = True
    more(query)


def new_target_in_one_ledger(query):
    query.options["ledger_path"] = query.ledger
    new_target(query)


def renamed(query):
    old, new_name = query.target, f"{query.folder}/renamed"
    query.client.unmount_table(old, sync=True)
    query.client.move(old, new_name)
    query.client.mount_table(new_name, sync=True)
    query.target = new_name
    query.options["new_ledger"] = True
    more(query)


def new_ledger(query):
    query.options |= {"new_ledger": True, "ledger_path": f"{query.folder}/a_state"}
    more(query)


def fan_out(query):
    query.besides = [target_of(query, "besides")]
    query.options["new_ledger"] = True
    more(query)


def fan_out_between_two_commits(query):
    fan_out(query)
    query.feed(2)
    query.kill("besides")


def fan_out_with_rows_for_one_target(query):
    fan_out(query)
    query.besides = []
    more(query)


def new_checkpoint(query):
    query.checkpoint = query.checkpoint.with_name("another")
    more(query)


def restarted(query):
    for place in ("offsets", "sink"):
        query.feed(2)
        query.kill(place)
    query.run()


def behind(query):
    query.feed(50)


def backfilled(query):
    job = Pipeline(query.cluster, query.folder, query="application:backfill", batch=3)
    job.ledger, job.target = query.ledger, query.target
    job.commit([], [])


def at_least_once(query):
    query.mode = "at-least-once"
    more(query)


def with_a_history(query):
    query.options["history_path"] = f"{query.folder}/history"
    more(query)


def another_queue(query):
    query.link_queue("new")
    query.client.register_queue_consumer(query.queue, query.consumer, vital=True)
    query.loss = True
    more(query)


def consumer_of_another_copied(query):
    for path in (query.consumer, query.queue, query.ledger):
        copy(query, path, f"{path}_before")
    more(query)


def left_and_back(query):
    first = query.target
    new_target(query)
    query.target = first
    more(query)


def with_logs_of_version_2(query):
    query.log = 2, 2
    more(query)


HEALTHY = {
    "drained": lambda _query: None,
    "ledger copied": copied,
    "new target": new_target,
    "fan-out": fan_out,
    "ledger copied just now": copied_just_now,
    "ledger and target copied": copied_with_its_target,
    "new target, one ledger": new_target_in_one_ledger,
    "renamed": renamed,
    "new ledger": new_ledger,
    "fan-out between two commits": fan_out_between_two_commits,
    "fan-out, rows for one": fan_out_with_rows_for_one_target,
    "new checkpoint": new_checkpoint,
    "restarted": restarted,
    "behind": behind,
    "backfilled": backfilled,
    "at least once": at_least_once,
    "history": with_a_history,
    "another queue": another_queue,
    "all copied": consumer_of_another_copied,
    "new target, and back": left_and_back,
    "logs of version 2": with_logs_of_version_2,
}
"""What has happened to a query that goes on."""


@pytest.mark.parametrize("happened", first_of(HEALTHY, count=4))
def test_healthy_pipeline_gets_no_command(query, happened):
    """No tool finds a problem, and `status` shows each query once per target."""
    HEALTHY[happened](query)
    _, text = query.command(f"yt-exactly-once status {query.folder} --json")
    found = json.loads(text)
    assert [one["problems"] for one in found] == [[]] * len(found)
    listed = [(one["query_id"], to["path"]) for one in found for to in one["targets"]]
    assert len(set(listed)) == len(listed)
    for command in (f"status {query.folder} --check", f"repair {query.folder}"):
        code, said = query.command(f"yt-exactly-once {command}")
        assert (code, re.findall("yt-exactly-once|[Rr]un: ", said)) == (0, []), said
    ledger = query.options.get("ledger_path", "")
    given = f"--checkpoint {query.checkpoint}" + (ledger and f" --ledger {ledger}")
    code, said = query.doctor(given)
    # Anybody may write in the folder of this test.
    assert (code, re.findall("warnings: .*", said)) == (0, ["warnings: 1 (ledger rights)"]), said
