"""Small damages to a module: one changed comparison, constant or condition, one removed statement."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}


@dataclass(frozen=True)
class Mutant:
    """One damage.

    Attributes:
        place: function or class it is in, dotted; empty for the module.
        was: the source that is replaced, on one line.
    """

    place: str
    line: int
    was: str
    becomes: str
    source: str


def mutants_of(source: str) -> list[Mutant]:
    """Return every damage to a module, in the order of its lines."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = b"".join(lines)
    found = []
    for place, node, becomes in _changes(ast.parse(source), ""):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        was = " ".join(whole[start:end].decode().split())
        damaged = (whole[:start] + becomes.encode() + whole[end:]).decode()
        found.append(Mutant(place, node.lineno, was, " ".join(becomes.split()), damaged))
    return sorted(found, key=lambda mutant: mutant.line)


def _changes(node: ast.AST, place: str) -> Iterator[tuple[str, Any, str]]:
    """Walk through a tree: where, which node, and the source that takes its place."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        place = f"{place}.{node.name}".lstrip(".")
        parts: list[ast.AST] = [*_defaults(node), *node.body]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.value] if node.value else []
    elif isinstance(node, ast.JoinedStr) or _is_for_types(node):
        return  # nodes inside such strings have no places of their own before Python 3.12
    else:
        parts = list(ast.iter_child_nodes(node))
    for becomes in _damages(node):
        yield place, node, becomes
    for part in parts:
        yield from _changes(part, place)
    test = getattr(node, "test", None)
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not _is_for_types(node):
        yield place, test, f"not ({ast.unparse(test)})"
    for condition in getattr(node, "ifs", ()):
        yield place, condition, f"not ({ast.unparse(condition)})"


def _defaults(node: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.AST]:
    # A function of nothing but a docstring belongs to a protocol: nobody calls it.
    if isinstance(node, ast.FunctionDef) and len(node.body) > bool(ast.get_docstring(node)):
        yield from node.args.defaults
        yield from (default for default in node.args.kw_defaults if default)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _damages(node: ast.AST) -> Iterator[str]:  # noqa: C901, PLR0912 - a case per kind
    """Return what can take the place of one node."""
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                changed = copy.copy(node)
                changed.ops = list(node.ops)
                changed.ops[number] = _COMPARISONS[type(operator)]()
                yield ast.unparse(changed)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.UnaryOp(ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.BinOp(left, operator, right) if type(operator) in _ARITHMETIC:
            yield f"({ast.unparse(ast.BinOp(left, _ARITHMETIC[type(operator)](), right))})"
        case ast.Constant(bool() as value):
            yield repr(not value)
        case ast.Constant(int() as value):
            yield repr(value + 1)
        case ast.ExceptHandler(type=ast.Tuple(elts=caught)):
            for left_out in caught:
                kept = ", ".join(ast.unparse(one) for one in caught if one is not left_out)
                body = ast.unparse(ast.Try(node.body, [], [], []))
                _, _, indented = body.partition("\n")
                name = f" as {node.name}" if node.name else ""
                yield f"except ({kept},){name}:\n" + _shifted(indented, node.col_offset)
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
            yield "pass"
        case ast.Expr(ast.Call() | ast.YieldFrom()):
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case _:
            return


def _shifted(body: str, columns: int) -> str:
    return "\n".join(" " * columns + line for line in body.splitlines())
