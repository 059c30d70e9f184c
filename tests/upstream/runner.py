"""Runs files of YTsaurus's tests in a pytest of their own, with the shim before everything else.

The tests call their cluster "primary", so they run against a copy of this package with that one constant
changed.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_PACKAGE = "yt_exactly_once"
_TESTS = "yt/yt/tests/integration"
_NEEDED = (
    _TESTS,
    "yt/yt/tests/library",
    "yt/python/yt/environment",
    "yt/python/yt/test_helpers",
    "yt/python/yt/wire_format",
)
_OF_2023 = {"chunk_index_counts_trimmed": True}
"""What the servers of the sources do otherwise than those of today."""


class CannotRunError(Exception):
    """The run cannot begin; the message says what is missing."""


@dataclass(frozen=True)
class Plan:
    """Where everything is.

    Attributes:
        folder: where sources, the copy of the package, logs and results are put.
        newer: a folder with later versions of single files, under the paths that they have in the sources.
    """

    source: Path
    revision: str
    folder: Path
    options: tuple[str, ...] = ()
    newer: Path | None = None

    @property
    def tree(self) -> Path:
        """Where the sources are, with the later files over them."""
        return self.folder / ("source" if self.newer is None else "newer")


def run(plan: Plan, files: list[str]) -> list[dict[str, Any]]:
    """Run test files; return one record per test, with its file.

    Raises:
        CannotRunError: the sources or a file of them are not there.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    _unpack(plan)
    _copy_package(plan.folder)
    root = plan.tree / _TESTS
    missing = [name for name in files if not (root / name).is_file()]
    if missing:
        raise CannotRunError(f"The sources have no {', '.join(missing)} below {_TESTS}")
    records: list[dict[str, Any]] = []
    for name in files:
        found = _run_file(plan, root, name)
        records += found
        passed = sum(record.get("outcome") == "passed" for record in found)
        sys.stdout.write(f"{name}: {passed} of {len(found)} passed\n")
        sys.stdout.flush()
    return records


def _unpack(plan: Plan) -> None:
    if not (plan.tree / _TESTS).is_dir():
        _extract(plan)
    if plan.newer is not None:
        shutil.copytree(plan.newer, plan.tree, dirs_exist_ok=True)


def _extract(plan: Plan) -> None:
    git = shutil.which("git") or "git"
    command = [git, "--git-dir", str(plan.source), "archive", plan.revision, *_NEEDED]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise CannotRunError(
            f"{plan.source} at {plan.revision} does not give the tests of YTsaurus:"
            f" {done.stderr.decode(errors='replace').strip()}"
        )
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(plan.tree, filter="data")


def _copy_package(folder: Path) -> None:
    copy = folder / "package"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(
        Path(__file__).parents[2] / _PACKAGE,
        copy / _PACKAGE,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    layout = copy / _PACKAGE / "local/cypress/layout.py"
    text = layout.read_text(encoding="utf-8")
    changed = text.replace('CLUSTER_NAME = "local"', 'CLUSTER_NAME = "primary"')
    if changed == text:
        raise CannotRunError(f"{layout} no longer has the name of the cluster")
    layout.write_text(changed, encoding="utf-8")


def _run_file(plan: Plan, root: Path, name: str) -> list[dict[str, Any]]:
    results = plan.folder / "results"
    results.mkdir(exist_ok=True)
    stem = name.replace("/", "+")
    record = results / f"{stem}.jsonl"
    record.unlink(missing_ok=True)
    shim = _HERE / "shim"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(shim), str(plan.folder / "package")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "YTINT_RESULTS": str(record),
        "YTINT_SKIPS": str(_HERE / "skips.tsv"),
        "YTINT_SOURCE": str(plan.tree),
        "YTINT_FEATURES": json.dumps({} if plan.newer else _OF_2023),
    }
    command = [sys.executable, "-m", "pytest", "-c", str(shim / "pytest.ini")]
    command += ["--rootdir", str(root), name, *plan.options]
    with (results / f"{stem}.log").open("wb") as log:
        subprocess.run(
            command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if not record.exists():
        raise CannotRunError(f"pytest did not run {name}; see {log.name}")
    found: dict[str, dict[str, Any]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "test" in entry:
            test = f"{name}::{entry['test'].partition('::')[2]}"
            found[test] = {**entry, "test": test, "file": name}
    return list(found.values())
