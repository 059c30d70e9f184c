"""Letters as rows of their target: with the types that they had in the DataFrame, checked as the sink does.

A letter of an earlier version has JSON alone. Then the columns of the target say what a value is, where JSON
holds it exactly. A value that may be text or bytes is refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from yt_exactly_once.codec import schema as schemas
from yt_exactly_once.codec.arrow_types import arrow_type_of, as_json, is_json
from yt_exactly_once.codec.changes import changes
from yt_exactly_once.codec.matches import is_binary, is_string
from yt_exactly_once.codec.readable import may_be_bytes, parsed
from yt_exactly_once.codec.rejects import Unpacked, find_faults, readable, unpacked
from yt_exactly_once.codec.row_hash import added, row_hashes
from yt_exactly_once.codec.rows import WireFormat, encode, row_fragments
from yt_exactly_once.codec.types import scalar_of
from yt_exactly_once.codec.yson_fragments import joined
from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import PLAIN_WRITE, WriteOptions
from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.tables import TableInfo
    from yt_exactly_once.ytsaurus.transaction import TabletTransaction


class UnfitError(Exception):
    """Raised for a letter that cannot be made a row of the target; the text says why."""


@dataclass(frozen=True)
class Letter:
    """A row that its target could not take.

    Attributes:
        table: object id of the dead-letter table.
        row: the row by columns, as `codec.readable` shows values; perhaps corrected. `None` if none was kept.
        kept: the row with its types, see `codec.rejects.packed`. `None` in letters of an earlier version.
    """

    table: str
    tablet: int
    index: int
    query_id: str
    batch_id: int
    target: str
    column: str
    reason: str
    row: Mapping[str, Any] | None
    kept: bytes | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Tablet and index."""
        return self.tablet, self.index


@dataclass(frozen=True)
class Spelling:
    """What a person says of the JSON of an earlier version: its columns with texts, and those with base64."""

    texts: Collection[str] = ()
    binary: Collection[str] = ()


class Group(NamedTuple):
    """Letters whose rows have one schema, and are written alike.

    Attributes:
        marker: the delete marker among the columns, or nothing.
        write: as the sink would have written them.
    """

    letters: Sequence[Letter]
    rows: pa.RecordBatch
    plan: schemas.WritePlan
    marker: str
    write: WriteOptions

    def faults(self) -> dict[tuple[int, int], str]:
        """Return the positions of letters whose values do not fit, and why not."""
        found = find_faults(self.rows, self.plan, WireFormat.YSON, self.marker)
        return {self.letters[fault.row].position: fault.reason for fault in found}

    def payloads(self, tablets: int | None) -> list[Payload]:
        """Encode the rows, with their digest: what is deleted, then what is written.

        Args:
            tablets: of an ordered target.
        """
        rows, found = self.rows, []
        if self.marker:
            _, deleted, rows = changes(rows, self.plan.keys, self.marker)
            if len(deleted):
                found.append(Payload(len(deleted), joined(deleted), deletes=True))
        if rows.num_rows:
            positions = tablets and pa.array(
                [one.index % tablets for one in self.letters], pa.int64()
            )
            body = encode(rows, self.plan, WireFormat.YSON, tablet_index=positions)
            digest = added(0, row_hashes(rows, self.plan.columns))
            found.append(Payload(rows.num_rows, body, digest=digest))
        return found


