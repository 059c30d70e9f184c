"""Writes the reference pages that follow from the code; run it after changing what they show.

Usage: `python docs/generate.py` writes the pages, `python docs/generate.py --check` only compares and
exits with 1 when one is out of date.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
from command_line import command_line
from option_tables import configuration
from pyspark.sql import types as spark
from status_picture import status_picture
from tuning_page import tuning_page
from versions_page import versions_page

from tests.crash.crash_points import CrashPoint
from yt_exactly_once import errors
from yt_exactly_once.codec.arrow_types import arrow_type_of, logical_type_of, match_types
from yt_exactly_once.codec.matches import Fit
from yt_exactly_once.codec.scalars import SCALARS, decimal
from yt_exactly_once.codec.schema import RESERVED_PREFIX
from yt_exactly_once.codec.types import (
    DictType,
    ListType,
    LogicalType,
    Member,
    OptionalType,
    StructType,
    VariantType,
    numbered,
    scalar_of,
)
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.delivery.route import ONE_TRANSACTION, SEVERAL_TRANSACTIONS, Rule
from yt_exactly_once.local import commands as _commands  # noqa: F401 - fills the registry
from yt_exactly_once.local import support
from yt_exactly_once.local.commands.registry import REGISTRY
from yt_exactly_once.local.cypress import mount_options
from yt_exactly_once.local.features import FEATURES
from yt_exactly_once.local.rpc.methods import METHODS
from yt_exactly_once.operations.verify.facts import FACTS
from yt_exactly_once.spark.schema import arrow_of_spark, as_written, spark_schema_of
from yt_exactly_once.telemetry.metrics import LABELS, Metric
from yt_exactly_once.ytsaurus.failures import FAILURES, Failure
from yt_exactly_once.ytsaurus.proofs import PROOFS

DOCS = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code, not this page. -->\n\n"


def pages() -> dict[Path, str]:
    """Return every generated page."""
    return {
        DOCS / "reference/command-line.md": NOTE + command_line(),
        DOCS / "reference/local-commands.md": NOTE + local_commands(),
        DOCS / "reference/local-features.md": NOTE + local_features(),
        DOCS / "reference/errors.md": NOTE + error_tree(),
        DOCS / "reference/configuration.md": NOTE + configuration(),
        DOCS / "reference/retries.md": NOTE + retries(),
        DOCS / "reference/metrics.md": NOTE + metrics(),
        DOCS / "reference/tuning.md": NOTE + tuning_page(),
        DOCS / "reference/types.md": NOTE + types(),
        DOCS / "reference/versions.md": NOTE + versions_page(),
        DOCS / "reference/cluster-facts.md": NOTE + cluster_facts(),
        DOCS / "explanation/failure-table.md": NOTE + failure_table(),
        DOCS / "reference/routes.md": NOTE + routes(),
        DOCS / "_static/status.svg": status_picture(),
    }


def cluster_facts() -> str:
    """One table per area of what `verify-cluster` checks."""
    lines = [
        "# What verify-cluster checks",
        "",
        (
            "`yt-exactly-once verify-cluster` checks these facts on a live cluster, through the same "
            "connections and transactions that a query uses. The names also appear in its report."
        ),
    ]
    for area in dict.fromkeys(fact.area for fact in FACTS):
        lines += [
            "",
            f"## {area}",
            "",
            "| fact | depends on it | if it is different | decided in |",
        ]
        lines.append("|---|---|---|---|")
        lines += [
            f"| `{fact.name}`: {fact.checked} | {', '.join(fact.features)} | {fact.meaning} "
            f"| {fact.source} |"
            for fact in FACTS
            if fact.area == area
        ]
    return "\n".join([*lines, ""])


def _without_effect() -> list[str]:
    """List what a request may carry and what then happens: nothing, or an error."""
    refused = [
        (f"`{name}` of `{command}`", reason)
        for command, names in support.REFUSED_PARAMETERS.items()
        for name, reason in names.items()
    ]
    refused += [
        (f"`{name}` of the format `{form}`", reason)
        for form, names in support.REFUSED_FORMATS.items()
        for name, (_, reason) in names.items()
    ]
    refused += [
        (f"attribute `{name}` of a path", why) for name, why in support.REFUSED_PATHS.items()
    ]
    refused += [(f"attribute `@{name}`", why) for name, why in support.REFUSED_ATTRIBUTES.items()]
    listed = tomllib.loads((DOCS / "without_effect.toml").read_text())
    inert = [(f"`{name}`", why) for name, why in listed["parameters"].items()]
    inert += [(f"`{name}` of a format", why) for name, why in listed["formats"].items()]
    inert += [(f"`@{name}`", why) for name, why in sorted(listed["attributes"].items())]
    return [
        "## Refused",
        "",
        "A server knows these. Here a request that uses them fails, and the error says why.",
        "",
        "| what | reason, or what to use |",
        "|---|---|",
        *(f"| {name} | {reason} |" for name, reason in refused),
        "",
        "## Accepted without effect",
        "",
        (
            "A request may carry these, and attributes are shown as they were set. Nothing else changes. "
            f"The options of `@mount_config` are among them, except {_acting()}."
        ),
        "",
        "| parameter or attribute | reason |",
        "|---|---|",
        *(f"| {name} | {reason} |" for name, reason in inert),
        "",
    ]


def _acting() -> str:
    return ", ".join(f"`{name}`" for name in sorted(mount_options.ACTING))


def local_commands() -> str:
    """One row per command of the embedded cluster."""
    rows = [
        f"| `{command.name}` | {command.input_type} | {command.output_type} "
        f"| {'partial' if command.note else 'full'} "
        f"| {command.note} |"
        for command in sorted(REGISTRY.values(), key=lambda command: command.name)
    ]
    return "\n".join(
        [
            "# Commands of the embedded cluster",
            "",
            "A command that is not listed answers with an error that says so. Answers are never compressed.",
            "",
            "## Over HTTP",
            "",
            "| command | input | output | support | what is missing |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *_without_effect(),
            "## Over RPC",
            "",
            (
                "Every method runs the handlers of the commands beside it, with the same limits. Fault rules "
                "name commands, over RPC too. All other methods and services answer with an error of code 1."
            ),
            "",
            "| method | commands | what else is missing |",
            "|---|---|---|",
            *(
                f"| `{each.name}` | {', '.join(f'`{name}`' for name in each.commands)} | {each.partial} |"
                for each in sorted(METHODS.values(), key=lambda each: each.name)
            ),
            "",
        ]
    )


def local_features() -> str:
    """One row per feature of the embedded cluster."""
    rows = [
        f"| `{feature.name}` | `{json.dumps(feature.default)}` | {feature.meaning} |"
        for feature in FEATURES.values()
    ]
    return "\n".join(
        [
            "# Features of the embedded cluster",
            "",
            "Versions of YTsaurus differ, and a busy cluster is slower than a local one. Choose what the",
            "embedded cluster does: `LocalCluster(features={...})`, or `--feature NAME=VALUE` on the command",
            "line. `yt-exactly-once local --list-features` prints this list.",
            "",
            "| feature | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def error_tree() -> str:
    """Every error with its place in the tree and its meaning."""
    lines = [
        "# Errors",
        "",
        (
            "Every error derives from `ExactlyOnceError`. The text says what happened, where, and what to "
            "do. The sink retries a `TransientError` and its subclasses. Every other error stops the query. "
            "When you start the query again, Spark replays the batch."
        ),
        "",
    ]

    def add(kind: type[BaseException], depth: int) -> None:
        doc = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
        lines.append(f"{'  ' * depth}- `{kind.__name__}`: {doc}")
        for child in kind.__subclasses__():
            if child.__module__ == errors.__name__:
                add(child, depth + 1)

    add(errors.ExactlyOnceError, 0)
    return "\n".join([*lines, ""])


def routes() -> str:
    """Who sends the rows of a batch."""

    def table(rules: tuple[Rule, ...]) -> list[str]:
        rows = [f"| {rule.batch} | {rule.way.value} | {rule.why} |" for rule in rules]
        return ["| the batch | its rows are sent by | because |", "|---|---|---|", *rows, ""]

    choice = (
        "Before the rows of a batch are computed, the sink chooses their route: who sends them, and in which "
        "transaction. The first line that fits the batch counts. [Who sends the rows]"
        "(../explanation/exactly-once.md#who-sends-the-rows) explains why. The field `sent_by` of the event "
        "`batch.committed` and the column `sent_by` of the ledger name the sender."
    )
    failure = (
        "A route can fail before anything of the batch is visible. Then the batch takes the other one, if it "
        "may. Rows that do not fit the driver go by tasks. Rows that tasks could not send go by the driver. "
        "The event `retry.scheduled` says so."
    )
    one = ["## Mode `transactional`", "", *table(ONE_TRANSACTION)]
    several = ["## Modes `at-least-once` and `idempotent`", "", *table(SEVERAL_TRANSACTIONS)]
    return "\n".join(["# Routes", "", choice, "", failure, "", *one, *several])


def retries() -> str:
    """Which failure leads to what."""
    return "\n".join(
        [
            "# Failures and retries",
            "",
            (
                "What is retried is a whole attempt (begin, check, write, advance, record, commit), a read, "
                "or the request of a task. A single command of a transaction is never retried. If the "
                "[outcome of a commit is unknown](#what-an-error-proves), the sink reads the ledger first. "
                "The commit was applied only if the entry names its transaction."
            ),
            "",
            (
                "The table decides how soon a batch is written. It does not decide whether it is written "
                "once: every attempt checks the ledger first, and all attempts write the same ledger row."
            ),
            "",
            (
                "The first row that fits an error decides. Errors of a commit are nested, so all levels of "
                "an error are searched for a code."
            ),
            "",
            "| what has happened | codes | the sink | error |",
            "|---|---|---|---|",
            *(
                f"| {failure.meaning} | {_codes(failure)} | {_decision(failure)} "
                f"| `{failure.error.__name__}` |"
                for failure in FAILURES
            ),
            "",
            "Two decisions depend on the place of an error and not on its code:",
            "",
            (
                "- A consumer that is not registered stops the query at the check, once per run. In a pull "
                "of the source this check has passed. There it leads to a new attempt, because a proxy "
                "learns of a registration late."
            ),
            (
                "- An error that stops a task fails the task. Spark runs the task again, up to "
                "`spark.task.maxFailures` times. Then it ends the query."
            ),
            "",
            (
                "The sink waits a random time before each new attempt. The limit of the first wait is "
                "`first_wait`. It doubles with each attempt, up to `max_wait`. If a wait would end "
                "after `deadline`, there is no new attempt. Every wait is an event `retry.scheduled`. Events "
                "of tasks are logged on the executors and do not reach the listener."
            ),
            "",
            (
                "After the last attempt the sink raises `RetriesExhaustedError`. Its message lists each "
                "attempt's error, time and back-off. Spark then ends the query. After a restart it replays "
                "the batch."
            ),
            "",
            "The limits are in [`RetryPolicy`](configuration.md#retrypolicy).",
            "",
            *_of_writes(),
        ]
    )


def _of_writes() -> list[str]:
    """Return what an error of a command that writes proves."""
    names = {code: name for failure in FAILURES for code, name in failure.codes.items()}
    return [
        "## What an error proves",
        "",
        (
            "A request that was answered with an error may have been carried out. A proxy that cannot renew "
            "the lease of a transaction, for example, reports a commit as failed although the tablet cells "
            "applied it."
        ),
        "",
        "| command | what its error proves | what the package does |",
        "|---|---|---|",
        (
            "| `commit_transaction` | nothing, unless all codes are in the next table | it reads the ledger. "
            "If the commit was applied, the batch is done. Otherwise it does what the table above says |"
        ),
        (
            "| `insert_rows`, `delete_rows` in a transaction | nothing | it aborts the transaction, and "
            "never repeats the request in it |"
        ),
        (
            "| `insert_rows` of a task, in a transaction of its own | nothing | it may repeat the rows: "
            "at-least-once mode allows that, and a key of a sorted table is there once |"
        ),
        (
            "| `push_queue_producer`, `create_queue_producer_session` | nothing | the next attempt creates "
            "the session again and reads from it which rows were written |"
        ),
        (
            "| `advance_queue_consumer` | code 3100: the consumer is at the offset that the error names | it "
            "counts as moved if that is the wanted offset. The next move reads the offset first |"
        ),
        "| `start_transaction`, `abort_transaction`, `ping_transaction` | nothing | the lease ends it |",
        "",
        (
            "These codes prove that a commit was not applied. The server raises them while it prepares the "
            "rows, before it commits anything. Paths are below `yt/yt` in the sources of YTsaurus."
        ),
        "",
        "| code | raised in |",
        "|---|---|",
        *(f"| `{code} {names[code]}` | `{place}` |" for code, place in sorted(PROOFS.items())),
        "",
    ]


def metrics() -> str:
    """Every metric, with its names, unit and labels."""
    return "\n".join(
        [
            "# Metrics",
            "",
            (
                "[Watch it](../how-to/monitor.md) shows how to switch them on. Names and units follow the "
                "semantic conventions of OpenTelemetry. Prometheus shows a dot as `_`."
            ),
            "",
            "| metric | in Prometheus | kind | unit | meaning | attributes |",
            "|---|---|---|---|---|---|",
            *(
                f"| `{one.value.name}` | {', '.join(f'`{name}`' for name in one.series)} "
                f"| {one.value.kind} | `{one.value.unit}` | {one.value.meaning} "
                f"| {', '.join(f'`{label}`' for label in one.value.labels)} |"
                for one in Metric
            ),
            "",
            "## Attributes",
            "",
            (
                "No attribute holds a batch number, a queue partition or a text. So a process has a few "
                "dozen time series for each query."
            ),
            "",
            "| attribute | label in Prometheus | meaning |",
            "|---|---|---|",
            *(
                f"| `{name}` | `{name.replace('.', '_')}` | {meaning} |"
                for name, meaning in LABELS.items()
            ),
            "",
        ]
    )


def _decision(failure: Failure) -> str:
    return "a new attempt" if issubclass(failure.error, errors.TransientError) else "stop"


def _codes(failure: Failure) -> str:
    return ", ".join(f"`{code} {name}`" for code, name in sorted(failure.codes.items()))


_SPARK_TYPES: tuple[spark.DataType, ...] = (
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.DecimalType(20, 0),
    spark.StringType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.DayTimeIntervalType(),
    spark.NullType(),
)
_ITEM = spark.LongType()
_FURTHER_TYPES: tuple[spark.DataType, ...] = (
    spark.DecimalType(12, 3),
    spark.CharType(3),
    spark.VarcharType(3),
    spark.TimestampNTZType(),
    spark.VariantType(),
    spark.ArrayType(_ITEM),
    spark.MapType(spark.StringType(), _ITEM, valueContainsNull=False),
    spark.StructType([spark.StructField("a", _ITEM)]),
    spark.TimeType(),
    spark.YearMonthIntervalType(),
    spark.CalendarIntervalType(),
    spark.GeometryType(4326),
    spark.GeographyType(4326),
    spark.ArrayType(spark.NullType(), containsNull=False),
    spark.ArrayType(spark.VariantType()),
)
_BY_SINK = (spark.TimestampNTZType, spark.VariantType)
"""What `TransactionalSink` converts, and the format refuses."""
_SIMPLE: tuple[LogicalType, ...] = (*SCALARS.values(), decimal(20, 0))
_PARTS = (Member("a", SCALARS["int64"]), Member("b", OptionalType(SCALARS["utf8"])))
_UNNAMED = numbered(part.type for part in _PARTS)
_COMPOSITE: tuple[LogicalType, ...] = (
    OptionalType(SCALARS["int64"]),
    OptionalType(OptionalType(SCALARS["int64"])),
    ListType(OptionalType(SCALARS["int64"])),
    StructType(_PARTS),
    StructType(_UNNAMED, named=False),
    VariantType(_PARTS, named=True),
    VariantType(_UNNAMED, named=False),
    DictType(SCALARS["utf8"], SCALARS["int64"]),
    decimal(12, 3),
    OptionalType(SCALARS["yson"]),
)


def types() -> str:
    """How every type is read, written and created."""
    return _TYPES.format(
        reserved=RESERVED_PREFIX,
        simple="\n".join(map(_simple_row, _SIMPLE)),
        composite="\n".join(f"| `{one}` | `{_read_as(one)}` |" for one in _COMPOSITE),
        created="\n".join(
            f"| `{one.simpleString()}` | {_created_as(one)} |"
            for one in (*_SPARK_TYPES, *_FURTHER_TYPES)
        ),
    )


_TYPES = """\
# Types

