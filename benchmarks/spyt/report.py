"""The page: what the stored results say, with the rig beside every figure."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spyt.holes import SCENARIOS
from benchmarks.spyt.trials import ALL_CONTENDERS, CONTENDERS, OTHER_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Result = dict[str, Any]

MEASURED = Path(__file__).with_name("measured")
"""The results that the page is about."""

SPEED = "speed.json"
_HOLES = "holes.json"
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "compared-with-spyt.md"

_AT_LEAST_ONCE = next(who.name for who in CONTENDERS if not who.is_ours and not who.transactional)

_OWN_TEST = "crash/test_beside_spyt.py::test_our_side_of_a_scenario_is_exact"

_AHEAD = 0.95
"""Ratio below which one side is ahead; medians that are closer say nothing."""

_THEIRS = [contender.name for contender in ALL_CONTENDERS if not contender.is_ours]
_OURS = [contender.name for contender in ALL_CONTENDERS if contender.is_ours]

_METRICS: dict[str, tuple[str, Callable[[Result], list[float]]]] = {
    "batch": ("time of a batch", lambda turn: turn["batches"]),
    "apart": ("time from batch to batch", lambda turn: [turn["apart"]]),
    "first": ("time of the first batch", lambda turn: [turn["first"]]),
    "start": (
        "from the start of the process to the end of its first batch",
        lambda turn: [turn["start"]],
    ),
    "spark": ("CPU of Spark per batch", lambda turn: [turn["spark"]]),
    "cluster": ("CPU of the cluster per batch", lambda turn: [turn["cluster"]]),
}

_HEAD = """\
<!-- Written by `python -m benchmarks.spyt report`; change the program, not this page. -->

# Compared with SPYT

SPYT is YTsaurus's own library for Spark. This page runs the same work on SPYT's unmodified jars and on
our sink, side by side on one [embedded cluster](limits.md). It shows what each costs, and what becomes of
the rows when something breaks.

```sh
python -m benchmarks.spyt holes    # break both, and count rows
python -m benchmarks.spyt speed    # measure both, in turns
python -m benchmarks.spyt report   # this page
```

SPYT runs with its own `spark-defaults.conf`, and with what its documentation asks for: in transactional
mode `spark.yt.streaming.transactional=true` and `spark.ytsaurus.rpc.job.proxy.enabled=false`. Its
documentation calls the transactional mode **experimental**, and promises exactly-once "for any
transformations" with it. Its default mode promises at-least-once and no more.
"""

_SPEED = """\
## Speed

A copy from a queue of two partitions to an ordered table of two tablets. One driver runs at a time. In
every round each contender has one turn, in changing order. A turn is a new driver on the
same checkpoint. Its first batch counts apart, the second one warms up, the others are measured. The time
of a batch is Spark's `triggerExecution`. After every turn the rows of the target are counted.

{rig}

The load of the machine was {least:.1f} to {most:.1f} (processes that want a core, average of a minute).
Where it is above the number of cores, other work ran beside the measurement: trust CPU more than time,
and ratios more than both.
"""

_ROWS = """\
## What becomes of the rows

*stuck*: the query runs and never reads its remaining rows, whatever comes. *stopped*: by an error, in
every restart; rows that count as lost then may be read yet. *-*: not run. JVMs ran with
`-XX:TieredStopAtLevel=1` on both sides, so that a killed driver is soon back.
"""

_OTHERS = """
### SPYT in other versions

The wheel of 2.11.2 asks for PySpark below 4.3 and has an adapter for 4.2. 2.12.0a1 is the newest on PyPI.
It is an alpha version, and ran on PySpark 3.5.9. Columns are as above, *-* is not run.
"""

_NOT_RUN = """\
## What was not run

- **A real cluster.** Both sides met the embedded one, so CPU of the cluster is that of a Python program.
  For each hole, the source of the real server is named that behaves the same way. No figure here is one
  of YTsaurus's.
