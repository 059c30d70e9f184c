"""Marks by folder: what a test needs follows from where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

_MARKS = {"integration": pytest.mark.spark, "crash": pytest.mark.crash}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(root).parts[0] if item.path.is_relative_to(root) else ""
        if folder in _MARKS:
            item.add_marker(_MARKS[folder])
