"""The rows that are written: their columns in YTsaurus and in Spark, made from one running number.

One definition serves the queue, the generated source and the payloads of the bare client, so that all
contenders write the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark.sql.functions as sf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DISTINCT_KEYS = 10_000
"""Values of `key`, and so rows that a stateful query has at most."""


@dataclass(frozen=True)
class Shape:
    """A kind of row.

    Attributes:
        name: of the kind.
        row_bytes: data weight of a row, about.
        types: type of every column in YTsaurus.
        expressions: the columns in Spark SQL, from the column `id`.
    """

    name: str
    row_bytes: int
    types: dict[str, Any]
    expressions: dict[str, str]

    def columns(self, keys: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        """Return the table schema; all columns may be null."""
        return [
            {
                "name": name,
                "type_v3": {"type_name": "optional", "item": kind},
                **({"sort_order": "ascending"} if name in keys else {}),
            }
            for name, kind in self.types.items()
        ]

    def of(self, numbers: DataFrame) -> DataFrame:
        """Make rows out of a frame with the column `id`."""
        return numbers.selectExpr(
            *(f"{expression} as {name}" for name, expression in self.expressions.items())
        )


_NUMBERED = {"id": "id", "key": f"id % {DISTINCT_KEYS}"}

NARROW = Shape(
    "narrow",
    70,
    {"id": "int64", "key": "int64", "amount": "double", "count": "int64", "name": "utf8"},
    {
        **_NUMBERED,
        "amount": "id * 0.25D",
        "count": "id * 3",
        "name": "lpad(string(id), 38, 'name-')",
    },
)
_TEXTS, _TEXT_BYTES, _NUMBERS = 8, 116, 10
WIDE = Shape(
    "wide",
    8 * (2 + _NUMBERS) + _TEXTS * _TEXT_BYTES,
    {
        "id": "int64",
        "key": "int64",
        **{f"number_{place}": "int64" for place in range(_NUMBERS)},
        **{f"text_{place}": "utf8" for place in range(_TEXTS)},
    },
    {
        **_NUMBERED,
        **{f"number_{place}": f"id + {place}" for place in range(_NUMBERS)},
        **{
            f"text_{place}": f"lpad(string(id), {_TEXT_BYTES}, 'text-{place}-')"
            for place in range(_TEXTS)
        },
    },
)
COMPOSITE = Shape(
    "composite",
    100,
    {
        "id": "int64",
        "key": "int64",
        "tags": {"type_name": "list", "item": "utf8"},
        "place": {
            "type_name": "struct",
            "members": [{"name": "x", "type": "double"}, {"name": "y", "type": "double"}],
        },
        "counts": {"type_name": "dict", "key": "utf8", "value": "int64"},
    },
    {
        **_NUMBERED,
        "tags": "array(concat('tag-', string(id)), 'second', 'third')",
        "place": "named_struct('x', id * 0.5D, 'y', id * 0.25D)",
        "counts": "map('seen', id, 'sold', id * 2)",
    },
)
SHAPES = {shape.name: shape for shape in (NARROW, WIDE, COMPOSITE)}

TOTALS_TYPES = {"key": "int64", "n": "int64", "total": "double"}


def totals(rows: DataFrame) -> DataFrame:
    """Return what the stateful query makes of the rows: one row per key."""
    return rows.groupBy("key").agg(sf.count("id").alias("n"), sf.sum("amount").alias("total"))
