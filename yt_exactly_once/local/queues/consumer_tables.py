"""Which tables are consumers: their columns. It never reads one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.tables.layout import TableLayout
from yt_exactly_once.local.tables.schema import CONSUMER_SCHEMA, Column

CONSUMER_NAME = "queue_consumer_name"


def _shape(columns: Iterable[Column]) -> tuple[tuple[Any, ...], ...]:
    return tuple((c.name, c.wire_type, c.required, c.sort_order) for c in columns)


_SHAPE = _shape(CONSUMER_SCHEMA.columns)
_NAME = (CONSUMER_NAME, "string", True, "ascending")
_SHAPES = (_SHAPE, _SHAPE[:-1], (_NAME, *_SHAPE))


def check_consumer(table: TableLayout) -> None:
    """Refuse tables that do not have the columns of a consumer."""
    if _shape(table.columns) not in _SHAPES:
        raise YtError("Table schema is not recognized as a valid consumer schema")
