"""The page of versions: its table is what `python -m tests.versions` has found."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "measured" / "versions.json"

_TEXT = """\
# Versions

The sink runs on PySpark {oldest} to {newest}. The source and the format `yt` need PySpark 4.0 or newer: older
versions have no data sources in Python. There Spark does not find the format. All of it needs
Python 3.11 and Java 17, or newer.

## What was run

`python -m tests.versions` runs the same tests on each version, in an environment that it makes. The table
is written from its results. A cell says how many tests passed. "Not there": PySpark 3.5 has no data
sources in Python, and pipelines begin with 4.1.

{table}

## What differs

| PySpark | source | what differs |
|---|---|---|
| 4.2 and newer | yes | nothing |
| 4.0, 4.1 | yes | no admission control for Python sources, so the source limits its batches itself |
| 3.5 | no | use another source, such as Kafka, with the sink |

**Limits on 4.0 and 4.1.** `max_rows_per_partition` and `max_bytes_per_partition` hold for every batch. But
with the trigger `availableNow` Spark asks such a source only once. So the whole run is one batch, and with
a limit it ends after that batch. No row is lost: the next run continues there. The event `source.run_limited`
warns of the rows that are left. It comes with other triggers, too: Spark does not tell a source its trigger.
To read all rows in limited batches, take another trigger and call `query.processAllAvailable()`.

After a restart the source continues at the offset that Spark hands over. It does not ask the consumer.

**Registering on 4.0.** Spark keeps the format that it has found in the installed package. So
`register_source(spark)` cannot give it `YT_PROXY` and `YT_TOKEN`: it has the values from when Spark started.
Set them before, use the option `proxy`, or register another name: `register_source(spark, name="orders")`.

**pandas and NumPy.** PySpark imports pandas for Arrow functions. PySpark 4.2 and newer do not fully support
pandas 3, and warn at each start of a Python process. So the package asks for pandas below 3. The tests of the
table ran with pandas 3 all the same. If your environment must have it, install the package with `--no-deps`,
and its other dependencies yourself. PySpark 3.5 imports `distutils`, which Python 3.12 does not have: install
`setuptools` there.
"""


def versions_page() -> str:
    """Return the page."""
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    doors = dict.fromkeys(door for told in found.values() for door in told["tests"])
    lines = [
        f"| | {' | '.join(told['packages']['pyspark'] for told in found.values())} |",
        "|---" * (len(found) + 1) + "|",
    ]
    for door in doors:
        cells = [_cell(told["tests"].get(door)) for told in found.values()]
        lines.append(f"| {door} | {' | '.join(cells)} |")
    for package in ("pandas", "numpy", "pyarrow"):
        cells = [told["packages"][package] for told in found.values()]
        lines.append(f"| {package} | {' | '.join(cells)} |")
    return _TEXT.format(table="\n".join(lines), oldest=min(found), newest=max(found))


def _cell(tests: dict[str, int] | None) -> str:
    if tests is None:
        return "not run"
    if not any(tests.values()):
        return "not there"
    failed = f", {tests['failed']} failed" if tests["failed"] else ""
    return f"{tests['passed']}{failed}"
