"""A task that inserts, without Spark: what it sends, and what it reports for the ledger and the metrics."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.model.tasks import COLUMNS, prepared_target, task_context
from yt_exactly_once import RetryPolicy, Target
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.errors import ClusterUnavailableError, RequestRefusedError
from yt_exactly_once.spark.modes import tasks
from yt_exactly_once.spark.modes.mode import TargetBatch, TaskSettings
from yt_exactly_once.spark.modes.tasks import ChunkReport, InsertTask
from yt_exactly_once.spark.sink import targets

ROWS = pa.RecordBatch.from_pydict({name: [1, 2, 3] for name in COLUMNS})


@pytest.fixture
def sent(monkeypatch):
    """Bodies of requests; the first one has no answer."""
    bodies = []

    def insert(_connection, _path, payload, _wire, _options=None):
        bodies.append(payload)
        if len(bodies) == 1:
            raise ClusterUnavailableError("told")

    monkeypatch.setattr(tasks, "insert_payload", insert)
    return bodies


@pytest.mark.parametrize("digest", [True, False])
def test_task_reports_rows_bytes_and_digest_of_what_it_has_written(sent, digest):
    """A request that is repeated counts once, and so do its rows; the ledger gets their sum."""
    plain = prepared_target("//t", is_sorted=False)
    target = replace(plain, options=Target("//t", digest=digest))
    patient = RetryPolicy(attempts=2, first_wait=timedelta(0), max_wait=timedelta(0))
    settings = TaskSettings(COLUMNS, replace(target, dyn_batch_size=2), None, patient, 1)
    task = InsertTask(settings, unique_keys=False)
    with task_context(0):
        report = ChunkReport.of_all(task([ROWS]))
    assert [len(sent), report.row_count] == [3, 3]
    assert report.byte_count == len(sent[1]) + len(sent[2])
    expected = added(0, row_hashes(ROWS, target.plan.columns)) if digest else 0
    assert report.digest == expected
    given = TargetBatch(None, target, COLUMNS, {}, by_driver=digest)
    written = report.written(given)
    assert written.sent_by == (SentBy.DRIVER if digest else SentBy.TASKS)
    assert written.digest == (expected if digest else None)
    assert written.byte_count == report.byte_count


@pytest.mark.parametrize("is_same", [True, False])
def test_refusal_of_a_target_that_has_changed_says_so(monkeypatch, is_same):
    """With a remedy; else it is raised as it is, and not from itself. Commits have a test of their own."""

    def refuse(*_, **__):
        raise RequestRefusedError("Invalid tablet index")

    monkeypatch.setattr(tasks, "insert_payload", refuse)
    monkeypatch.setattr(targets, "are_the_same", lambda *_: is_same)
    settings = TaskSettings(
        COLUMNS, prepared_target("//t", is_sorted=False), None, RetryPolicy(), 1
    )
    with task_context(0), pytest.raises(RequestRefusedError) as caught:
        list(InsertTask(settings, unique_keys=False)([ROWS]))
    assert ("has changed its columns" in caught.value.what) is not is_same
    assert (caught.value.__cause__ is None) is is_same
