"""Rules of the rooms that an import contract cannot say."""

from __future__ import annotations

import re
from pathlib import Path

import yt_exactly_once

PACKAGE = Path(yt_exactly_once.__file__).parent

PRIVATE = re.compile(
    r"\b_j(?:vm|df|sc|sparkSession|conf)\b|_gateway\b|toDebugString|SPARK_JOB_|maxResultSize\" in "
)
"""What PySpark and Spark promise to nobody."""


def test_only_one_room_takes_private_ways_of_spark() -> None:
    taking = {
        module.relative_to(PACKAGE).as_posix()
        for module in PACKAGE.rglob("*.py")
        if PRIVATE.search(module.read_text(encoding="utf-8"))
    }

    assert taking
    assert [name for name in sorted(taking) if not name.startswith("spark/compat/")] == []
