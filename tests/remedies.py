"""Every piece of advice in the product's code and pages, and the parts of it that a machine can check."""

import ast
import re
import shlex
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pyspark
from yt.cli import yt_binary

from yt_exactly_once.cli.program import program

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "yt_exactly_once"

COMMAND = re.compile(
    r"(?<![\w/`-])(?:yt-exactly-once|yt) [a-z].*?(?=\. |\.$|\n|, and |; | && |$)", re.MULTILINE
)
"""A command within a text, as a person would copy it."""

LOOKS = "it changes nothing"
DECIDES = "a person must know more than the tools do"
ADMINISTRATOR = "an administrator runs it"
SPARK = "it needs Spark: tests/integration"
REASONS = {LOOKS, DECIDES, ADMINISTRATOR, SPARK}
ROWS = {
    "it is {info.tablet_state}. Run: yt mount-table": "ledger and queue unmounted",
    "yt unfreeze-table {path} --sync": "all frozen",
    "yt mount-table {path} --sync": "nothing mounted",
    "yt reshard-table {path} {starts}": "fewer tablets for tombstones",
    "yt reshard-table": "more tablets",
    "yt-exactly-once add-column": "target lacks a column",
    "yt get {quote(path)}/@tablet_cell_bundle": LOOKS,
    "yt alter-table": "target static",
    "/@atomicity full": "target without atomicity",
    "rewind {consumer} {queue} --to earliest": "consumer beyond the end",
    "yt_exactly_once.create_table": "target never created",
    "run: yt-exactly-once create-table {path} --like": DECIDES,
    "create-consumer {consumer} {queue}": "consumer never created",
    "pass it as consumer_path of the source": "consumer is a table",
    "/@treat_as_queue_consumer": "consumer no longer marked as one",
    "yt register-queue-consumer": "consumer never registered",
    "repair {ledger} --query {query} --apply": "consumer removed",
    "repair {ledger} --query {query} --checkpoint": "consumer moved ahead",
    "repair {ledger} --query {query} --new-checkpoint": "checkpoint of yesterday",
    "repair TARGET --new-checkpoint": "queue recreated",
    "yt remove {quote(letters)}/@{MARK}": DECIDES,
    "yt remove {quote(letters)}/@{name}": DECIDES,
    "Remove it if no change is late: yt remove": "tombstones of another shape",
    "In both cases run: yt remove": "tombstones gone",
    "have the new ones, run: yt remove": DECIDES,
    "run: yt remove {target}/@{TOMBSTONES_MARK}": DECIDES,
    "yt set {shown}/@min_data_versions 0": "tombstones never end",
    "yt set '{path}/@acl/end'": ADMINISTRATOR,
    "local --data-dir": LOOKS,
    "local --list-features": LOOKS,
    "--dry-run. {others}": LOOKS,
    "prune {entries[0].ledger} --query ID": DECIDES,
    "prune {ledger} --query {query} --yes": "consumer of two queries",
    "yt-exactly-once create-ledger": ADMINISTRATOR,
    "yt get {node}/@health": LOOKS,
    "yt get {node}/@tablet_cell_ids": ADMINISTRATOR,
    "/@resource_limits/": ADMINISTRATOR,
    "yt set {path}/@max_data_ttl {milliseconds}": "claims expire too early",
    "/@max_data_ttl": "rows expire",
    "/@{attribute}": "consumer expires",
    "run: yt-exactly-once repair TARGET": LOOKS,
    "yt-exactly-once dead-letters list": LOOKS,
    "yt-exactly-once audit {target} --by count": LOOKS,
    "yt-exactly-once audit {quote(target)}": LOOKS,
    "Look at it: yt-exactly-once status": LOOKS,
    "yt-exactly-once ledger list": LOOKS,
    "/@auto_trim_config": "queue recreated, and trimmed by itself",
    "yt remove -rf {stage.directory}": ADMINISTRATOR,
    "yt get PATH/@tablet_cell_bundle, and": LOOKS,
    "ask yt-exactly-once doctor": LOOKS,
    "checkpoints --root PATH": SPARK,
    "yt get PATH/@account": "quota reached",
    "which this prints: yt get PATH/@tablet_cell_bundle": "bundle without cells",
    "yt copy": LOOKS,
    "yt merge": LOOKS,
}
"""Where each text is followed as it is printed, or why it is not, by words of the text."""