The sink compares a DataFrame with its table before the first row. Every pair of types is one of these:

- **exact**: the same values.
- **widening**: every value fits in the wider type.
- **checked**: the sink checks each value while it encodes it. If a value does not fit, an `EncodingError`
  names its column and row, but never the value.
- **refused**: a `SchemaMismatchError` says what to do.

Nothing is ever rounded, cut or wrapped. NaN and the infinities are accepted in `float` and `double`, not in
a key. In a key 0.0 and -0.0 are one value, for the cluster and for the sink.

Both wire formats carry the same values, bit for bit. But some proxies store `yson` (`any`) and decimals of
more than 35 digits wrongly from Arrow, without an error. And no proxy accepts `interval64` from Arrow. So a
table with such a column is written as YSON, and `wire_format="arrow"` is refused with `ConfigError`. Inside
a composite type, such as a list or a struct, these types are safe.

In a request of Arrow, a list, struct or dict of plain values is a nested column, and the proxy makes its
YSON. Three versions of the server's `arrow_parser.cpp` were read: all write it as the sink would. It is YSON
already if its type has a tuple, a variant, a decimal, `yson`, `interval64`, or an optional inside an
optional. The same goes for a request with a value that may take more than 1 MiB as YSON. And for a column
with a member that the DataFrame lacks.

