"""What idempotent mode checks before its tasks push; the tasks have tests of their own."""

from types import SimpleNamespace

import pytest

from yt_exactly_once.commit.batch import MicroBatch
from yt_exactly_once.spark.sink.modes import idempotent
from yt_exactly_once.spark.sink.modes.idempotent import Idempotent


class Frame(SimpleNamespace):
    """A DataFrame that only tells which task it is given to."""

    columns, schema = ("id",), None

    def mapInArrow(self, task, _schema):  # noqa: N802 - Spark's name
        return type(task).__name__


@pytest.fixture
def steps(monkeypatch):
    """What is done, in order."""
    done = []
    for name in ("require_straight", "require_same_rows"):
        monkeypatch.setattr(idempotent, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(Idempotent, "for_tasks", lambda _, frame, *__: (frame, None))
    monkeypatch.setattr(Idempotent, "reports", lambda _, job: done.append(job) or [])
    monkeypatch.setattr(Idempotent, "written", lambda *_: [])
    return done


@pytest.mark.parametrize("by_source", [True, False])
@pytest.mark.parametrize("begun", [{}, {"0": SimpleNamespace(sequence_number=3)}])
def test_rows_are_inspected_as_far_as_their_numbers_need_it(monkeypatch, steps, by_source, begun):
    """Positions need rows that come straight from the batch; a begun batch is rehearsed first."""
    monkeypatch.setattr(idempotent, "is_numbered_by_source", lambda *_: by_source)
    mode = object.__new__(Idempotent)
    mode.options = SimpleNamespace(producer="//producer")
    plan = SimpleNamespace(names=("id",))
    target = SimpleNamespace(plan=plan, path="//t", is_sorted=False)
    turned = []
    target.of_batch = lambda batch: turned.append(batch) or target
    assert mode.write(Frame(), MicroBatch("query", 0, "run"), target, begun) == []
    inspected = [] if by_source else ["require_straight"]
    rehearsed = ["RehearsalTask", "require_same_rows"] if begun else []
    assert steps == [*inspected, *rehearsed, "PushTask"]
    # Rows that carry their source go where their queue partition says, in all batches.
    assert bool(turned) is not by_source
