"""Arrow lists, structs and maps as columns of positional YSON, written by vector.

Nothing is checked here but the shapes. Whether the values are right for the column is seen when the YSON is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.yson_lines import NULL, Lines
from yt_exactly_once.local.tables import types, values

if TYPE_CHECKING:
    Leaf = Callable[[Any, Any], Any]

_BINARY = pa.binary()


def written(logical: types.LogicalType, array: Any, leaf: Leaf) -> Any:
    """Return positional YSON, null where a value is null.

    Args:
        leaf: returns values without parts as they would be stored, by their type.

    Raises:
        YtError: an Arrow type does not fit.
    """
    fragments = _fragments(logical, array, leaf)
    return pc.if_else(array.is_valid(), fragments, pa.scalar(None, _BINARY))


def _fragments(logical: types.LogicalType, array: Any, leaf: Leaf) -> Any:
    """Return one fragment of YSON for each value, null included."""
    logical = types.untagged(logical)
    if isinstance(logical, dict) and logical["type_name"] == "optional":
        return _fragments(logical["item"], array, leaf)
    lines = Lines(len(array))
    if array.null_count == len(array):
        lines.put(NULL)
        return lines.strings()
    if isinstance(logical, str) or logical["type_name"] == "decimal":
        _put_leaves(lines, logical, leaf(logical, array))
        return lines.strings()
    kind = logical["type_name"]
    lines.put(b"[")
    if kind == "list" and (_is_list(array.type) or pa.types.is_map(array.type)):
        items = array.flatten() if _is_list(array.type) else _pairs(array)
        lines.put_strings(_items(array, _line(b"", [(logical["item"], items)], b"", leaf)))
    elif kind == "dict" and pa.types.is_map(array.type):
        keys, found = _pairs(array).flatten()
        pair = [(logical["key"], keys), (logical["value"], found)]
        lines.put_strings(_items(array, _line(b"[", pair, b"];", leaf)))
    elif kind == "struct" and pa.types.is_struct(array.type):
        members = _members(logical["members"], array)
        if members:
            lines.put_strings(_line(b"", members, b"", leaf))
    else:
        raise YtError(f'Unexpected arrow type "{array.type}" for YT metatype "{kind}"')
    lines.put(b"]")
    found = lines.strings()
    return pc.if_else(array.is_valid(), found, NULL) if array.null_count else found


def _line(opening: bytes, parts: list[tuple[Any, Any]], closing: bytes, leaf: Leaf) -> Any:
    """Return what all rows have in some parts, with a separator after each."""
    lines = Lines(len(parts[0][1]))
    lines.put(opening)
    for logical, array in parts:
        lines.put_strings(_fragments(logical, array, leaf))
        lines.put(b";")
    lines.put(closing)
    return lines.strings()


def _members(members: list[dict[str, Any]], array: Any) -> list[tuple[Any, Any]]:
    if len(members) != len(array.type):
        raise YtError(
            'The number of fields in the Arrow "struct" type does not match the number of fields'
            ' in the YT "struct" type',
            arrow_field_count=len(array.type),
            yt_field_count=len(members),
        )
    columns = {
        field.name: column for field, column in zip(array.type, array.flatten(), strict=True)
    }
    for member in members:
        if str(member["name"]) not in columns:
            raise YtError(f'Field "{member["name"]}" is not found in arrow type "struct"')
    return [(member["type"], columns[str(member["name"])]) for member in members]


def _put_leaves(lines: Lines, logical: Any, found: Any) -> None:
    if isinstance(found, list):
        dumped = [NULL if value is None else values.dump_yson(value) for value in found]
        lines.put_strings(pa.array(dumped, _BINARY))
    elif isinstance(logical, str) and logical in types.UNSIGNED and pa.types.is_int64(found.type):
        lines.put_values(found.cast(pa.uint64()))
    else:
        lines.put_values(found)


def _items(array: Any, fragments: Any) -> Any:
    """Join the fragments of the items of each list or map; a null has none."""
    if pa.types.is_fixed_size_list(array.type):
        counts = np.full(len(array), array.type.list_size)
    else:
        counts = np.diff(np.asarray(array.offsets))
    if array.null_count:
        counts = counts * array.is_valid().to_numpy(zero_copy_only=False)
    edges = np.zeros(len(array) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    if not len(fragments):
        return pa.repeat(pa.scalar(b"", _BINARY), len(array))
    _, offsets, data = fragments.buffers()
    bounds = np.frombuffer(offsets, np.int32)[fragments.offset + edges]
    return pa.Array.from_buffers(_BINARY, len(array), [None, pa.py_buffer(bounds), data])


def _is_list(arrow: Any) -> bool:
    """Tell whether an Arrow type is a list of any kind."""
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    )


def _pairs(array: Any) -> Any:
    """Return the keys and the values of all maps as structs."""
    held = array.drop_null()
    begin, end = held.offsets[0].as_py(), held.offsets[-1].as_py()
    return pa.StructArray.from_arrays(
        [held.keys[begin:end], held.items[begin:end]], ["key", "value"]
    )
