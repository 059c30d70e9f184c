"""Paths with columns in braces: the values of a row in these columns name the table that takes it.

A value becomes one name, or a part of one, and never more: what means something in a path, or reads as
something else, names no table. Rows are sorted by table as whole columns. Python sees each value once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from yt_exactly_once.codec.rejects import Fault
from yt_exactly_once.errors import COMMANDING, ConfigError

LONGEST_NAME = 256
"""Most bytes of a value in a path; a cluster takes longer names, and people do not read them."""

_COLUMN = re.compile(r"(?<!\\)\{([^{}\\]*)\}")
_OTHER_BRACE = re.compile(r"(?<!\\)[{}]")
_MEANINGFUL = re.compile(r"[/\\@&*\[\]{}]")
_HERE = frozenset({".", ".."})


class Dealt(NamedTuple):
    """Rows by their tables.

    Attributes:
        tables: indexes of the rows of each table, in their order.
        faults: the rows that name no table.
    """

    tables: dict[str, np.ndarray[Any, Any]]
    faults: list[Fault]


@dataclass(frozen=True)
class PathPattern:
    """A path with columns in braces, such as `//home/{shop}/orders`."""

    text: str

    @classmethod
    def of(cls, path: str) -> PathPattern | None:
        """Return the pattern that a path is; `None` if it is the path of one table.

        Raises:
            ConfigError: there is a brace that belongs to no column, or a column in the first name.
        """
        rest = _COLUMN.sub("", path)
        if not _COLUMN.search(path) and not _OTHER_BRACE.search(rest):
            return None
        pattern = cls(path)
        if _OTHER_BRACE.search(rest) or "" in pattern.columns or pattern.folder == "/":
            raise ConfigError(
                f"{path!r} is no path with columns in braces",
                remedy="Write each column in braces, below a folder: //home/{shop}/orders",
            )
        return pattern

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns, in their order."""
        return tuple(_COLUMN.findall(self.text))

    @property
    def folder(self) -> str:
        """The folder that has all its tables: what is before the first column."""
        return self.text[: self.text.index("{")].rpartition("/")[0]

    def covers(self, path: str) -> bool:
        """Return whether a row may name this table."""
        return self._names.fullmatch(path) is not None

    @cached_property
    def _names(self) -> re.Pattern[str]:
        fixed = map(re.escape, _COLUMN.split(self.text)[::2])
        return re.compile("[^/]+".join(fixed), re.DOTALL)

    def require_columns(self, schema: pa.Schema) -> None:
        """Raise `ConfigError` if the rows lack a column of it, or have one that is no name."""
        for name in self.columns:
            kinds = [field.type for field in schema if field.name == name]
            fits = len(kinds) == 1 and (_is_text(kinds[0]) or _is_number(kinds[0]))
            if not fits:
                has = f"has it with the type {kinds[0]}" if kinds else "has no such column"
                raise ConfigError(
                    f"The path names its tables by {name}, and the DataFrame {has}",
                    remedy="Name a column of strings, integers or dates, or cast it in the query",
                    target=self.text,
                    column=name,
                )

    def path_of(self, values: Sequence[Any]) -> tuple[str, str]:
        """Return the path that values of its columns name, or why they name none."""
        path, fault = self._path(list(values), ())
        return path, fault[1] if fault else ""

    def deal(self, rows: pa.RecordBatch, taken: Collection[str] = ()) -> Dealt:
        """Return which rows go to which table.

        Args:
            taken: paths that are no table for rows: the sink or its query uses them.
        """
        columns = [_distinct(rows.column(name)) for name in self.columns]
        first = codes = np.zeros(rows.num_rows, np.int64)
        for indexes, values in columns:
            # Counted anew for each column, or the product of all would not fit.
            _, first, codes = np.unique(
                codes * len(values) + indexes, return_index=True, return_inverse=True
            )
        numbers: dict[str, int] = {}
        reasons: list[tuple[str, str]] = []
        targets = np.empty(len(first), np.int64)
        for position, row in enumerate(first.tolist()):
            path, fault = self._path([values[indexes[row]] for indexes, values in columns], taken)
            if fault is None:
                targets[position] = numbers.setdefault(path, len(numbers))
            else:
                reasons.append(fault)
                targets[position] = -len(reasons)
        by_row = targets[codes]
        order = np.argsort(by_row, kind="stable")
        bounds = np.searchsorted(by_row[order], np.arange(len(numbers) + 1))
        tables = {path: order[bounds[n] : bounds[n + 1]] for path, n in numbers.items()}
        refused = np.sort(order[: bounds[0]])
        faults = [
            Fault(row, *reasons[-number - 1])
            for row, number in zip(refused.tolist(), by_row[refused].tolist(), strict=True)
        ]
        return Dealt(tables, faults)

    def _path(
        self, values: list[Any], taken: Collection[str]
    ) -> tuple[str, tuple[str, str] | None]:
        """Return the path that values name, and the column and the reason if they name none."""
        names = []
        for column, value in zip(self.columns, values, strict=True):
            name, problem = _name(value)
            if problem:
                return "", (column, f"{column} names no table: {problem}")
            names.append(name)
        filling = iter(names)
        path = _COLUMN.sub(lambda _: next(filling), self.text)
        column, problem = self.columns[-1], ""
        if not _HERE.isdisjoint(path.split("/")):
            problem = "it would be a name of dots alone"
        elif path in taken:
            problem = "it would be a table that the sink or its query uses"
        return path, (column, f"{column} names no table: {problem}") if problem else None


def beside(paths: Iterable[str], what: str) -> str:
    """Return where a table of a sink is by default; the same for the same targets, whatever their order.

    That is beside the first one, and for a pattern in the folder of all its tables.
    """
    first = min(paths)
    pattern = PathPattern.of(first)
    return f"{first}_{what}" if pattern is None else f"{pattern.folder}/yt_exactly_once_{what}"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def _distinct(column: pa.Array) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """Return the distinct values of a column, texts as their bytes, and the index of each row among them."""
    if _is_text(column.type):
        # A string of Spark may be no text.
        column = column.view(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(encoded.indices), encoded.dictionary.to_pylist()


def _name(value: Any) -> tuple[str, str]:
    """Return a value as a name, or what is wrong with it."""
    if value is None:
        return "", "it is null"
    try:
        name = value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        return "", "it is no UTF-8"
    meaningful = _MEANINGFUL.search(name)
    problems = {
        "it is empty, or begins or ends with a space": not name or name != name.strip(),
        f"it is longer than {LONGEST_NAME} bytes": len(name.encode()) > LONGEST_NAME,
        "it has a control character": COMMANDING.search(name),
        f"it has the character {meaningful and meaningful[0]}": meaningful,
    }
    return name, next((problem for problem, is_so in problems.items() if is_so), "")
