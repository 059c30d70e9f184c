"""The formats in which rows are written: the wire formats of the codec, with what the cluster must know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yt.wrapper import YsonFormat
from yt.wrapper.format import ArrowFormat

if TYPE_CHECKING:
    from yt.wrapper.format import Format

_ATTRIBUTES = {"enable_null_to_yson_entity_conversion": False}
"""Without it `insert_rows` stores a null of an `any` column as a YSON entity, which is no null to a query
(`TInsertRowsFormatConfig`); `push_queue_producer` stores a null."""


def input_format(wire: str) -> Format:
    """Return the format of rows that are written.

    Args:
        wire: `arrow` or `yson`.
    """
    kind = {"arrow": ArrowFormat, "yson": YsonFormat}[wire]
    return kind(attributes=_ATTRIBUTES)
