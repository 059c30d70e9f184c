"""`python -m tests.upstream`: run YTsaurus's own integration tests against the embedded cluster.

The tests come from a git directory with YTsaurus's sources; nothing of them is kept here. A test that fails
and is not among the known failures (`verdicts.tsv`), and a file in which fewer tests pass than before
(`passed.tsv`), give exit code 1.
"""

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.upstream import report, runner

_HERE = Path(__file__).parent
_NEEDED = ("decorator", "flaky", "pytz", "pytest_timeout", "requests", "six")
_REGRESSED, _CANNOT_RUN = 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the files and compare; return 1 when something got worse, 2 when the run cannot begin."""
    options = _parse(arguments)
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        packages = " ".join(name.replace("_", "-") for name in missing)
        sys.stderr.write(f"YTsaurus's tests need more packages: pip install {packages}\n")
        return _CANNOT_RUN
    files = options.files or _listed(_HERE / "files.txt")
    with tempfile.TemporaryDirectory(prefix="upstream-") as scratch:
        folder = options.folder or Path(scratch)
        try:
            plan = runner.Plan(
                options.source, options.revision, folder, tuple(options.pytest), options.newer
            )
            results = runner.run(plan, files)
        except runner.CannotRunError as error:
            sys.stderr.write(f"{error}\n")
            return _CANNOT_RUN
    verdicts = report.Verdicts.load(_HERE / "verdicts.tsv")
    judged = [report.judge(result, verdicts) for result in results]
    if options.report is not None:
        options.report.write_text(report.table(judged), encoding="utf-8")
    expected = {} if options.pytest or options.newer else report.passed_before(_HERE / "passed.tsv")
    worse = report.regressions(judged, {name: expected.get(name, 0) for name in files})
    sys.stdout.write(report.summary(judged) + "\n")
    for line in worse:
        sys.stdout.write(f"WORSE {line}\n")
    if options.accept:
        report.remember(_HERE / "passed.tsv", judged)
    return _REGRESSED if worse else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=main.__doc__)
    parser.add_argument(
        "--source", type=Path, required=True, help="git directory with the sources of YTsaurus"
    )
    parser.add_argument("--revision", default="HEAD", help="commit of it; HEAD by default")
    parser.add_argument("--folder", type=Path, help="where sources, logs and results stay")
    parser.add_argument(
        "--newer",
        type=Path,
        help="folder with later versions of files, laid over the sources: yt/yt/tests/integration/...; their "
        "results are not compared with passed.tsv",
    )
    parser.add_argument("--report", type=Path, help="file for the table of all files")
    parser.add_argument(
        "--accept", action="store_true", help="write the numbers of this run to passed.tsv"
    )
    parser.add_argument(
        "files",
        nargs="*",
        help="test files below yt/yt/tests/integration; all of files.txt by default",
    )
    parser.add_argument(
        "--pytest", nargs=argparse.REMAINDER, default=[], help="options for pytest, such as -k"
    )
    return parser.parse_args(arguments)


def _listed(path: Path) -> list[str]:
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


if __name__ == "__main__":
    sys.exit(main())