- **SPYT on PySpark 3.3, 3.4, 4.0 and 4.1**, and our side on other versions than named. SPYT supports 3.3 to
  4.2, our source 4.0 to 4.3. Where they ran on different ones, a part of every ratio is Spark's.
- **SPYT's cluster mode**: executors in YTsaurus operations, job proxies, checkpoints on `yt:///`.
  Everything ran in one process with `local[2]`.
"""


def load_holes(folder: Path) -> dict[tuple[str, str], Result]:
    """Return the kept verdicts by scenario and contender."""
    path = folder / _HOLES
    kept = json.loads(path.read_text()) if path.exists() else []
    return {(one["scenario"], one["contender"]): one for one in kept}


def save_holes(holes: dict[tuple[str, str], Result], folder: Path) -> None:
    """Keep verdicts, in the order of scenarios and contenders."""
    names = [who.name for who in ALL_CONTENDERS]
    ordered = [holes[name, who] for name in SCENARIOS for who in names if (name, who) in holes]
    (folder / _HOLES).write_text(json.dumps(ordered, indent=1) + "\n")


def page(folder: Path) -> str:
    """Return the page about the results in a folder.

    Raises:
        FileNotFoundError: there are none.
    """
    holes = list(load_holes(folder).values())
    speed: Result = json.loads((folder / SPEED).read_text())
    parts = [_HEAD, *_speed(speed), *_holes(holes), _NOT_RUN + "\n".join(_absent(holes))]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _speed(speed: Result) -> Iterator[str]:
    tables, medians = [], {}
    kept = []
    for rows in sorted({turn["rows"] for turn in speed["turns"]}):
        turns = _whole_rounds([turn for turn in speed["turns"] if turn["rows"] == rows])
        kept += turns
        names = [
            who.name for who in ALL_CONTENDERS if any(t["contender"] == who.name for t in turns)
        ]
        rounds = len({turn["round"] for turn in turns})
        lines = [
            f"### Batches of {_count(rows)} rows, rounds: {rounds}",
            "",
            f"| seconds: median (quartiles) | {' | '.join(names)} |",
            "|---" * (len(names) + 1) + "|",
        ]
        for key, (title, values_of) in _METRICS.items():
            cells = []
            for name in names:
                values = [v for t in turns if t["contender"] == name for v in values_of(t)]
                low, middle, high = _quartiles(values)
                medians[rows, name, key] = middle
                around = f" ({low:.2f} to {high:.2f})" if len(values) > 1 else ""
                cells.append(f"{middle:.2f}{around}")
            lines.append(f"| {title} | {' | '.join(cells)} |")
        lines += _start_apart(turns, names)
        tables.append("\n".join(lines))
    yield "## What SPYT does better\n\n" + "\n".join(_strong_points(medians))
    loads = [turn["load"] for turn in kept]
    yield _SPEED.format(
        rig="\n".join(
            [
                f"- Rig: {_machine(speed['run'])}.",
                *_packages(speed["versions"]),
                *(f"- {note}" for note in [speed.get("note")] if note),
            ]
        ),
        least=min(loads),
        most=max(loads),
    )
    yield from ("\n" + table for table in tables)
    yield "\n" + "\n".join(_ratios(medians))


def _start_apart(turns: Sequence[Result], names: Sequence[str]) -> Iterator[str]:
    """Yield what the way to the end of the first batch is made of; older results do not say."""
    parts = dict.fromkeys(part for turn in turns for part in turn.get("parts", ()))
    if parts:
        yield ""
        yield f"| start, seconds: median | {' | '.join(names)} |"
        yield "|---" * (len(names) + 1) + "|"
    for part in parts:
        cells = []
        for name in names:
            values = [turn["parts"].get(part, 0.0) for turn in turns if turn["contender"] == name]
            cells.append(f"{statistics.median(values):.2f}")
        yield f"| {part} | {' | '.join(cells)} |"


def _whole_rounds(turns: Sequence[Result]) -> list[Result]:
    """Leave out a round that was cut short: what drifts would hit some contenders only."""
    order = [(turn["round"], turn["contender"]) for turn in turns]
    everybody = {contender for _, contender in order}
    return [turn for turn in turns if {(turn["round"], who) for who in everybody} <= set(order)]


def _strong_points(medians: dict[tuple[int, str, str], float]) -> Iterator[str]:
    """Yield where SPYT's better mode is ahead of our better protocol, as measured."""
    said = False
    for rows, key in dict.fromkeys((rows, key) for rows, _, key in medians):
        theirs, name = min((medians[rows, n, key], n) for n in _THEIRS if (rows, n, key) in medians)
        ours = min(medians[rows, n, key] for n in _OURS if (rows, n, key) in medians)
        if theirs < _AHEAD * ours:
            said = True
            yield (
                f"- Batches of {_count(rows)} rows, {_METRICS[key][0]}: {theirs:.2f} s ({name}), ours"
                f" {ours:.2f} s."
            )
    if not said:
        yield "- Nothing that this run measured."
    yield (
        "- Tasks write, so a batch may be larger than the driver's memory. In our default mode that holds"
        " only where\n  [our tasks write](exactly-once.md#rows-from-the-tasks) too: not for queries that"
        " keep state or shuffle."
    )
    yield "- Checkpoints can lie on YTsaurus itself (`yt:///`), and executors run in YTsaurus operations."
    yield "- Copies without a row limit are exact in transactional mode, also when drivers are killed."


