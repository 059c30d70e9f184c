"""Runs a tier of tests on several versions of PySpark, each in an environment of its own.

Usage: `python -m tests.versions` takes all versions, `python -m tests.versions 4.0 4.1` some. It keeps the
environments in `~/.cache/yt-exactly-once/versions`. What it found goes to `docs/measured/versions.json`, from
which `docs/generate.py` writes the table of the documentation.

`python -m tests.versions lowest newest` tries the bounds of all dependencies: their lowest versions together,
and the newest that there are. It writes nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
CACHE = Path.home() / ".cache" / "yt-exactly-once" / "versions"
RESULTS = ROOT / "docs" / "measured" / "versions.json"

VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")
WITHOUT_FORMATS = ("3.5",)

_TESTS = "tests/integration"
_SINK = "tests/integration/test_versions.py"
_FORMAT = "tests/integration/test_stream_writer.py"
_FROM_QUEUE = (
    "tests/integration/test_sink_replay.py::test_batch_without_its_commit_log_entry_is_replayed"
)
_REPLAYS = [
    f"{_FROM_QUEUE}_without_effect[{kind}]" for kind in ("stateless-ordered", "aggregation-sorted")
]

COLUMNS: dict[str, list[str]] = {
    "foreachBatch, transactional": [
        f"{_SINK}::test_every_mode_is_exact_over_a_replay[transactional-"
    ],
    "foreachBatch, at-least-once": [
        f"{_SINK}::test_every_mode_is_exact_over_a_replay[at-least-once-"
    ],
    "foreachBatch, idempotent": [f"{_SINK}::test_every_mode_is_exact_over_a_replay[idempotent-"],
    "stateful replay": [f"{_SINK}::test_stateful_replay_is_exact"],
    "kill": [f"{_SINK}::test_killed_driver"],
    "source": _REPLAYS,
    "format yt": [f"{_FORMAT}::"],
    "without registration, as Scala and Java call it": [f"{_TESTS}/test_doors.py::test_format"],
    "calls before the start": [f"{_TESTS}/test_doors.py::test_calls_before"],
    "SQL": [f"{_TESTS}/test_doors.py::test_sql"],
    "batch write": [f"{_TESTS}/test_batch_writer.py::test_job_is"],
    "batch read": [f"{_TESTS}/test_tables.py::test_spark_reads"],
    "Scala, in spark-shell": [
        f"{_TESTS}/test_scala.py::test_copy_of_the_page_is_exact_over_kills[one]"
    ],
    "Spark Connect, a client without the package": [
        f"{_TESTS}/test_connect.py::test_client_without"
    ],
    "pipelines": [f"{_TESTS}/test_pipelines.py::test_project_of_the_page_is_exact_over_kills[one]"],
}
"""What is tested, a line of the table each: how the names of its tests begin."""

_OLD = ("-W", "ignore:distutils Version classes:DeprecationWarning")
"""What PySpark 3.5 and 4.0 say of themselves."""

_WITHOUT_SPARK = [
    *(f"tests/unit/test_codec_{name}.py" for name in ("encode", "decode", "schema")),
    *(f"tests/unit/test_{name}.py" for name in ("ledger", "cli", "telemetry")),
    "tests/local/test_audit.py",
]

BOUNDS = {"lowest": [*_WITHOUT_SPARK, _SINK], "newest": [*_WITHOUT_SPARK, _SINK, _FORMAT]}
"""What is run at the bounds of all dependencies; the lowest PySpark has no format."""

EXTRAS = ("local", "demo", "lineage", "telemetry", "test")
"""What the tests need of the optional dependencies."""


def main() -> int:
    """Run the tests; return 1 when one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="such as 4.0")
    parser.add_argument("--only", action="append", help="A line of the table; the others stay.")
    asked = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known = (*VERSIONS, *BOUNDS)
    if wrong := set(asked.versions) - {*known}:
        parser.error(f"{min(wrong)} is none of {', '.join(known)}")
    if failed := [end for end in asked.versions if end in BOUNDS and not holds(end)]:
        print(f"failed: {', '.join(failed)}")
        return 1
    for version in (each for each in asked.versions if each in VERSIONS):
        print(f"== PySpark {version}", flush=True)
        told = run(version, environment(version), asked.only or list(COLUMNS))
        # Another run may have told of another version meanwhile.
        found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        told["tests"] = {**found.get(version, {}).get("tests", {}), **told["tests"]}
        found[version] = told
        RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    bad = [
        version for version in found if any(n["failed"] for n in found[version]["tests"].values())
    ]
    print(f"failed: {', '.join(bad)}" if bad else "all passed")
    return bool(bad)


