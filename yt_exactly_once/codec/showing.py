"""A value of an array for people to read, whatever it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def value_at(array: pa.Array, row: int) -> Any:
    """Return a value as Python has it, or as text where Python has no such value."""
    one, kind = array.slice(row, 1), array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = one.cast(pa.large_binary())[0].as_py()
        # Strings of Spark need not be text.
        return None if found is None else found.decode("utf-8", "backslashreplace")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return one.cast(pa.string())[0].as_py()
    try:
        return one[0].as_py()
    except (OverflowError, ValueError):
        # A moment far from ours, or bytes that are no text, inside a composite value.
        return str(one)
