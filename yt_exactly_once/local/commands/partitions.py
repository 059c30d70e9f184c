"""partition_tables: tables cut into parts of about one weight, for readers that work side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from yt import yson

from yt_exactly_once.local import arguments
from yt_exactly_once.local.commands import whole_tables
from yt_exactly_once.local.commands.cypress import view_of
from yt_exactly_once.local.commands.registry import Context, command
from yt_exactly_once.local.commands.whole_tables import Piece, Source
from yt_exactly_once.local.cypress import ypath
from yt_exactly_once.local.cypress.ypath import YPath
from yt_exactly_once.local.errors import YtError

_MODES = ("ordered", "unordered")
_LIMITS = ("ranges", "lower_limit", "upper_limit", "exact")


@command(
    "partition_tables",
    partial="weights of chosen columns are estimated; sorted dynamic tables are cut evenly",
)
def partition_tables(context: Context) -> dict[str, Any]:
    """Cut tables into partitions, chunk by chunk; a chunk that weighs too much is cut by rows."""
    parameters = context.parameters
    mode = str(parameters.get("partition_mode", "unordered"))
    if mode not in _MODES:
        raise YtError(f'Partition mode "{mode}" is not supported; use one of {_MODES}')
    if not isinstance(parameters.get("paths"), list):
        raise YtError('Error parsing parameter "paths": expected a list')
    weight = arguments.integer(parameters, "data_weight_per_partition")
    if weight < 1:
        raise YtError('"data_weight_per_partition" must be positive')
    most = arguments.integer(parameters, "max_partition_count", None)
    adjust = arguments.flag(parameters, "adjust_data_weight_per_partition", True)
    paths = [ypath.parse(path, "paths") for path in parameters["paths"]]
    with context.proxy.store.read() as connection:
        view = view_of(context, connection)
        sources = [whole_tables.opened(view, path) for path in paths]
        slices = [
            (number, piece)
            for number, (path, source) in enumerate(zip(paths, sources, strict=True))
            for piece in _slices(source, path, weight)
        ]
        total = sum(piece.weight for _, piece in slices)
        count = -(-total // weight)
        if most is not None and adjust:
            count = min(count, most)
        parts = list(_parts(slices, total, count))
        if most is not None and len(parts) > most:
            raise YtError("Maximum partition count exceeded", limit=most)
        return {"partitions": [_shown(part, paths, sources) for part in parts]}


def _slices(source: Source, path: YPath, limit: int) -> Iterator[Piece]:
    """Yield the chosen rows, cut where chunks end and where they weigh more than the limit."""
    columns = whole_tables.chosen(path)
    all_columns = len(source.schema.columns)
    kept = all_columns if columns is None or not all_columns else min(len(columns), all_columns)
    pieces = source.pieces()
    for wanted in whole_tables.ranges(source, path):
        for piece in pieces:
            start, end = max(piece.start, wanted.start), min(piece.end, wanted.end)
            if start >= end:
                continue
            weight = piece.weight * (end - start) // (piece.end - piece.start)
            weight = max(weight * kept // max(all_columns, 1), 1) if all_columns else weight
            rows = end - start
            number = min(-(-weight // limit), rows)
            for index in range(number):
                first, past = (start + rows * at // number for at in (index, index + 1))
                yield Piece(first, past, weight * (past - first) // rows)


def _parts(
    slices: Sequence[tuple[int, Piece]], total: int, count: int
) -> Iterator[list[tuple[int, Piece]]]:
    """Deal slices out in order, so that every part gets its share of what is left."""
    part: list[tuple[int, Piece]] = []
    got = 0
    for item in slices:
        part.append(item)
        got += item[1].weight
        if count > 1 and got * count >= total:
            yield part
            part, total, count, got = [], total - got, count - 1, 0
    if part:
        yield part


def _shown(
    part: Sequence[tuple[int, Piece]], paths: Sequence[YPath], sources: Sequence[Source]
) -> dict[str, Any]:
    table_ranges = []
    for number, (path, source) in enumerate(zip(paths, sources, strict=True)):
        joined: list[dict[str, Any]] = []
        past = -1
        for piece in (piece for owner, piece in part if owner == number):
            limits = source.limits(piece.start, piece.end)
            lower, upper = limits["lower_limit"], limits["upper_limit"]
            follows = piece.start == past and lower.get("tablet_index") == (
                joined[-1]["upper_limit"].get("tablet_index")
            )
            if follows:
                joined[-1] = {**joined[-1], "upper_limit": upper}
            else:
                joined.append(limits)
            past = piece.end
        table = yson.YsonUnicode(path.text)
        kept = {name: value for name, value in path.attributes.items() if name not in _LIMITS}
        table.attributes = {**kept, "ranges": joined}
        table_ranges.append(table)
    return {
        "table_ranges": table_ranges,
        "aggregate_statistics": {
            "chunk_count": len(part),
            "data_weight": sum(piece.weight for _, piece in part),
            "row_count": sum(piece.end - piece.start for _, piece in part),
        },
    }
