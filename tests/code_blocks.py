"""Every block of code that the README and the documentation show, and what checks it.

Each page lists its blocks in order. A block that is in no list fails `tests/unit/test_docs.py`.
"""

import re
from enum import Enum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```([\w{}-]+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = ("python", "sh")


class How(Enum):
    """What checks a block."""

    RUNS = "tests/integration/test_code_blocks.py runs it"
    IN_TUTORIAL = "tests/integration/test_tutorial.py runs it"
    OPTIONS = (
        "tests/integration/test_code_blocks.py looks for its options in the help of its command"
    )


class Block(NamedTuple):
    """One block of a page: its language, its code, and what checks it, or the reason why nothing can."""

    language: str
    code: str
    how: How | str


_BY_CI = "it installs the package, as .ci/run does"
_TUTORIAL_SETUP = "it installs the package and makes the folder of the test"
_SPYT = "it shows SPYT, which is not installed"

_COMMANDS = "tests/local/test_command_pages.py runs it"

_HOWS: dict[str, list[How | str]] = {
    "README.md": [How.RUNS, "tests/crash/test_demo.py runs the demo"],
    "docs/contributing.md": [_BY_CI],
    "docs/how-to/branch-and-chain.md": [How.RUNS] * 2,
    "docs/how-to/outages.md": [How.RUNS] * 2,
    "docs/how-to/fan-out.md": [How.RUNS, How.OPTIONS],
    "docs/how-to/break-your-pipeline.md": [_BY_CI, *[How.RUNS] * 3],
    "docs/how-to/rehearse-new-code.md": [
        How.RUNS,
        How.OPTIONS,
        "tests/integration/test_rehearse.py rehearses such jobs",
    ],
    "docs/how-to/add-a-column.md": [How.RUNS, _COMMANDS],
    "docs/how-to/keep-changes.md": [
        *["tests/integration/test_keep_changes.py runs it"] * 3,
        How.OPTIONS,
    ],
    "docs/how-to/pipelines.md": ["tests/integration/test_pipelines.py runs it"] * 2,
    "docs/how-to/read-tables.md": [How.RUNS] * 2,
    "docs/how-to/scala-and-sql.md": [How.OPTIONS, How.OPTIONS],
    "docs/how-to/write-once.md": [
        How.RUNS,
        "tests/integration/test_backfill.py does it, killed",
        "tests/local/test_advice.py starts streams at rows",
    ],
    "docs/index.md": [How.RUNS],
    "docs/security.md": [How.OPTIONS],
    "docs/explanation/how-it-is-tested.md": [
        "it runs tests; pytest has no help for profiles",
        How.OPTIONS,
    ],
    "docs/measured/chaos.md": [How.OPTIONS, How.OPTIONS],
    "docs/explanation/compared-with-spyt.md": [How.OPTIONS],
    "docs/explanation/performance.md": [How.OPTIONS],
    "docs/measured/nexmark.md": [How.OPTIONS],
    "docs/measured/results.md": [How.OPTIONS],
    "docs/how-to/monitor.md": [
        "tests/unit/test_logs.py tries it, in a process that logs nothing else",
        _BY_CI,
        *[How.RUNS] * 3,
    ],
    "docs/how-to/recover.md": ["tests/local/test_advice.py runs it"] * 2,
    "docs/how-to/checkpoints.md": [
        _BY_CI,
        "tests/machines runs such a driver",
        How.OPTIONS,
        "tests/machines runs such a driver",
    ],
    "docs/how-to/cluster.md": [
        "it packs an environment, which takes minutes and the network",
        "it needs a cluster of Spark",
    ],
    "docs/how-to/move-from-spyt.md": [_SPYT, How.RUNS],
    "docs/how-to/find-the-cause.md": [How.OPTIONS],
    "docs/how-to/run.md": [How.OPTIONS],
    "docs/how-to/orchestrate.md": [
        How.RUNS,
        "tests/integration/test_batch_writer.py repeats such jobs",
        "it needs cron",
    ],
    "docs/how-to/see-and-repair.md": [_COMMANDS] * 11,
    "docs/how-to/test-your-pipeline.md": [
        *[How.RUNS] * 3,
        *[How.OPTIONS] * 2,
        How.RUNS,
        How.OPTIONS,
        *[How.RUNS] * 2,
        How.OPTIONS,
        "tests/local/test_access_control.py has its calls",
        *[How.RUNS] * 2,
    ],
    "docs/how-to/from-kafka.md": [
        _BY_CI,
        *["it starts servers for a person; tests/kafka has its own"] * 6,
        *["tests/kafka/test_kafka.py runs it"] * 3,
        "tests/kafka/test_kafka.py has its options",
    ],
    "docs/how-to/other-sources.md": ["tests/integration/test_other_sources.py runs it"] * 3,
    "docs/how-to/write-changes.md": [
        *[How.RUNS] * 10,
        "tests/local/test_dead_letters.py follows it",
    ],
    "docs/how-to/write-with-the-format.md": [How.RUNS],
    "docs/reference/configuration.md": [How.RUNS],
    "docs/reference/contract.md": ["it needs a live cluster"],
    "docs/tutorial/first-pipeline.md": [*[_TUTORIAL_SETUP] * 2, *[How.IN_TUTORIAL] * 14],
}


def pages() -> list[str]:
    """Return the pages that show code, as paths from the root."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = [str(page.relative_to(ROOT)) for page in found]
    return [name for name in names if _code_of(name)]


def blocks(page: str) -> list[Block]:
    """Return the blocks of code of a page, up to the last one that this module knows.

    It is called while tests are collected, so it does not fail; `miscounted` tells what is missing.
    """
    return [
        Block(*block, how) for block, how in zip(_code_of(page), _HOWS.get(page, ()), strict=False)
    ]


def miscounted() -> dict[str, tuple[int, int]]:
    """Return the pages that have more or fewer blocks than this module knows, with both numbers."""
    counts = {page: (len(_code_of(page)), len(_HOWS.get(page, ()))) for page in {*pages(), *_HOWS}}
    return {page: both for page, both in counts.items() if both[0] != both[1]}


def _code_of(page: str) -> list[tuple[str, str]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(language, code) for language, code in _BLOCK.findall(text) if language in _CODE]