def environment(version: str) -> Path:
    """Return the interpreter of an environment of a version, with the packages that are wanted now."""
    wanted = [name for name in dependencies(*EXTRAS) if not name.startswith("pyspark")]
    return installed(version, f"pyspark[connect]=={version}.*", "pyyaml", *wanted)


def dependencies(*extras: str) -> list[str]:
    """Return what the package requires, with some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    more = project["optional-dependencies"]
    listed = [*project["dependencies"], *(name for extra in extras for name in more[extra])]
    return [name for name in listed if not name.startswith("yt-exactly-once")]


def installed(name: str, *wanted: str) -> Path:
    """Return the interpreter of an environment with these packages; they are asked for each time."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def holds(end: str) -> bool:
    """Run tests with the lowest or the newest versions that users may have; return whether they pass."""
    python = installed(end, "uv")
    wanted = dependencies("checkpoints", "local", "demo", "lineage", "telemetry")
    resolution = "lowest-direct" if end == "lowest" else "highest"
    install = [python, "-m", "uv", "pip", "install", "-q", "--python", python]
    subprocess.run([*install, "--upgrade", "--resolution", resolution, *wanted], check=True)
    # What only tests need is as it comes.
    subprocess.run([*install, *dependencies("test")], check=True)
    print(f"== {end}: {packages(python)}", flush=True)
    command = [python, "-m", "pytest", "-q", *_OLD, *BOUNDS[end]]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode == 0


def run(version: str, python: Path, doors: list[str]) -> dict[str, Any]:
    """Run the tests of a version; return what passed, by line, and the versions of what matters."""
    report = CACHE / f"{version}.xml"
    beginnings = tuple(
        each
        for door in doors
        for each in COLUMNS[door]
        if version not in WITHOUT_FORMATS or each.startswith(_SINK)
    )
    pytest = [str(python), "-m", "pytest", "-n", "0", "-m", "", *_OLD]
    files = sorted({each.partition("::")[0] for each in beginnings})
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    # A file that cannot be collected must not look like tests that a version does not have.
    listed = (
        subprocess.run(
            [*pytest, "--collect-only", "-q", *files],
            cwd=ROOT,
            env=variables,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.splitlines()
        if files
        else []
    )
    chosen = [line for line in listed if line.startswith(beginnings)]
    if chosen:
        command = [*pytest, "-q", f"--junitxml={report}", *chosen]
        subprocess.run(command, cwd=ROOT, env=variables, check=False)
    tests = {door: {"passed": 0, "failed": 0} for door in doors}
    for case in ET.parse(report).iter("testcase") if chosen else ():
        module = case.attrib["classname"].replace(".", "/") + ".py"
        name = f"{module}::{case.attrib['name']}"
        if case.find("skipped") is not None:
            continue
        failed = any(case.find(kind) is not None for kind in ("failure", "error"))
        for door in doors:
            if name.startswith(tuple(COLUMNS[door])):
                tests[door]["failed" if failed else "passed"] += 1
    return {"packages": packages(python), "tests": tests}


def packages(python: Path) -> dict[str, str]:
    """Return the versions that an environment has."""
    code = (
        "import json; from importlib.metadata import version; "
        "print(json.dumps({n: version(n) for n in ('pyspark', 'pandas', 'numpy', 'pyarrow')}))"
    )
    answer = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(answer.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
