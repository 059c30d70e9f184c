"""Random queries as text, every expression well typed, over four fixed tables.

Written imperatively over Hypothesis' `draw`: strategies that nest as deeply as expressions do would take
longer to build than the queries to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import strategies as st

from yt_exactly_once.local.ql.value_types import Type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Picked = TypeVar("Picked")

INT, UINT, DOUBLE, BOOL, STRING = (
    Type.INT64,
    Type.UINT64,
    Type.DOUBLE,
    Type.BOOLEAN,
    Type.STRING,
)
KINDS = (INT, UINT, DOUBLE, BOOL, STRING)
RELATIONS = ("=", "!=", "<", "<=", ">", ">=")

DATA: dict[Type, tuple[Any, ...]] = {
    INT: (0, 1, 2, -1, -7, 5, 2**62, 2**63 - 1, -(2**63)),
    UINT: (0, 1, 2, 9, 2**63 - 1, 2**63, 2**63 + 3, 2**64 - 1),
    # Powers of two keep every sum and product exact.
    DOUBLE: (0.0, 0.25, -0.5, 1.0, 3.0, -8.0),
    BOOL: (False, True),
    STRING: (b"", b"a", b"ab", b"b", b"B", b"a\0", b"a\0\xff", b"\xff", b"\xffa"),
}
"""Few values, so that rows meet; extreme ones, so that they overflow."""

VALUES = {"i": INT, "u": UINT, "d": DOUBLE, "b": BOOL, "s": STRING}
SCHEMAS: dict[str, tuple[Mapping[str, Type], tuple[str, ...]]] = {
    "//main": ({"k": INT, "h": STRING, **VALUES}, ("k", "h")),
    "//unsigned": ({"k": UINT, "h": INT, **VALUES}, ("k", "h")),
    "//side": ({"k": INT, "m": INT, "w": STRING}, ("k", "m")),
    "//log": ({"$tablet_index": INT, "$row_index": INT, **VALUES}, ()),
}
"""Columns and key columns of the tables; `//log` is ordered."""

POSITION = ("$tablet_index", "$row_index")
AGGREGATES = {
    "sum": (INT, UINT, DOUBLE),
    "avg": (INT, UINT, DOUBLE),
    "min": KINDS,
    "max": KINDS,
    "first": KINDS,
    "argmin": KINDS,
    "argmax": KINDS,
    "cardinality": (INT, STRING),
}
RESULTS = {"avg": DOUBLE, "cardinality": UINT}


def literal(kind: Type, data: Any) -> str:
    """Spell a constant."""
    if data is None:
        return "null"
    match kind:
        case Type.UINT64:
            return f"{data}u"
        case Type.BOOLEAN:
            return "true" if data else "false"
        case Type.STRING:
            return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'
    return f"({data})" if data < 0 else str(data)


def quoted(column: str) -> str:
    return f"[{column}]" if column.startswith("$") else column


class Writer:
    """Writes expressions over the columns of a table."""

    def __init__(self, draw: st.DrawFn, kinds: Mapping[str, Type], prefix: str = "") -> None:
        self._draw = draw
        self.kinds = kinds
        self.columns = {
            kind: [prefix + quoted(name) for name, found in kinds.items() if found is kind]
            for kind in KINDS
        }

    def pick(self, options: Sequence[Picked]) -> Picked:
        return self._draw(st.sampled_from(options))

    def times(self, most: int) -> range:
        return range(self._draw(st.integers(1, most)))

    def constant(self, kind: Type) -> str:
        # Signed literals become unsigned ones or doubles when they meet them.
        if kind in (UINT, DOUBLE) and self.pick((False, True)):
            return literal(INT, self.pick((0, 2, 9, -1)))
        return literal(kind, self.pick(DATA[kind]))

    def constant_or_null(self, kind: Type) -> str:
        return self.pick(("null", "")) or self.constant(kind)

    def expression(self, kind: Type, depth: int) -> str:
        if depth == 0 or self.pick(range(5)) == 0:
            return self.pick(self.columns[kind])
        write: Callable[[Type, int], str] = self.pick(
            (self._conditional, self._known, self._case, *[self._own] * 5)
        )
        return write(kind, depth - 1)

    def operand(self, kind: Type, depth: int) -> str:
        return self.constant(kind) if self.pick((False, True)) else self.expression(kind, depth)

    def of_any_kind(self, depth: int) -> tuple[Type, str]:
        kind = self.pick(KINDS)
        return kind, self.expression(kind, depth)

    def condition(self, depth: int = 2) -> str:
        return self.expression(BOOL, depth)

    def _conditional(self, kind: Type, depth: int) -> str:
        condition, yes = self.expression(BOOL, depth), self.expression(kind, depth)
        return f"if({condition}, {yes}, {self.operand(kind, depth)})"

    def _known(self, kind: Type, depth: int) -> str:
        return f"if_null({self.expression(kind, depth)}, {self.operand(kind, depth)})"

    def _case(self, kind: Type, depth: int) -> str:
        result = self.expression(kind, depth)
        default = self.pick(("", f" else {self.constant(kind)}"))
        if self.pick((False, True)):
            return f"case when {self.expression(BOOL, depth)} then {result}{default} end"
        tested, operand = self.of_any_kind(depth)
        value = self.operand(tested, depth)
        return f"case {operand} when {value} then {result}{default} end"

    def _own(self, kind: Type, depth: int) -> str:
        match kind:
            case Type.STRING:
                return self._string(depth)
            case Type.BOOLEAN:
                return self._boolean(depth)
            case Type.DOUBLE:
                return self._double(depth)
        return self._integer(kind, depth)

    def _string(self, depth: int) -> str:
        text = self.expression(STRING, depth)
        other = self.operand(STRING, depth)
        return self.pick((f"lower({text})", f"concat({text}, {other})", f"({text} || {other})"))

    def _double(self, depth: int) -> str:
        value = self.expression(DOUBLE, depth)
        match self.pick(("sum", "quotient", "minus", "double")):
            case "sum":
                return f"({value} {self.pick('+-*')} {self.operand(DOUBLE, depth)})"
            case "quotient":
                return f"({value} / {self.pick(('2', '(-0.5)', '4.0'))})"
            case "minus":
                return f"(-{value})"
        return f"double(length({self.expression(STRING, depth)}))"

    def _integer(self, kind: Type, depth: int) -> str:  # noqa: PLR0911 - a case per form
        value = self.expression(kind, depth)
        match self.pick(("sum", "quotient", "shift", "minus", "convert", "transform", "length")):
            case "sum":
                return f"({value} {self.pick('+-*|&')} {self.operand(kind, depth)})"
            case "quotient":
                divisor = self.pick(("2", "1000", "7") if kind is UINT else ("2", "1000", "(-7)"))
                return f"({value} {self.pick('/%')} {divisor})"
            case "shift":
                return f"({value} {self.pick(('<<', '>>'))} {self.pick((0, 1, 63, 64, 65))})"
            case "minus":
                return f"({self.pick('-~')}{value})"
            case "transform":
                keys, results = ("1, 2, null", "3, 4u, 5") if kind is UINT else ("1, 2", "3, null")
                return f"transform({value}, ({keys}), ({results}){self.pick(('', f', {value}'))})"
            case "length" if kind is INT:
                return f"length({self.expression(STRING, depth)})"
        return f"{kind.title}({self.expression(UINT if kind is INT else INT, depth)})"

    def _boolean(self, depth: int) -> str:
        write = self.pick(
            (
                *[self._relation] * 3,
                self._logic,
                self._membership,
                self._tuple,
                self._text,
                self._range,
            )
        )
        return f"({write(depth)})"

    def _relation(self, depth: int) -> str:
        kind, value = self.of_any_kind(depth)
        if self.pick(("relation", "null")) == "null":
            return f"{value} is {self.pick(('', 'not '))}null"
        return f"{value} {self.pick(RELATIONS)} {self.operand(kind, depth)}"

    def _logic(self, depth: int) -> str:
        condition = self.expression(BOOL, depth)
        if self.pick(("two", "not")) == "not":
            return f"not {condition}"
        return f"{condition} {self.pick(('and', 'or'))} {self.expression(BOOL, depth)}"

    def _membership(self, depth: int) -> str:
        kind, value = self.of_any_kind(depth)
        listed = [self.constant_or_null(kind) for _ in self.times(3)]
        if self.pick((False, True)):
            listed.append(self.expression(kind, depth))
        return f"{value} {self.pick(('in', 'not in'))} ({', '.join(listed)})"

    def _tuple(self, depth: int) -> str:
        kinds = [self.pick(KINDS) for _ in range(2)]
        left = ", ".join(self.expression(kind, depth) for kind in kinds)
        right = ", ".join(self.operand(kind, depth) for kind in kinds)
        return f"({left}) {self.pick(RELATIONS)} ({right})"

    def _text(self, depth: int) -> str:
        text = self.expression(STRING, depth)
        match self.pick(("like", "is_prefix", "is_substr")):
            case "like":
                return f"{text} {self.pick(('', 'not '))}like {self.pick(PATTERNS)}"
            case function:
                return f"{function}({self.constant(STRING)}, {text})"

    def _range(self, depth: int) -> str:
        value = self.expression(INT, depth)
        if self.pick(("one", "many")) == "one":
            return f"{value} between {self.constant_or_null(INT)} and {self.operand(INT, depth)}"
        return f"{value} between (null and -8, -7 and 1, 5 and 9)"

    def key_condition(self, depth: int = 2) -> str:  # noqa: PLR0911 - a case per form
        """Write what key ranges are made from, alone and combined."""
        if depth and self.pick((False, True)):
            left, right = self.key_condition(depth - 1), self.key_condition(depth - 1)
            return f"({left} {self.pick(('and', 'or'))} {right})"
        first, second = list(self.kinds)[:2]
        kinds, names = (self.kinds[first], self.kinds[second]), (quoted(first), quoted(second))
        pair = f"({names[0]}, {names[1]})"
        match self.pick(
            ("one", "turned", "in", "pairs", "pair", "range", "then", "then", "ranges")
        ):
            case "one":
                which = self.pick((0, 0, 1))
                value = self.constant_or_null(kinds[which])
                return f"{names[which]} {self.pick(RELATIONS)} {value}"
            case "turned":
                return f"{self.constant_or_null(kinds[0])} {self.pick(RELATIONS)} {names[0]}"
            case "in":
                values = ", ".join(self.constant_or_null(kinds[0]) for _ in self.times(3))
                return f"{names[0]} in ({values})"
            case "pairs":
                return f"{pair} in ({', '.join(self._pair(kinds) for _ in self.times(3))})"
            case "pair":
                return f"{pair} {self.pick(RELATIONS)} {self._pair(kinds)}"
            case "range":
                bounds = (self.constant_or_null(kinds[0]), self.constant_or_null(kinds[0]))
                return f"{names[0]} between {bounds[0]} and {bounds[1]}"
            case "then":
                return f"{names[0]} = {self.pick((0, 1, 2))} and {self._rest(names[1], kinds[1])}"
        return f"{names[0]} between (null and 0, 1 and 2, 5 and 9)"

    def _rest(self, name: str, kind: Type) -> str:
        if kind is STRING and self.pick((False, True)):
            return f"is_prefix({self.constant(STRING)}, {name})"
        operator = self.pick(RELATIONS)
        return f"{name} {operator} {self.pick(('1', '2')) if kind is INT else self.constant(kind)}"

    def _pair(self, kinds: Sequence[Type]) -> str:
        return f"({', '.join(self.constant_or_null(kind) for kind in kinds)})"

    def tail(self, names: Sequence[str]) -> str:
        """Write ORDER BY, OFFSET and LIMIT, or some of them."""
        if self.pick((False, True)):
            return ""
        order = ""
        if self.pick((False, True)):
            items = (f"{self.pick(names)}{self.pick(('', ' desc'))}" for _ in self.times(2))
            order = f" order by {', '.join(items)}"
        return f"{order}{self.pick(('', ' offset 1', ' offset 3'))} limit {self.pick((1, 3, 20))}"


PATTERNS = ("'a%'", "'_'", "'%b%'", "'%'", "'a_%'")


@st.composite
def queries(draw: st.DrawFn) -> str:
    path = draw(st.sampled_from(("//main", "//unsigned", "//log", "//side")))
    kinds, _ = SCHEMAS[path]
    if path == "//side":
        return _joined(Writer(draw, SCHEMAS["//main"][0], "t."))
    writer = Writer(draw, kinds)
    conditions = []
    if writer.pick((False, True)):
        conditions.append(writer.key_condition())
    if writer.pick((False, True)):
        conditions.append(writer.condition())
    source = f"[{path}]{' where ' if conditions else ''}{' and '.join(conditions)}"
    return writer.pick((_plain, _everything, _grouped))(writer, source)


def _everything(writer: Writer, source: str) -> str:
    return f"* from {source}{writer.tail([quoted(name) for name in writer.kinds])}"


def _plain(writer: Writer, source: str) -> str:
    chosen = [writer.condition(), *(writer.of_any_kind(2)[1] for _ in writer.times(2))]
    names = [f"c{number}" for number in range(len(chosen))]
    select = ", ".join(f"{text} as {name}" for text, name in zip(chosen, names, strict=True))
    return f"{select} from {source}{writer.tail([*names, *writer.columns[INT]])}"


def _grouped(writer: Writer, source: str) -> str:
    keys = [writer.of_any_kind(1)[1] for _ in writer.times(2)]
    aggregates = [_aggregate(writer) for _ in writer.times(3)]
    select = [f"{text} as a{number}" for number, (_, text) in enumerate(aggregates)]
    select += [f"if_null(g{number}, null) as o{number}" for number in range(len(keys))]
    grouping = ", ".join(f"{text} as g{number}" for number, text in enumerate(keys))
    if writer.pick((False, True)):
        kind, text = writer.pick(aggregates)
        tail = f" having {text} {writer.pick(RELATIONS)} {writer.constant(kind)}"
    else:
        tail = writer.tail(["g0", *(f"a{number}" for number in range(len(aggregates)))])
    return f"{', '.join(select)} from {source} group by {grouping}{tail}"


def _aggregate(writer: Writer) -> tuple[Type, str]:
    name = writer.pick(sorted(AGGREGATES))
    kind = writer.pick(AGGREGATES[name])
    text = writer.expression(kind, 1)
    if name.startswith("arg"):
        text = f"{text}, {writer.of_any_kind(1)[1]}"
    return RESULTS.get(name, kind), f"{name}({text})"


def _joined(writer: Writer) -> str:
    own = writer.pick(("t.k", "t.i", "t.k + 1"))
    second = writer.pick(("", ", 1", ", t.i"))
    predicate = writer.pick(("", " and j.m > 0", " and j.w != 'a'"))
    where = writer.pick(("", " where j.w > 'a'", " where j.m is null", None))
    if where is None:
        where = f" where {writer.condition()}"
    return (
        f"t.k as c0, j.k as c1, j.w as c2, {writer.of_any_kind(1)[1]} as c3 from [//main] as t "
        f"{writer.pick(('join', 'left join'))} [//side] as j "
        f"on ({own}{second}) = (j.k{', j.m' if second else ''}){predicate}"
        f"{where}{writer.tail(['c0', 'c2', 'c3'])}"
    )