_NAME = re.compile(r"(?<![\w-])([a-z][a-z_]*)=|(?<![/@.\w'])\b([a-z]+(?:_[a-z]+)+)\b")
_NOT_OURS = {
    "auto_trim_config", "max_rows_per_transaction", "mount_config", "named_struct", "round_robin",
    "st_asbinary", "yt_exactly_once",
}  # fmt: skip
_FLAG = re.compile(r"(?<!\w)--[a-z][a-z-]*")
_SECTION = re.compile(r"([\w/-]+\.md), section '([^']+)'")
_PAGE = re.compile(r"[\w/-]+\.md")
_SETTING = re.compile(r"\bspark(?!\.read)(?:\.\w+)+")
_OF_SETTINGS = re.compile(
    r"org/apache/spark/(internal/config/|sql/internal/(?:(?:Static)?SQLConf|SqlApiConfHelper))"
)
_EXTRA = re.compile(r"extra '(\w+)'")
_DOES = re.compile(
    r"\b(?:add|ask|audit|begin|call|cast|change|check|choose|compare|compute|copy|correct|count|create|decide|"
    r"empty|filter|finish|free|give|install|leave|let|load|look|lower|make|mount|name|open|pass|pip|put|read|"
    r"register|remove|rename|repair|restore|run|save|set|settle|shorten|start|stop|synchronise|use|wait|"
    r"write|yt|yt-exactly-once)\b|\{",
    re.IGNORECASE,
)
_HOLE = re.compile(r"\{[^{}]*\}")
_NUMBER = re.compile(r"count|partition|start|lower|tablets|rows")
_FINDINGS = dict.fromkeys(("note", "warning", "problem", "unknown"), 2)
"""Where findings of the doctor have the repair among their arguments."""


@dataclass(frozen=True)
class Advice:
    """A text that says what to do.

    Attributes:
        text: with the source of each expression in braces.
    """

    place: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands in it, with an example for each expression."""
        holes = _HOLE.sub(lambda hole: "1" if _NUMBER.search(hole[0]) else "//home/x", self.text)
        return COMMAND.findall(holes)

    @property
    def row(self) -> str:
        """The key of its row in the table, or nothing."""
        return next((key for key in ROWS if key in self.text), "")

    def matches(self, said: str) -> bool:
        """Check whether this is, or is a part of, what somebody was told."""
        parts = [re.escape(part) for part in re.split(rf"{_HOLE.pattern}|PATH", self.text)]
        return re.search(".*?".join(parts), said, re.DOTALL) is not None


@cache
def of_the_product() -> list[Advice]:
    """Return every remedy, repair of a finding, and other text with a command."""
    found = []
    for path in sorted(PRODUCT.rglob("*.py")):
        if PRODUCT / "local" in path.parents:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        advises = {id(part) for node in _advising(tree) for part in _texts(node)}
        inner = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Expr, ast.JoinedStr))
            for part in ast.iter_child_nodes(node)
        }
        for node in _texts(tree):
            text = _text(node)
            is_advice = id(node) in advises or path.name == "advice.py" or COMMAND.search(text)
            if is_advice and id(node) not in inner and " " in text.strip():
                found.append(Advice(f"{path.relative_to(ROOT)}:{node.lineno}", text))
    return found


def _advising(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the expressions whose value is a remedy or a repair, through the names of the module."""
    named: dict[str, ast.AST] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                named[node.name] = node
            case ast.Assign(targets=[ast.Name(name)]) if not isinstance(node.value, ast.Call):
                named[name] = node.value
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        values = [each.value for each in node.keywords if each.arg in {"remedy", "repair"}]
        name = getattr(node.func, "id", "")
        values += node.args[_FINDINGS[name] :] if name in _FINDINGS else []
        for value in values:
            yield value
            for part in ast.walk(value):
                if isinstance(part, ast.Name) and part.id in named:
                    yield named[part.id]


