"""The page of options: tables from signatures, and what the docstrings say."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.operations.create_table import create_table
from yt_exactly_once.spark.sink.options import SinkOptions, Target
from yt_exactly_once.spark.sink.transactional_sink import TransactionalSink
from yt_exactly_once.spark.source.options import OPTION_NAMES, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable

_PART = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)
"""Name and meaning in the section of a docstring."""


def configuration() -> str:
    """The options of sink, source and `create_table`, from their docstrings."""
    return "\n".join(
        [
            "# Options",
            "",
            *_section(TransactionalSink, explained_by=SinkOptions),
            *_section(Target),
            "A sink with several targets:",
            "",
            _TARGETS,
            "",
            '## `spark.readStream.format("yt")`',
            "",
            "Given with `option(name, value)`, the path also as `load(path)`; all values may be text.",
            "",
            *_source_options(),
            "",
            *_section(RetryPolicy),
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


def _section(
    called: Callable[..., Any], *more: str, explained_by: Callable[..., Any] | None = None
) -> list[str]:
    """Return what there is to say about one callable: its docstring, with its arguments as a table."""
    text, sections = _parts(called)
    _, explained = _parts(explained_by or called)
    meanings = _meanings(explained.get("Args", "") + explained.get("Attributes", ""))
    rows = ["| name | type, default | meaning |", "|---|---|---|"]
    for name, parameter in inspect.signature(called).parameters.items():
        kind = f"`{parameter.annotation}`".replace("|", "\\|")
        default = parameter.default
        given = "required" if default is inspect.Parameter.empty else _shown(default)
        rows.append(f"| `{name}` | {', '.join(filter(None, (kind, given)))} | {meanings[name]} |")
    lines = [f"## `{called.__name__}`", "", text.strip(), "", *rows, "", *more]
    if "Returns" in sections:
        lines += [f"It returns {_lower(' '.join(sections['Returns'].split()))}", ""]
    if "Raises" in sections:
        lines += ["It raises:", ""]
        lines += [f"- `{name}`: {why}" for name, why in _meanings(sections["Raises"]).items()]
        lines += [""]
    return lines


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
        return f"{default:_}".replace("_", " ")
    if default is None:
        return ""
    if isinstance(default, RetryPolicy):
        return "`RetryPolicy()`"
    return f"`{str(default)!r}`" if isinstance(default, str) else f"`{default}`"


def _source_options() -> list[str]:
    """Return a table of the source's options; their meaning is in the docstring of the class."""
    _, attributes = inspect.getdoc(SourceOptions).split("Attributes:\n")
    meanings = _meanings(attributes)
    defaults = {
        "path": "required",
        "proxy": "`YT_PROXY`",
        "token": "`YT_TOKEN`",
        "backend": "`http`",
        "client_config": "`{}`",
        "starting_offsets": "`committed` with a consumer, else `earliest`",
    }
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for name in OPTION_NAMES:
        default = getattr(SourceOptions, name, None)
        shown = f"`{str(default).lower()}`" if isinstance(default, bool) else ""
        rows.append(f"| `{name}` | {defaults.get(name, shown)} | {meanings[name]} |")
    return rows
