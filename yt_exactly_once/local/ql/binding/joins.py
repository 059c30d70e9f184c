"""Joins: equal tuples between the tables so far and one more, and whether its key is used.

Owns the binding of a join and its rules; how it is executed is the compiler's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.binding.bound import Bound, Column
from yt_exactly_once.local.ql.binding.scope import Scope, Source
from yt_exactly_once.local.ql.text.naming import expressions_text, reference_name
from yt_exactly_once.local.ql.value_types import COMPARABLE

if TYPE_CHECKING:
    from yt_exactly_once.local.ql.binding.binder import Binder
    from yt_exactly_once.local.ql.text import syntax
    from yt_exactly_once.local.tables.layout import TableLayout

Equation = tuple[Bound, Bound]


@dataclass(frozen=True)
class BoundJoin:
    """A join that is ready to be compiled.

    Attributes:
        source: the joined table.
        is_left: whether rows without a partner are kept.
        equations: pairs of an expression over the earlier tables and one over this table.
        predicate: further condition on this table.
        text: the join as written, for errors.
    """

    source: Source
    is_left: bool
    equations: tuple[Equation, ...]
    predicate: Bound | None
    text: str

    @property
    def key_equations(self) -> tuple[Equation, ...]:
        """Equations for the leading key columns of the joined table, in key order."""
        by_column = {
            foreign.name: (own, foreign)
            for own, foreign in self.equations
            if isinstance(foreign, Column)
        }
        found = []
        for column in self.source.key_columns:
            if column.name not in by_column:
                break
            found.append(by_column[column.name])
        return tuple(found)


def bind_join(
    join: syntax.Join,
    index: int,
    layout: TableLayout,
    own_binder: Binder,
    foreign_binder: Binder,
    own_scope: Scope,
    foreign_scope: Scope,
) -> BoundJoin:
    """Bind one join.

    Raises:
        YtError: unknown columns, sides that do not match, a key column used twice.
    """
    shared = frozenset(reference.name for reference in join.using)
    source = Source(index, layout, join.table.alias, join.is_left, shared)
    foreign_scope.add(source)
    equations = [_shared_column(reference, own_scope, foreign_scope) for reference in join.using]
    if len(join.left) != len(join.right):
        raise YtError(
            f"Tuples of same size are expected but got {len(join.left)} vs {len(join.right)}",
            lhs_source=expressions_text(join.left),
            rhs_source=expressions_text(join.right),
        )
    for left, right in zip(join.left, join.right, strict=True):
        own = own_binder.bind(left, COMPARABLE)
        foreign = foreign_binder.bind(right, COMPARABLE)
        if own.type is not foreign.type:
            raise YtError(
                f'Types mismatch in join equation "{expressions_text((left,))} = '
                f'{expressions_text((right,))}"',
                self_type=own.type.title,
                foreign_type=foreign.type.title,
            )
        equations.append((own, foreign))
    _check_columns_once(equations)
    predicate = None
    if join.predicate is not None:
        predicate = foreign_binder.predicate(join.predicate, "JOIN-PREDICATE-clause")
    return BoundJoin(source, join.is_left, tuple(equations), predicate, _text(join))


def check_index_used(joins: Sequence[BoundJoin]) -> None:
    """Refuse joins that would read the whole joined table.

    Raises:
        YtError: the key of a joined table does not occur in its join.
    """
    for join in joins:
        if not join.key_equations and not _key_is_computed(join):
            raise YtError(
                "Foreign table key is not used in the join clause; "
                "the query is inefficient, consider rewriting it",
                source=join.text,
            )


def _key_is_computed(join: BoundJoin) -> bool:
    """Tell whether the leading key column follows from other columns, which the join may give."""
    key_columns = join.source.layout.key_columns
    return bool(key_columns) and key_columns[0].expression is not None


def _shared_column(reference: syntax.Reference, own: Scope, foreign: Scope) -> Equation:
    name = reference_name(reference.name, reference.table)
    left, right = own.resolve(reference), foreign.resolve(reference)
    if left is None or right is None:
        raise YtError(f'Column "{name}" not found')
    attributes = {"self_type": left.type.title, "foreign_type": right.type.title}
    if not (own.is_simple(left) and foreign.is_simple(right)):
        raise YtError(f'Cannot join column "{name}" of nonsimple type', attributes=attributes)
    if left.type is not right.type:
        raise YtError(f'Column "{name}" type mismatch in join', attributes=attributes)
    return left, right


def _check_columns_once(equations: Sequence[Equation]) -> None:
    seen: set[str] = set()
    for _, foreign in equations:
        if isinstance(foreign, Column):
            if foreign.name in seen:
                raise YtError(
                    f'Foreign key column "{foreign.name}" occurs more than once in a join clause'
                )
            seen.add(foreign.name)


def _text(join: syntax.Join) -> str:
    prefix = "LEFT JOIN" if join.is_left else "JOIN"
    alias = f" AS {join.table.alias}" if join.table.alias else ""
    if join.using:
        condition = f"USING {', '.join(reference.name for reference in join.using)}"
    else:
        condition = f"ON ({expressions_text(join.left)}) = ({expressions_text(join.right)})"
    return f"{prefix} [{join.table.path}]{alias} {condition}"
