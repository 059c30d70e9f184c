"""The page of options: tables from their declarations, and what the docstrings say of `create_table`."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt_exactly_once.config import Changes, RetryPolicy
from yt_exactly_once.operations.creating import create_table
from yt_exactly_once.options import Group, options_of, read_names
from yt_exactly_once.spark.doors.transactional_sink import TransactionalSink
from yt_exactly_once.spark.doors.writer_options import CHANGES_PREFIX, RETRY_PREFIX
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.ytsaurus.client import ClusterArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from yt_exactly_once.options import Option

_PART = re.compile(r"^    (\w+): (.*?)(?=^    \**\w+: |\Z)", re.MULTILINE | re.DOTALL)
"""Name and meaning in the section of a docstring."""


def configuration() -> str:
    """The options of sink, source and `create_table`."""
    return "\n".join(
        [
            "# Options",
            "",
            "Each table has the options of one kind: where things are, what is done, how, and the limits.",
            "Options that need more than a sentence are explained below their table.",
            "",
            *_called(TransactionalSink, SinkOptions),
            *_called(Target, Target),
            "A sink with several targets:",
            "",
            _TARGETS,
            "",
            *_called(Changes, Changes),
            *_called(RetryPolicy, RetryPolicy),
            '## `spark.readStream.format("yt")`',
            "",
            "Given with `option(name, value)`, the path also as `load(path)`; all values may be text.",
            "",
            *_grouped(SourceOptions),
            '## `writeStream.format("yt")`',
            "",
            "The options of `TransactionalSink` and `Target` by the same names, those of `RetryPolicy`",
            f"with `{RETRY_PREFIX}` in front, and those of `Changes` with `{CHANGES_PREFIX}`. All values are",
            "text:",
            "",
            *_texts(),
            "",
            *_section(
                create_table, "Also as a command: `yt-exactly-once create-table --help`.", ""
            ),
        ]
    )


_TARGETS = """\
```python
import pyspark.sql.functions as sf

from yt_exactly_once import Target, TransactionalSink


def total_by_customer(df):
    return df.groupBy("customer").agg(sf.sum("amount").alias("total"))


sink = TransactionalSink(
    [
        "//home/shop/orders",
        Target("//home/shop/totals", transform=total_by_customer, aggregate=True),
        Target("//home/shop/events", placement=["customer"]),
    ],
    dead_letter_path="//home/shop/orders_rejected",
)
```"""


def _called(called: Callable[..., Any], declared: type) -> list[str]:
    """Return what there is to say about a class with options."""
    text, sections = _parts(called)
    lines = [f"## `{called.__name__}`", "", text.strip(), "", *_grouped(declared)]
    return lines + _raised(sections)


def _grouped(declared: type) -> list[str]:
    """Return a table for each group of options, and what does not fit into a table below it."""
    lines = []
    known = options_of(declared)
    for group in Group:
        names = [name for name, one in known.items() if one.group is group]
        if names:
            lines += [f"**{group}**", "", "| option | default | meaning |", "|---|---|---|"]
            lines += [
                f"| `{name}` | {_default(declared, name)} | {known[name].meaning} |"
                for name in names
            ]
            lines += ["", *(line for name in names for line in _explained(name, known[name]))]
    return lines


def _explained(name: str, known: Option) -> Iterator[str]:
    """Yield a line per value, and what else there is to know."""
    if known.values or known.more:
        yield f"`{name}`: {known.more}".strip()
        yield ""
    if known.values:
        yield from (f"- `{value}`: {does}" for value, does in known.values.items())
        yield ""


def _default(declared: type, name: str) -> str:
    said = options_of(declared)[name].default_text
    if said:
        return said
    (found,) = (each for each in fields(declared) if each.name == name)
    if found.default is not MISSING:
        shown = _shown(found.default) or "none"
        return shown.lower() if declared is SourceOptions else shown
    return "none" if found.default_factory is not MISSING else "required"


_NAMES = "names with commas between them"
_KINDS = {
    "Sequence[str]": _NAMES,
    "bool": "`true` or `false`",
    "int": "a whole number",
    "timedelta": "a number with its unit: `500ms`, `30s`, `5min`, `7d`",
    "Mapping[str, Any]": "a JSON object",
}


def _texts() -> list[str]:
    """Return how the options of the writer are written."""
    forms: dict[str, list[str]] = {}
    never = []
    of_objects = (RetryPolicy, RETRY_PREFIX), (Changes, CHANGES_PREFIX)
    for declared, prefix in ((Target, ""), (SinkOptions, ""), *of_objects):
        for each in fields(declared):
            known = options_of(declared).get(each.name)
            if known is None:
                continue
            kind = str(each.type).removesuffix(" | None")
            if known.only_python:
                never.append(f"- `{each.name}` needs Python: {known.only_python}.")
            elif known.read is read_names:
                forms.setdefault(_NAMES, []).append(f"`{prefix}{each.name}`")
            elif known.read and not known.values:
                forms.setdefault("`7`, or `7-9` for several", []).append(f"`{each.name}`")
            else:
                forms.setdefault(_KINDS.get(kind, "text"), []).append(f"`{prefix}{each.name}`")
    forms.setdefault("text", []).append("`checkpointLocation`")
    rows = [f"| {form} | {', '.join(names)} |" for form, names in forms.items()]
    return ["| write it as | options |", "|---|---|", *rows, "", *never]


def _raised(sections: dict[str, str]) -> list[str]:
    if "Raises" not in sections:
        return []
    found = _meanings(sections["Raises"]).items()
    return ["It raises:", "", *(f"- `{name}`: {why}" for name, why in found), ""]


def _section(called: Callable[..., Any], *more: str) -> list[str]:
    """Return what there is to say about one function: its docstring, with its arguments as a table."""
    text, sections = _parts(called)
    meanings = _meanings(sections["Args"])
    rows = ["| name | default | meaning |", "|---|---|---|"]
    for name, parameter in inspect.signature(called).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            shared = _meanings(_parts(ClusterArguments)[1]["Attributes"])
            rows += [f"| `{each}` | none | {meaning} |" for each, meaning in shared.items()]
            continue
        default = parameter.default
        given = "required" if default is inspect.Parameter.empty else _shown(default) or "none"
        rows.append(f"| `{name}` | {given} | {meanings[name]} |")
    lines = [f"## `{called.__name__}`", "", text.strip(), "", *rows, "", *more]
    lines += [f"It returns {_lower(' '.join(sections['Returns'].split()))}", ""]
    return lines + _raised(sections)


def _parts(called: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring and its sections."""
    text, *parts = re.split(
        r"^(Args|Attributes|Returns|Raises):\n", inspect.getdoc(called) or "", flags=re.MULTILINE
    )
    return text, dict(zip(parts[::2], parts[1::2], strict=True))


def _meanings(section: str) -> dict[str, str]:
    """Return the names that a section of a docstring explains, with their meanings."""
    return {name: " ".join(text.split()) for name, text in _PART.findall(section)}


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _shown(default: object) -> str:
    if isinstance(default, timedelta):
        return f"{default.total_seconds():g} s"
    if isinstance(default, int) and not isinstance(default, bool):
        return f"{default:,}"
    if default is None:
        return ""
    if isinstance(default, RetryPolicy):
        return "`RetryPolicy()`"
    if isinstance(default, tuple):
        return ", ".join(f"`{each!r}`" for each in default)
    return f"`{str(default)!r}`" if isinstance(default, str) else f"`{default}`"