def _ratios(medians: dict[tuple[int, str, str], float]) -> Iterator[str]:
    sizes = sorted({rows for rows, _, _ in medians})
    heads = [f"{_count(rows)} rows, {what}" for rows in sizes for what in ("time", "CPU of Spark")]
    yield "### Ratios, ours / SPYT"
    yield ""
    yield f"| of medians, per batch | {' | '.join(heads)} |"
    yield "|---" * (len(heads) + 1) + "|"
    for ours in _OURS:
        for theirs in _THEIRS:
            pairs = [
                ((rows, ours, key), (rows, theirs, key))
                for rows in sizes
                for key in ("batch", "spark")
            ]
            if all(place in medians for pair in pairs for place in pair):
                cells = [f"{medians[mine] / medians[other]:.2f}" for mine, other in pairs]
                yield f"| {ours} / {theirs} | {' | '.join(cells)} |"


def _holes(holes: Sequence[Result]) -> Iterator[str]:
    found = {(one["scenario"], one["contender"]): one for one in holes}
    ran = {one["contender"] for one in holes}
    names = [who.name for who in CONTENDERS if who.name in ran]
    texts = {name: f"`{name}`: {scenario.text.rstrip('.')}" for name, scenario in SCENARIOS.items()}
    yield "\n".join([_ROWS, *_verdicts(found, names, texts), "", _rigs(holes, names)])
    others = [who.name for who in OTHER_VERSIONS if who.name in ran]
    if others:
        texts = {
            name: f"`{name}`" for name in SCENARIOS if any((name, who) in found for who in others)
        }
        table = _verdicts(found, others, texts)
        yield "\n".join([_OTHERS, *table, "", _fixed(found, others), "", _rigs(holes, others)])
    reasons = ["## Why", ""]
    for name, scenario in SCENARIOS.items():
        theirs = [one for one in holes if one["scenario"] == name and one["contender"] in _THEIRS]
        exact = bool(theirs) and all(one["word"] == scenario.must_be for one in theirs)
        told = [f"**`{name}`.** {scenario.why}"]
        if scenario.server and not exact:
            told.append(f"The cluster is not the cause: {scenario.server}")
        covered = scenario.covered_by or f"{_OWN_TEST}[{name}]"
        told.append(f"Ours in CI: `tests/{covered}`.")
        reasons.append("- " + " ".join(told))
    yield "\n".join(["", *reasons, ""])


