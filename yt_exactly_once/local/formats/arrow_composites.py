"""Arrow lists, structs and maps as columns of YSON, written by vector.

Values that are all right for their type are written as they are stored. Of others only the shapes are
checked here: they are written by position, and what is wrong with them is seen when the YSON is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.formats.yson_lines import NULL, Lines
from yt_exactly_once.local.tables import types, values, vectors
from yt_exactly_once.local.tables.composite_columns import StoredComposites, among_nulls
from yt_exactly_once.local.tables.schema import Column

if TYPE_CHECKING:
    Leaf = Callable[[Any, Any], Any]

_BINARY = pa.binary()
_NULLS = ("null", "void")


def stored(logical: types.LogicalType, array: Any, leaf: Leaf) -> StoredComposites | None:
    """Return values as they are stored; None if one may not be right for its type.

    Args:
        logical: with its optional if it has one.
        leaf: returns values without parts as they would be stored, by their type.

    Raises:
        YtError: an Arrow type does not fit.
    """
    try:
        found = _Writer(leaf, is_stored=True).fragments(
            types.value_type(logical), array.drop_null()
        )
    except _WrongValueError:
        return None
    return StoredComposites(among_nulls(found, array))


def written(logical: types.LogicalType, array: Any, leaf: Leaf) -> Any:
    """Return positional YSON, null where a value is null; arguments and errors are those of `stored`."""
    fragments = _Writer(leaf, is_stored=False).fragments(logical, array)
    return pc.if_else(array.is_valid(), fragments, pa.scalar(None, _BINARY))


class _WrongValueError(Exception):
    """A value may not be right for its type."""


@dataclass(frozen=True)
class _Writer:
    """Writes values; as they are stored, structs are maps, and each value is checked."""

    leaf: Leaf
    is_stored: bool

    def fragments(self, logical: types.LogicalType, array: Any) -> Any:
        """Return one fragment of YSON for each value, null included."""
        lines = Lines(len(array))
        self._put(lines, logical, array)
        return lines.strings()

    def _require(self, condition: bool) -> None:
        if self.is_stored and not condition:
            raise _WrongValueError

    def _put(self, lines: Lines, logical: types.LogicalType, array: Any) -> None:
        logical = types.untagged(logical)
        if isinstance(logical, dict) and logical["type_name"] == "optional":
            item = types.untagged(logical["item"])
            is_nested = item in _NULLS or (
                isinstance(item, dict) and item["type_name"] == "optional"
            )
            self._require(not is_nested)
            self._put_present(lines, item, array)
        else:
            self._require(not array.null_count)
            self._put_present(lines, logical, array)

    def _put_present(self, lines: Lines, logical: types.LogicalType, array: Any) -> None:
        if isinstance(logical, dict) and logical["type_name"] == "optional":
            self._put(lines, logical, array)
        elif array.null_count == len(array):
            lines.put(NULL)
        elif isinstance(logical, str) or logical["type_name"] == "decimal":
            self._put_leaves(lines, logical, self.leaf(logical, array))
        elif array.null_count:
            whole = Lines(len(array))
            self._put_parts(whole, logical, array)
            lines.put_strings(pc.if_else(array.is_valid(), whole.strings(), NULL))
        else:
            self._put_parts(lines, logical, array)

    def _put_parts(self, lines: Lines, logical: dict[str, Any], array: Any) -> None:
        kind = logical["type_name"]
        if kind == "struct" and pa.types.is_struct(array.type):
            brackets = b"{}" if self.is_stored else b"[]"
            lines.put(brackets[:1])
            self._put_all(lines, _members(logical["members"], array))
            lines.put(brackets[1:])
            return
        if kind == "list" and (_is_list(array.type) or pa.types.is_map(array.type)):
            items = array.flatten() if _is_list(array.type) else _pairs(array)
            inner = Lines(len(items))
            self._put_all(inner, [(b"", logical["item"], items)])
        elif kind == "dict" and pa.types.is_map(array.type):
            keys, found = _pairs(array).flatten()
            inner = Lines(len(keys))
            inner.put(b"[")
            self._put_all(inner, [(b"", logical["key"], keys), (b"", logical["value"], found)])
            inner.put(b"];")
        else:
            raise YtError(f'Unexpected arrow type "{array.type}" for YT metatype "{kind}"')
        lines.put(b"[")
        lines.put_strings(_items(array, inner.strings()))
        lines.put(b"]")

    def _put_all(self, lines: Lines, parts: list[tuple[bytes, Any, Any]]) -> None:
        """Put what all rows have in some parts, with a separator after each, and a name before it."""
        for name, logical, array in parts:
            lines.put(name if self.is_stored else b"")
            self._put(lines, logical, array)
            lines.put(b";")

    def _put_leaves(self, lines: Lines, logical: Any, found: Any) -> None:
        if isinstance(found, list):
            self._require(False)
            dumped = [NULL if value is None else values.dump_yson(value) for value in found]
            lines.put_strings(pa.array(dumped, _BINARY))
            return
        if self.is_stored:
            name = "boolean" if logical == "bool" else logical
            self._require(
                isinstance(name, str)
                and name in types.KINDS
                and types.KINDS[name] != "any"
                and vectors.is_fine(Column("", name, logical, required=False), found)
            )
        if isinstance(logical, str) and logical in types.UNSIGNED and pa.types.is_int64(found.type):
            found = found.cast(pa.uint64())
        lines.put_values(found)


def _members(members: list[dict[str, Any]], array: Any) -> list[tuple[bytes, Any, Any]]:
    """Return the name, the type and the values of each member."""
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
    return [
        (values.dump_yson(member["name"]) + b"=", member["type"], columns[str(member["name"])])
        for member in members
    ]


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
