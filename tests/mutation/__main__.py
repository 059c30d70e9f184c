"""Damages modules one small way at a time, and reports which damages no quick test notices.

Usage: `python -m tests.mutation --modules commit ytsaurus/transaction --sample 60 --seed 1`. The modules are
files or folders below `yt_exactly_once`. Works on a copy of the tree. Each damage meets first the unit tests
that name its module, then those that name its package, then those of the options, the callers and the
model; none needs Spark's JVM. Ends with 1 when a damage survives that
`tests/mutation/explained.py` does not explain.
"""

import argparse
import importlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.mutation.explained import EXPLAINED
from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE = "yt_exactly_once"
LAST = ("tests/unit/test_sink_options.py", "tests/callers", "tests/model")
"""Stages for damages that no test which names the module notices."""

PRELOADED = ("numpy", "pyarrow.compute", "pyspark.sql", "pytest", "hypothesis", "structlog", "tenacity",
             "yt.wrapper")  # fmt: skip
"""Imported once, since every run is a fork."""

CPU_SECONDS = 300
WALL_SECONDS = 1_800
"""A damage may loop for ever. The limit of processor time is right on a busy machine too."""


@dataclass(frozen=True)
class Damage:
    """A damage to a file.

    Attributes:
        path: of the module, in the package.
    """

    path: str
    mutant: Mutant

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is damaged, wherever its line has moved."""
        return self.path, self.mutant.place, self.mutant.was, self.mutant.becomes

    @property
    def explanation(self) -> str | None:
        """Why it may survive, if it is known."""
        return EXPLAINED.get(self.key)

    def __str__(self) -> str:
        mutant = self.mutant
        return (
            f"{self.path}:{mutant.line} {mutant.place}\n    - {mutant.was}\n    + {mutant.becomes}"
        )


def damages(modules: Sequence[str]) -> Iterator[Damage]:
    """Find every damage to the modules."""
    package = ROOT / PACKAGE
    for module in modules:
        folder = package / module
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [package / f"{module}.py"]
        for file in files:
            path = file.relative_to(package).as_posix()
            yield from (Damage(path, mutant) for mutant in mutants_of(file.read_text()))


def module_of(path: str) -> str:
    """Return the dotted name of a module of the package."""
    return f"{PACKAGE}/{path}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def mentions(text: str, module: str) -> bool:
    """Check whether source imports a module."""
    package, _, name = module.rpartition(".")
    beside = rf"from {re.escape(package)} import (\([^)]*|.*)\b{name}\b"
    return module in text or re.search(beside, text) is not None


@lru_cache
def dependents(path: str) -> frozenset[str]:
    """Return the modules that must be imported again when one has changed, that one among them."""
    texts = {
        module_of(file.relative_to(ROOT / PACKAGE).as_posix()): file.read_text()
        for file in (ROOT / PACKAGE).rglob("*.py")
    }
    found, new = set(), {module_of(path)}
    while new:
        found |= new
        new = {
            one for one, text in texts.items() if any(mentions(text, each) for each in new)
        } - found
    return frozenset(found)


def stages(path: str, *, unit: bool = False) -> list[list[str]]:
    """Return the tests that a damage to a module meets, the cheapest first; or the unit tests alone."""
    module = module_of(path)
    named: list[list[str]] = [[], []]
    for file in sorted((ROOT / "tests/unit").glob("test_*.py")):
        if file.name == "test_docs.py":
            continue  # names everything, and runs none of it
        text = file.read_text()
        if mentions(text, module):
            named[0].append(f"tests/unit/{file.name}")
        elif module.rpartition(".")[0] in text:
            named[1].append(f"tests/unit/{file.name}")
    found = named if unit else [*named, *([one] for one in LAST)]
    return [stage for stage in found if stage]


class Copy:
    """A copy of the tree, in which tests run.

    Attributes:
        root: where it is.
        unit: whether they are the unit tests alone.
    """

    def __init__(self, root: Path, *, unit: bool = False) -> None:
        self.root = root
        self.unit = unit
        for name in (PACKAGE, "tests", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, root)
        sys.path[:] = [str(root), *(one for one in sys.path if Path(one or ".").resolve() != ROOT)]
        for name in (*PRELOADED, f"{PACKAGE}.spark.doors.transactional_sink"):
            importlib.import_module(name)

    def stages(self, path: str) -> list[list[str]]:
        """Return the tests that a damage to a module meets, the cheapest first."""
        return stages(path, unit=self.unit)

    def killer(self, damage: Damage) -> str | None:
        """Return the stage that notices a damage, if one does."""
        file = self.root / PACKAGE / damage.path
        whole = file.read_text()
        self._write(file, damage.mutant.source)
        try:
            for tests in self.stages(damage.path):
                if not self.passes(tests, damage.path):
                    return " ".join(tests)
            return None
        finally:
            self._write(file, whole)

    def _write(self, file: Path, source: str) -> None:
        file.write_text(source)
        # Byte code is told from stale one by size and second, which damages share.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()

    def passes(self, tests: Sequence[str], damaged: str) -> bool:
        """Run tests in a fork, and return whether all of them passed in time."""
        child = os.fork()
        if child == 0:
            try:
                os._exit(self._run(tests, damaged))
            except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
                traceback.print_exc()
            finally:
                os._exit(-1)
        deadline = time.monotonic() + WALL_SECONDS
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        return status == 0

    def _run(self, tests: Sequence[str], damaged: str) -> int:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        log = os.open(self.root / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(self.root)
        for name in list(sys.modules):
            if name.split(".")[0] == "tests" or name in dependents(damaged):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                getattr(sys.modules.get(parent), "__dict__", {}).pop(child, None)
        os.environ["PYTHONPATH"] = str(self.root)
        import pytest

        quietly = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider"]
        # Runs that share a folder clear it away from each other, which looks like a failed test.
        alone = f"--basetemp={self.root / 'pytest'}"
        return int(pytest.main(["-x", "-q", "-n", "0", alone, *quietly, *tests]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--modules", nargs="+", default=["commit", "ytsaurus/transaction"])
    parser.add_argument("--sample", type=int, help="so many random damages; else all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--unit", action="store_true", help="unit tests alone")
    parser.add_argument("--list", action="store_true", help="show the damages, run nothing")
    options = parser.parse_args()
    chosen = list(damages(options.modules))
    total = len(chosen)
    if options.sample is not None:
        chance = random.Random(options.seed)
        chosen = sorted(
            chance.sample(chosen, min(options.sample, total)),
            key=lambda damage: (damage.path, damage.mutant.line),
        )
    if options.list:
        print(*chosen, sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        return _report(Copy(Path(folder), unit=options.unit), chosen, total)


def _report(copy: Copy, chosen: Sequence[Damage], total: int) -> int:
    checked = {tuple(stage): damage.path for damage in chosen for stage in copy.stages(damage.path)}
    for tests, path in checked.items():
        if not copy.passes(tests, path):
            print((copy.root / "log").read_text())
            print(f"Without a damage these tests fail: {' '.join(tests)}")
            return 2
    results: Counter[tuple[str, str]] = Counter()
    for number, damage in enumerate(chosen, 1):
        killer = copy.killer(damage)
        result = "killed" if killer else "explained" if damage.explanation else "survived"
        results[damage.path, result] += 1
        print(f"{number}/{len(chosen)} {result}: {damage}", flush=True)
        if killer:
            print(f"    by {killer}", flush=True)
        elif damage.explanation:
            print(f"    {damage.explanation}", flush=True)
    print(f"\n{len(chosen)} of {total} damages")
    for (path, result), count in sorted(results.items()):
        print(f"{path:32} {result:10} {count}")
    return int(any(result == "survived" for _, result in results))


if __name__ == "__main__":
    sys.exit(main())