def _verdicts(
    found: dict[tuple[str, str], Result], names: Sequence[str], texts: dict[str, str]
) -> Iterator[str]:
    """Yield a table: a line per scenario, a column per contender."""
    yield f"| scenario | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for name, text in texts.items():
        cells = [_verdict(found.get((name, who))) for who in names]
        yield f"| {text} | {' | '.join(cells)} |"


def _fixed(found: dict[tuple[str, str], Result], others: Sequence[str]) -> str:
    """Return which holes of the version in the first table are gone in another one, chance aside."""
    base = next(who.name for who in CONTENDERS if who.transactional)
    gone = [
        f"`{name}` ({who})"
        for name, scenario in SCENARIOS.items()
        for who in others
        if not scenario.at_random
        and {(name, base), (name, who)} <= set(found)
        and found[name, base]["word"] != scenario.must_be == found[name, who]["word"]
    ]
    fixed = (
        f"Fixed there: {', '.join(gone)}." if gone else "No hole that was looked for is gone there."
    )
    return (
        f"{fixed} Chance decides `random_kills`: an exact run has met no window. `kill_dedup` and `kill_two`"
        " meet it on purpose."
    )


def _rigs(holes: Sequence[Result], names: Sequence[str]) -> str:
    """Return when, where and with which versions these contenders ran."""
    theirs = [one for one in holes if one["contender"] in names]
    machines: dict[str, list[str]] = {}
    for one in theirs:
        ran = machines.setdefault(_machine(one["run"]), [])
        if one["contender"] not in ran:
            ran.append(one["contender"])
    only_one = len(machines) == 1
    rigs = [
        f"- Rig{'' if only_one else ' of ' + ', '.join(who)}: {machine}."
        for machine, who in machines.items()
    ]
    return "\n".join([*rigs, *_packages({one["contender"]: one["versions"] for one in theirs})])


def _absent(holes: Sequence[Result]) -> Iterator[str]:
    """Yield which scenarios nobody ran for whom."""
    ran = {(one["scenario"], one["contender"]) for one in holes}
    for who in CONTENDERS:
        missing = [f"`{name}`" for name in SCENARIOS if (name, who.name) not in ran]
        if missing:
            reason = " Tests in CI cover them, see above." if who.is_ours else ""
            if not who.is_ours and not who.transactional:
                reason = " It promises at-least-once, so repeated rows are no fault of it."
            yield f"- **{who.name}**: {', '.join(missing)}.{reason}"


def _verdict(one: Result | None) -> str:
    if one is None:
        return "-"
    found = one["difference"]
    counts = [
        f"{_count(found[kind])} {kind}"
        for kind in ("lost", "doubled", "wrong", "disordered")
        if found[kind]
    ]
    word = {"exact": "exact", "wrong": "**wrong**", "stuck": "**stuck**", "stopped": "stopped"}
    text = word[one["word"]]
    if one["contender"] == _AT_LEAST_ONCE and one["word"] == "wrong" and not found["lost"]:
        text = "at least once, as promised"
    if counts:
        text += f": {', '.join(counts)} of {_count(found['rows'])}"
    if one["error"]:
        text += f"; {_brief(one['error'])}"
    return text


def _brief(error: str) -> str:
    for name in ("DataLossError", "Transaction affects too many rows in tablet"):
        if name in error:
            return f"`{name}`"
    return error[:80].replace("|", "/")


def _machine(run: dict[str, str]) -> str:
    """Return when and where."""
    return (
        f"{run['time'][:10]}, {run['processor']}, {run['cores']} cores, {run['memory']}, {run['system']},"
        f" Python {run['python']}, {run['java']}"
    )


def _packages(versions: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the versions, as a list; contenders of one environment come together."""
    together: dict[str, list[str]] = {}
    for who in sorted(versions, reverse=True):
        packages = ", ".join(f"{name} {number}" for name, number in versions[who].items())
        together.setdefault(packages, []).append(who)
    for packages, names in together.items():
        yield f"- {', '.join(names)}: {packages}."


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
