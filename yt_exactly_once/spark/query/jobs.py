"""What Spark's UI shows about the jobs of a sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from yt_exactly_once.commit.batch import MicroBatch

_DESCRIPTION = "spark.job.description"


@contextmanager
def described(frame: Any, batch: MicroBatch, step: str) -> Iterator[None]:
    """Describe the jobs that start here: Spark's own words about query and batch, and the step.

    Afterwards the description is what it was. A session without a context (Spark Connect) shows none.

    Args:
        step: what the jobs do, and for which table.
    """
    context = getattr(getattr(frame, "sparkSession", None), "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    known = before or f"query = {batch.query_id}<br/>batch = {batch.batch_id}"
    context.setLocalProperty(_DESCRIPTION, f"{known}<br/>yt_exactly_once: {step}")
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
