"""Messages of Debezium as rows that a target with `changes` takes."""

from __future__ import annotations

import base64
import hashlib
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING
from uuid import UUID

import pyspark.sql.functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from yt_exactly_once.codec.spark_types import parse_schema
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.schema import spark_schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPERATION = "op"
_MESSAGE = "m"
"""An entry that somebody wrote into the log of the database: no change of a row."""

_UNAVAILABLE = b"__debezium_unavailable_value"
"""What Debezium writes for a large value that an update of PostgreSQL has left as it was."""

_AS_HSTORE = f'{{"{_UNAVAILABLE.decode()}":"{_UNAVAILABLE.decode()}"}}'
"""The same for hstore, as JSON."""

_AS_TEXT = (
    _UNAVAILABLE.decode(),
    base64.b64encode(_UNAVAILABLE).decode(),
    _UNAVAILABLE.hex(),
    _AS_HSTORE,
    str(UUID(bytes=hashlib.md5(_UNAVAILABLE, usedforsecurity=False).digest(), version=3)),
)
"""The same for texts, bytes in the ways that connectors send them, hstore, and uuids in an array
(`UnchangedToastedPlaceholder.java`)."""


def debezium_changes(
    messages: DataFrame,
    column: str,
    rows: StructType | str,
    *,
    source: StructType | str = "lsn bigint",
) -> DataFrame:
    """Return what Debezium's messages say of rows: one change for each message about a row.

    A change has the columns of the row, those of `source`, and `op`: c, u, r, d, or t for a truncated table.
    The row of a delete is the one before it, of any other change the one after it. Messages without a value,
    which follow a delete, and messages that are not about rows are left out.

    An update without a large value that it leaves as it was has the operation `unavailable`. A sink refuses
    it, as it refuses t: what to write is not known. Give the table REPLICA IDENTITY FULL against the first.

    Args:
        messages: a DataFrame, streaming or not.
        column: its text column with the envelope as JSON, perhaps inside `payload`.
        rows: columns of a row, as a schema or as text: `id bigint, name string`. Others are left out.
        source: fields of `source` that order the changes of a key. For PostgreSQL `lsn bigint`, for MySQL
            `file string, pos bigint, row int`.

    Raises:
        ConfigError: two columns of a change have one name.

    Spark stops the query at a message that is not one JSON document, or has a value of another type. A name
    that differs by case is another one. A sink refuses a change whose key is null.
    """
    row, position = _schema(rows), _schema(source)
    names = [*row.names, *position.names, _OPERATION]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"A change would have the column {twice[0]} twice",
            remedy="Leave it out of rows, or rename it in the database",
            column=twice[0],
        )
    kinds = {"before": row, "after": row, "source": position, _OPERATION: StringType()}
    envelope = StructType([StructField(name, kind) for name, kind in kinds.items()])
    whole = StructType([*envelope, StructField("payload", envelope)])
    # Otherwise Spark would make a value that does not fit a null, which says something else.
    parsed = sf.from_json(_one_document(column), whole, {"mode": "FAILFAST"})
    given = messages.where(sf.col(column).isNotNull()).select(parsed.alias("m"))
    inner = [sf.coalesce(sf.col(f"m.payload.{name}"), sf.col(f"m.{name}")) for name in kinds]
    flat = given.select(*(each.alias(name) for each, name in zip(inner, kinds, strict=True)))
    deletes = sf.col(_OPERATION).eqNullSafe("d")
    chosen = sf.when(deletes, sf.col("before")).otherwise(sf.col("after"))
    operation = sf.when(deletes | ~_lacks_value(row), sf.col(_OPERATION)).otherwise("unavailable")
    changes = flat.where(~sf.col(_OPERATION).eqNullSafe(_MESSAGE)).select(
        chosen.alias("row"), "source", operation.alias(_OPERATION)
    )
    return changes.select("row.*", "source.*", _OPERATION)


def _one_document(column: str) -> Column:
    """Return the text of a message, of which Spark would read no more than its first document."""
    text = sf.col(column)
    # Spark counts up to the first end of the list: with one more item it tells whose end that is.
    alone, followed = (
        sf.json_array_length(sf.concat(sf.lit("["), text, sf.lit(end))) for end in ("]", ",0]")
    )
    fault = sf.raise_error(
        sf.lit(f"The column {column} has a message that is not one JSON document")
    )
    return sf.when(alone.eqNullSafe(1) & followed.eqNullSafe(2), text).otherwise(fault)


def _schema(given: StructType | str) -> StructType:
    return spark_schema_of(parse_schema(given)) if isinstance(given, str) else given


def _lacks_value(row: StructType) -> Column:
    """Return whether a value of the row after a change is missing in the message."""
    after = sf.col("after")
    found = (_is_unavailable(after.getField(each.name), each.dataType) for each in row)
    return reduce(or_, (sf.coalesce(one, sf.lit(False)) for one in found), sf.lit(False))


def _is_unavailable(  # noqa: PLR0911 - a case per kind
    value: Column, kind: DataType
) -> Column:
    """Return whether a value is what Debezium writes in its place: in an array of numbers, each byte."""
    match kind:
        case StringType():
            return value.isin(*_AS_TEXT)
        case BinaryType():
            return value == sf.lit(_UNAVAILABLE)
        case MapType():
            return sf.to_json(value) == _AS_HSTORE
        case ArrayType(elementType=NumericType()):
            return value.cast("array<double>") == sf.array(*map(sf.lit, map(float, _UNAVAILABLE)))
        case ArrayType(elementType=BooleanType()):
            return value == sf.array(*[sf.lit(True)] * len(_UNAVAILABLE))
        case ArrayType(elementType=element):
            return sf.exists(value, lambda one: _is_unavailable(one, element))
        case _:
            return sf.lit(False)