def _texts(node: ast.AST) -> Iterator[Any]:
    """Yield the texts of an expression or of what a function returns; of an f-string only the whole."""
    has_docstring = isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None
    for each in node.body[has_docstring:] if isinstance(node, ast.FunctionDef) else [node]:
        if isinstance(each, ast.JoinedStr) or (
            isinstance(each, ast.Constant) and isinstance(each.value, str)
        ):
            yield each
        else:
            for child in ast.iter_child_nodes(each):
                yield from _texts(child)


def _text(node: Any) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in node.values
    )


def unfollowed(case: str, followed: list[str]) -> list[str]:
    """Return the texts that a case has to follow, as the table says, and did not."""
    return [
        advice.text
        for advice in of_the_product()
        if ROWS.get(advice.row) == case and not any(advice.matches(said) for said in followed)
    ]


@cache
def names() -> set[str]:
    """Return the names of every parameter, field and option of the product."""
    nodes = [
        node
        for path in PRODUCT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]
    fields = {getattr(node.target, "id", "") for node in nodes if isinstance(node, ast.AnnAssign)}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    return {node.arg for node in nodes if isinstance(node, ast.arg)} | fields | defined


@cache
def flags() -> set[str]:
    """Return the flags of every command."""

    def of(command: click.Command) -> Iterator[str]:
        for parameter in command.params:
            yield from parameter.opts
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from of(command.get_command(context, name) or program)

    return {*of(program), "--accept-"}


@cache
def settings_of_spark() -> bytes:
    """Return the classes in which Spark names its settings."""
    jars = Path(pyspark.__file__).parent.glob("jars/spark-*_2.13-*.jar")
    archives = [zipfile.ZipFile(jar) for jar in jars]
    return b"".join(
        archive.read(name)
        for archive in archives
        for name in archive.namelist()
        if _OF_SETTINGS.match(name)
    )


def unknown(advice: Advice) -> list[str]:
    """Return what a text names, and is not there."""
    text = COMMAND.sub("", _HOLE.sub("", advice.text))
    named = [name for pair in _NAME.findall(text) for name in pair if name]
    return [
        *(name for name in named if name not in names() | _NOT_OURS),
        *(flag for flag in _FLAG.findall(text) if flag not in flags()),
        *(
            f"{page}: {section}"
            for page, section in _SECTION.findall(text)
            if not _has(page, section)
        ),
        *(page for page in _PAGE.findall(text) if not (ROOT / "docs" / page).exists()),
        *(name for name in _SETTING.findall(text) if name.encode() not in settings_of_spark()),
        *(extra for extra in _EXTRA.findall(text) if extra not in _extras()),
        *(["nothing to do"] if not _DOES.search(advice.text) else []),
    ]


def _has(page: str, section: str) -> bool:
    path = ROOT / "docs" / page
    return path.exists() and f"# {section}\n" in path.read_text(encoding="utf-8")


@cache
def _extras() -> set[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return set(settings["project"]["optional-dependencies"])


def fault_of(command: str) -> str:
    """Return why a command cannot be typed as it is; empty if it can."""
    name, *arguments = shlex.split(command)
    said = StringIO()
    with redirect_stderr(said), redirect_stdout(said), suppress(click.exceptions.Exit):
        try:
            if name == "yt":
                yt_binary._prepare_parser().parse_args(arguments)
            else:
                _parse(arguments)
        except click.ClickException as error:
            return f"{command}: {error.format_message()}"
        except SystemExit:
            return f"{command}: {said.getvalue()}"
    return ""


def _parse(arguments: list[str]) -> None:
    command: Any = program
    context = program.make_context("yt-exactly-once", arguments)
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        context = command.make_context(name, rest, parent=context)