class Target:
    """A target, and how letters become rows of it.

    Args:
        naming: columns that name the target, which it may lack.
    """

    def __init__(self, info: TableInfo, spelling: Spelling, naming: Collection[str] = ()) -> None:
        self.info = info
        self._table = schemas.TableSchema.from_yt(info.schema)
        self._spelling = spelling
        self._types = {field.name: field.type for field in schemas.arrow_schema_of(self._table)}
        self._left_out = {*naming} - {*self._types}

    def grouped(self, letters: Sequence[Letter]) -> tuple[list[Group], dict[tuple[int, int], str]]:
        """Return letters by the schema of their rows, and why others cannot be written, by position."""
        found: dict[tuple[Any, ...], list[tuple[Letter, pa.RecordBatch]]] = {}
        unfit = {}
        for letter in letters:
            try:
                row, marker, write = self._row(letter)
                # Schemas are equal whatever their metadata are.
                variants = tuple(map(is_json, row.schema))
                found.setdefault((row.schema, marker, write, variants), []).append((letter, row))
            except UnfitError as error:
                unfit[letter.position] = str(error)
        groups = []
        for (schema, marker, write, _), some in found.items():
            own = [letter for letter, _ in some]
            try:
                plan = self._plan(schema, marker)
            except UnfitError as error:
                unfit |= {one.position: str(error) for one in own}
                continue
            table = pa.Table.from_batches([row for _, row in some]).combine_chunks()
            groups.append(Group(own, table.to_batches()[0], plan, marker, write))
        return groups, unfit

    def _plan(self, schema: pa.Schema, marker: str) -> schemas.WritePlan:
        if marker and not self.info.is_sorted:
            raise UnfitError(f"{marker} marks deletions, and the target is not sorted")
        if marker:
            schema = schema.remove(schema.get_field_index(marker))
        found = schemas.differences(schema, self._table, sorted=self.info.is_sorted)
        if found:
            raise UnfitError("; ".join(map(_said, found)))
        path, is_sorted = self.info.path, self.info.is_sorted
        return schemas.check_frame(schema, self._table, target=path, sorted=is_sorted)

    def _row(self, letter: Letter) -> Unpacked:
        """Return the row of a letter as it is now; raise `UnfitError` if a value has no type."""
        if letter.row is None:
            raise UnfitError("the letter has no row: it was too long, or is no row")
        old, marker, write = None, "", PLAIN_WRITE
        if letter.kept is not None:
            try:
                old, marker, write = unpacked(letter.kept)
            except ValueError as error:
                raise UnfitError(f"the row of the letter cannot be read: {error}") from error
        before = {} if old is None else readable(old)
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for name, value in letter.row.items():
            if name in self._left_out:
                continue
            one, is_variant = None, False
            if old is not None and name in before:
                positions = old.schema.get_all_field_indices(name)
                one, is_variant = (
                    old.column(positions[-1]),
                    is_json(old.schema.field(positions[-1])),
                )
                if value == before[name]:
                    fields += [old.schema.field(position) for position in positions]
                    arrays += [old.column(position) for position in positions]
                    continue
            kind = self._type(name, value, one, is_typed=old is not None)
            fields.append(as_json(pa.field(name, kind)) if is_variant else pa.field(name, kind))
            try:
                # What the target has no column for is refused, or left out, whatever its value is.
                arrays.append(pa.nulls(1) if kind == pa.null() else parsed(value, kind, one))
            except ValueError as error:
                raise UnfitError(f"{name}: {error}") from error
        row = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
        return Unpacked(row, marker if marker in letter.row else "", write)

    def _type(self, name: str, value: Any, old: pa.Array | None, *, is_typed: bool) -> pa.DataType:
        """Return the type of a value that was corrected, or that never had one."""
        if old is not None and not pa.types.is_null(old.type):
            return old.type
        kind = self._types.get(name, pa.null())
        return kind if is_typed or kind == pa.null() else self._spelled(name, value, kind)

    def _spelled(self, name: str, value: Any, kind: pa.DataType) -> pa.DataType:
        """Return the type of a value of an earlier version, of which JSON is all there is."""
        (column,) = (one for one in self._table.columns if one.name == name)
        scalar = scalar_of(column.type)
        if name in self._spelling.binary:
            binary = pa.binary() if scalar else arrow_type_of(column.type, binary_strings=True)
            return binary if scalar is None or is_string(kind) or is_binary(kind) else kind
        is_any = scalar is not None and scalar.holds_yson
        if name in self._spelling.texts:
            return pa.string() if is_any else kind
        # The bytes of a plain column that is neither text nor any are base64.
        is_plain = scalar is not None and not is_any
        is_open = not is_plain and _holds(kind, is_binary) and _has_text(value)
        if is_open or (_holds(kind, is_string) and may_be_bytes(value)):
            raise UnfitError(
                f"{name}: an earlier version wrote the letter without types, and it does not say whether a "
                f"value is text or base64; name the column with --text or --base64"
            )
        return kind

    def require_free(
        self, transaction: TabletTransaction, groups: Sequence[Group], *, overwrite: bool
    ) -> None:
        """Check that no row of a sorted target would be replaced; raise `ConfigError` if one would.

        What is added to a row, as the sink would have done, replaces none.
        """
        adds = any(column.aggregate for column in self._table.columns)
        groups = [group for group in groups if not (adds and group.write.aggregate)]
        if not groups:
            return
        keys = [row_fragments(group.rows, group.plan.keys) for group in groups]
        again = max(Counter(one for some in keys for one in some.to_pylist()).values())
        if again > 1:
            raise ConfigError(
                f"{again} letters have one key, and only one of them would stay",
                remedy="Choose one with --letters FILE",
                target=self.info.path,
            )
        if overwrite:
            return
        there = transaction.lookup(self.info.path, b"".join(map(joined, keys)))
        if taken := sum(one is not None for one in there):
            raise ConfigError(
                f"{taken} letters have keys that the target has now, perhaps with newer values",
                remedy="Choose the others with --letters FILE, or replace these rows with --overwrite",
                target=self.info.path,
            )


def _said(one: schemas.Difference) -> str:
    if one.table == schemas.ABSENT:
        return f"the target has no column {one.column}"
    if one.frame == schemas.ABSENT:
        return f"the row has no column {one.column}"
    return f"{one.column} is {one.frame} in the row, and {one.table} in the target: {one.remedy}"


def _holds(kind: pa.DataType, is_kind: Any) -> bool:
    """Check whether a type is, or has a part that is, of a kind."""
    children = (kind.field(n).type for n in range(kind.num_fields))
    return bool(is_kind(kind)) or any(_holds(inner, is_kind) for inner in children)


def _has_text(value: Any) -> bool:
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return isinstance(value, str) or any(map(_has_text, children))
