"""Rows of a batch that its target cannot take, for the dead-letter table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yt_exactly_once.codec.rejects import Rejects
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.parts import TargetRows

if TYPE_CHECKING:
    from yt_exactly_once.commit.batch import MicroBatch
    from yt_exactly_once.commit.cluster import Payload


def rejects_of(path: str | None, batch: MicroBatch) -> Rejects | None:
    """Return where the rejected rows of a batch go; `None` if they are an error."""
    return None if path is None else Rejects(path, batch.query_id, batch.batch_id)


def letters_of(rejects: Rejects, payloads: Sequence[Payload], target: str) -> TargetRows:
    """Return described rows as those of the dead-letter table."""
    return TargetRows(
        path=rejects.path,
        groups=[payloads],
        wire=WireFormat.YSON.value,
        row_count=sum(payload.row_count for payload in payloads),
        group_is_tablet=True,
        rejected_by=target,
    )
