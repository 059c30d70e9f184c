"""Rows of whole tables, in pieces that several readers take: static tables, and sorted dynamic ones.

A static table is read by row numbers, as long as its content stays the same. A sorted dynamic table is read
at one timestamp, tablet by tablet, in pages that begin after the last key of the page before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeAlias

from yt.wrapper import TablePath, YsonFormat
from yt.yson import YsonBoolean, YsonEntity, YsonStringProxy, YsonUint64, get_bytes

from yt_exactly_once.errors import ConflictError, SchemaMismatchError
from yt_exactly_once.ytsaurus.browsing import attributes_of
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.tables import columns_of, existing, not_mounted

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

Key: TypeAlias = "tuple[Any, ...]"

_ATTRIBUTES = [
    "id",
    "dynamic",
    "sorted",
    "schema",
    "tablet_state",
    "pivot_keys",
    "row_count",
    "chunk_row_count",
    "data_weight",
    "content_revision",
]
_BINARY = YsonFormat(format="binary")

_KEY_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "interval"), "int64"),
    **dict.fromkeys(("date32", "datetime64", "timestamp64", "interval64"), "int64"),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), "uint64"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "uint64"),
    **dict.fromkeys(("utf8", "string", "json", "uuid"), "string"),
    "boolean": "boolean",
}
"""How the values of a key column are written in a query, by its older type."""


@dataclass(frozen=True)
class WholeTable:
    """A table that can be read as a whole, as it was when it was looked at.

    Attributes:
        schema: its columns, see `columns_of`.
        is_dynamic: a sorted dynamic table; otherwise a static one.
        row_count: of a static table; for a dynamic one about how many its chunks have.
        data_weight: bytes of the rows.
        revision: changes with the content of a static table.
        pivots: first keys of the tablets of a dynamic table, as a query has them.
        timestamp: when a dynamic table is read.
    """

    connection: Connection
    path: str
    id: str
    schema: list[dict[str, Any]]
    is_dynamic: bool
    row_count: int
    data_weight: int
    revision: int
    pivots: tuple[tuple[str, ...], ...] = ()
    timestamp: int = 0

    @classmethod
    def look(cls, connection: Connection, path: str) -> WholeTable:
        """Describe a table.

        Raises:
            TableNotFoundError: nothing at the path, or something other than a table.
            TableNotMountedError: a dynamic table is not mounted.
        """
        found = existing(connection, path, _ATTRIBUTES)
        table = cls(
            connection,
            path,
            str(found["id"]),
            columns_of(found),
            bool(found["dynamic"]),
            int(found.get("chunk_row_count") or found.get("row_count") or 0),
            int(found.get("data_weight") or 0),
            int(found.get("content_revision", 0)),
            pivots=tuple(tuple(map(literal, key)) for key in found.get("pivot_keys", ())),
        )
        if table.is_dynamic and found["tablet_state"] not in {"mounted", "frozen"}:
            raise not_mounted(path, found["tablet_state"])
        return table

    @property
    def key_columns(self) -> list[dict[str, Any]]:
        """The key, each column with the type in which a query writes it."""
        return [
            {"name": column["name"], "type": _key_type(column, self.path)}
            for column in self.schema
            if column.get("sort_order")
        ]

    def now(self) -> WholeTable:
        """Return a dynamic table at this moment."""
        with translated("ask for a timestamp"):
            return replace(self, timestamp=int(self.connection.reader.generate_timestamp()))

    def require_same(self) -> None:
        """Check that this is the table that was looked at; raise `ConflictError` if not.

        A static one must not have been written since. A dynamic one is read at its timestamp, but a table
        that was created later has no rows of that moment.
        """
        found = attributes_of(self.connection, self.path, ["id", "content_revision"]) or {}
        if found.get("id") != self.id:
            raise ConflictError(
                "The table was replaced or removed after it was loaded",
                remedy="Load it again, with spark.read, and use the new DataFrame",
                path=self.path,
            )
        if not self.is_dynamic and found.get("content_revision", 0) != self.revision:
            path, copy = quote(self.path), quote(f"{self.path}_copy")
            raise ConflictError(
                "The table was written while it was read, so the rows are of different moments",
                remedy=f"Load it again, with spark.read. Or load a copy: yt copy {path} {copy}",
                path=self.path,
            )

    def rows(self, start: int, end: int, columns: Sequence[str], *, arrow: bool = False) -> bytes:
        """Return rows of a static table by their numbers, as a binary YSON list fragment or as Arrow."""
        wanted = TablePath(self.path, start_index=start, end_index=end, columns=list(columns))
        with translated("read rows", path=self.path, start=start):
            answer: bytes = self.connection.reader.read_table(
                wanted, format="arrow" if arrow else _BINARY, raw=True
            ).read()
        return answer

    def page(self, after: Key | None, tablet: int, most: int, columns: Sequence[str]) -> bytes:
        """Return rows of a tablet of a dynamic table, in the order of their keys.

        Args:
            after: key of the last row of the page before; `None` for the first page.
            most: most rows to return; fewer end the tablet.
        """
        keys = [column["name"] for column in self.key_columns]
        conditions = []
        lower = self.pivots[tablet] if after is None else tuple(map(literal, after))
        if lower:
            operator = ">=" if after is None else ">"
            conditions.append(_compare(keys, operator, lower))
        if tablet + 1 < len(self.pivots):
            conditions.append(_compare(keys, "<", self.pivots[tablet + 1]))
        filtered = f" where {' and '.join(conditions)}" if conditions else ""
        query = (
            f"{listed(columns)} from [{self.path}]{filtered} order by {listed(keys)} limit {most}"
        )
        with translated("read rows", path=self.path, tablet=tablet):
            answer: bytes = self.connection.reader.select_rows(
                query, timestamp=self.timestamp, format=_BINARY, raw=True
            ).read()
        return answer


def listed(names: Iterable[str]) -> str:
    """Return the names of columns as a query has them."""
    return ", ".join(f"[{name}]" for name in names)


def literal(value: Any) -> str:
    """Return a value of a key, as Python or the client has it, as a query has it; unsigned stays unsigned."""
    match value:
        case None | YsonEntity():
            return "null"
        case bool() | YsonBoolean():
            return "true" if value else "false"
        case YsonUint64():
            return f"{int(value)}u"
        case bytes():
            return '"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
        case str() | YsonStringProxy():
            return literal(get_bytes(value))
        case _:
            return repr(int(value) if isinstance(value, int) else float(value))


def _compare(keys: Sequence[str], operator: str, literals: Sequence[str]) -> str:
    return f"({listed(keys[: len(literals)])}) {operator} ({', '.join(literals)})"


def _key_type(column: dict[str, Any], path: str) -> str:
    kind = _KEY_TYPES.get(str(column["type"]))
    if kind is None:
        shown, copy = quote(path), quote(f"{path}_copy")
        raise SchemaMismatchError(
            f"A table with a key column of type {column['type']} cannot be read in parts",
            remedy=f"Read a static copy: yt merge --src {shown} --dst {copy}. Or use SPYT",
            column=column["name"],
            path=path,
        )
    return kind