A string, a composite value or a `yson` value may have at most 16 MiB. A row must weigh less than 128 MiB. The
sink finds longer ones before it sends anything.

Column names that begin with `{reserved}`, in any case, belong to the sink. It refuses a DataFrame with
such a column (`SchemaMismatchError`), because Spark would silently overwrite the column.

## Simple types

| YTsaurus | range | read as | written: exact | widening | checked | refused: any other |
|---|---|---|---|---|---|---|
{simple}

- `string` holds any bytes. They pass through Spark's strings unchanged, also where they are not UTF-8:
  [what functions make of them](../how-to/write-changes.md#values-that-are-no-text).
- With the option `binary_strings`, `string` is read as `binary`, in all columns or in those that it names.
- `uuid` is written from its 16 bytes, or from its text as YQL and SPYT show it. With the option `uuid_text`
  it is read as text.
- `json` must be valid JSON. Its numbers must fit a double, and its surrogates must come in pairs.
- Dates and timestamps before 1970 need the types with 32 and 64 in their names.
- A decimal of more than 38 digits has no type in Spark and is refused.
- SPYT reads `uuid` as text, as `uuid_text` does, and `interval` as `bigint`. It reads the other types of
  stock Spark as this source does.

## Composite types

Each is read as the type beside it, and written from that type. Their parts follow the table above.

| YTsaurus | Spark |
|---|---|
{composite}

- A variant has one field per alternative. Exactly one of them is not null.
- A label (`tagged`) changes nothing: such a column is read and written as the type inside.
- An optional inside an optional is a struct of one field, so its two nulls differ.
- `yson` (`any`) is read as the bytes of its binary YSON, or with the option `any_json` as JSON. In the second
  case attributes, NaN, the infinities and strings that are no text are an `EncodingError`.
- Numbers, strings, arrays, maps and structs are written into `yson` as plain YSON. Bytes must be one YSON
  value, and become the binary YSON of a read. The sink refuses attributes at its top level, a map that has a
  key twice, and a number outside the range of double.
- Without `parsing_type_v3` a column is read by its older `type`, where composites are `any`.

## Tables made for a DataFrame

This is what each type of Spark becomes in a table that `create_table` makes, and in a column that
`on_new_columns` adds. Other tables may have other types, if the tables above allow it.

| Spark | YTsaurus |
|---|---|
{created}

A nullable column is `optional`. A `UserDefinedType` is written as the type that it is stored as.

## Local times and variants

Spark itself converts these, in the plan of the query. So `TransactionalSink` writes them, and
`create_table`, `add-column` and `doctor --schema` take them. **The format `yt` refuses them**: it gets rows
when Spark has computed them. There convert them in the query, as the error says.

**`timestamp_ntz`**, at any depth, becomes the instant that Spark finds for it in the time zone of the session
(`spark.sql.session.timeZone`). If the clocks repeat a time, that is the first one. If they skip a time, it
becomes later by as much. So two local times may be one instant, or come in another order. Unless the zone is
`UTC` or a fixed offset, such a column is refused in a key and in the sequence of
[changes](../how-to/keep-changes.md).

**`variant`**, as a whole column, becomes its JSON, as `to_json` writes it. Times in it are texts, in the time
zone of the session, and binary values are base64. It fits columns of these types:

- `json`, `utf8` and `string` have the JSON as text. A query reads it back with `parse_json`:
  `spark.read.format("yt").load(path).selectExpr("parse_json(doc) AS doc")`.
- `any` (`yson`) has the value itself, so other clients see its members. Numbers with a point become doubles,
  and null becomes null. Whole numbers outside of `int64` and `uint64` are an `EncodingError`. So are numbers
  with more digits than a double holds. The option `any_json` of the source reads
  it as JSON again, for `parse_json`: `spark.read.format("yt").option("any_json", True).load(path)`.
"""


def _simple_row(logical: LogicalType) -> str:
    fits: dict[Fit, list[str]] = {fit: [] for fit in Fit}
    for one, arrow in zip(_SPARK_TYPES, _arrow(*_SPARK_TYPES), strict=True):
        match = match_types(arrow, logical)
        if not isinstance(one, spark.NullType):
            found = f"`{one.simpleString()}`" if match.fit is not Fit.REFUSED else match.remedy
            fits[match.fit].append(found)
    remedies = dict.fromkeys(remedy.replace("{x}", "x") for remedy in fits.pop(Fit.REFUSED))
    shown = [", ".join(found) or "-" for found in fits.values()]
    cells = (
        f"`{logical}`",
        _range(logical),
        f"`{_read_as(logical)}`",
        *shown,
        "; ".join(map(_with_code, remedies)) or "-",
    )
    return f"| {' | '.join(cells)} |"


def _with_code(remedy: str) -> str:
    """Mark the SQL of a remedy as code."""
    called = r"(?:CAST|transform)\((?:[^()]|\([^()]*\))*\)"
    plain = r"(?<!-> )(?:timestamp_micros|to_json|st_asbinary)\(\w+\)"
    return re.sub(rf"{called}|{plain}", r"`\g<0>`", remedy)


def _range(logical: LogicalType) -> str:
    scalar = scalar_of(logical)
    if scalar is None or scalar.bounds is None:
        return ""
    low, high = scalar.bounds
    if scalar.is_integer:
        bits = high.bit_length()
        return f"0 to 2^{bits} - 1" if low == 0 else f"-2^{bits} to 2^{bits} - 1"
    return f"{low} to {high} { {'D': 'days', 's': 's', 'us': 'µs'}[scalar.unit] }"


def _read_as(logical: LogicalType) -> str:
    return str(
        spark_schema_of(pa.schema([("c", arrow_type_of(logical))]))["c"].dataType.simpleString()
    )


def _arrow(*types: spark.DataType) -> list[pa.DataType]:
    fields = [spark.StructField(f"c{n}", one) for n, one in enumerate(types)]
    return list(arrow_of_spark(spark.StructType(fields)).types)


def _created_as(one: spark.DataType) -> str:
    if isinstance(one, spark.NullType):
        return "refused: only nulls fit. A table that has the column takes them"
    schema = spark.StructType([spark.StructField("x", one, nullable=False)])
    try:
        (field,) = arrow_of_spark(as_written(schema))
    except errors.SchemaMismatchError as error:
        return f"refused: {_with_code(error.remedy[0].lower() + error.remedy[1:])}"
    by_sink = ", by `TransactionalSink`" if isinstance(one, _BY_SINK) else ""
    return f"`{logical_type_of(field)}`{by_sink}"


CRASH_TESTS = "tests/crash/test_crash_points.py"
CRASH_TEST = "test_driver_killed_at_crash_point"


def failure_table() -> str:
    """What every crash of the driver leaves behind, and what the restart does with it."""
    return "\n".join(
        [
            "# What happens at every crash",
            "",
            (
                "The driver dies within batch N. After the restart Spark replays batch N, from the offsets "
                "in its log. Each row says what the cluster holds, and what the sink does with the replay."
            ),
            "",
            (
                f"Every row is a test in `{CRASH_TESTS}` that kills a real driver with SIGKILL at that "
                f"point. The test is `{CRASH_TEST}[...]`. Its parameter begins as the last column says. If a "
                "point is missing from a table, its modes never pass it. This is tested too. With "
                "`YT_EXACTLY_ONCE_NIGHTLY=1` every point is tried with every kind of query and target."
            ),
            "",
            "## Transactional mode",
            "",
            *crash_rows(DeliveryMode.TRANSACTIONAL),
            "",
            "## The modes whose tasks write: at-least-once and idempotent",
            "",
            "In `idempotent` mode the sink refuses a stateful query before it does anything.",
            "",
            *crash_rows(DeliveryMode.AT_LEAST_ONCE, DeliveryMode.IDEMPOTENT),
            "",
        ]
    )


def crash_rows(*modes: DeliveryMode) -> list[str]:
    """One row per crash point that these modes pass, which all of them pass alike."""
    rows = [
        "| crash point | the driver dies | the cluster holds | the sink | test |",
        "|---|---|---|---|---|",
    ]
    for point in CrashPoint:
        left = point.value.aftermath(modes[0])
        if left is None:
            continue
        tests = ", ".join(f"`{point.name.lower()}-{mode}`" for mode in modes)
        rows.append(
            f"| `{point.name}` | {point.value.moment} | {left.cluster_holds} "
            f"| {left.we_do} | {tests} |"
        )
    return rows


def main() -> int:
    """Write the pages, or compare them."""
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        for path in stale:
            print(f"out of date: {path.relative_to(DOCS)}")  # noqa: T201 - a command line prints
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
