"""What holds for all tests: marks by folder, the longest first, and patience with a busy machine."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc  # noqa: F401 - pytest imports it while objects are collected, in two threads at once
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling
from yt.wrapper import default_config

from tests.class_archive import missing_archive, use_archive
from yt_exactly_once.spark import static

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

# How long an example takes says more about the machine than about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# `--hypothesis-profile=deep`: for tests that know how to use more time.
settings.register_profile("deep", settings.get_profile("patient"), max_examples=2_000)

# The official client evaluates the annotations of its configuration for every client: 5 of 7 ms.
default_config.get_type_hints = cache(default_config.get_type_hints)

# Tests start hundreds of Python processes. Each would compile the package where bytecode must not be written
# into the tree.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    cached = Path(__file__).parent.parent / ".pytest_cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(cached))

# Where tests run from the sources alone, Spark finds the formats, too.
_PATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)
os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, _PATH), static.FOLDER])

_MARKS = {
    "crash": (pytest.mark.crash, pytest.mark.further),
    "integration": (pytest.mark.spark,),
    "property": (pytest.mark.further,),
}

_WITHOUT_SPARK = frozenset({"callers", "model", "unit"})
"""Folders whose tests need no session."""

_WITH_DRIVERS = frozenset({"crash", "integration"})
"""Folders whose tests start Spark themselves."""

_LONGEST = ("crash", "integration", "model", "contract", "local", "property", "chaos", "callers")
"""Folders, by how long a file of theirs takes."""


# Before pytest selects by mark, and after the shuffle.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        for mark in _MARKS.get(_folder(item), ()):
            item.add_marker(mark)
    yield
    # So that no worker is left alone with a long file in the end. Within a folder the order is random.
    places = {folder: place for place, folder in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(_folder(item), len(places)))


@pytest.fixture(autouse=True)
def _no_spark_left_behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the session that a test before has left from tests that must pass without one."""
    context = sys.modules.get("pyspark.core.context")
    if context is not None and _folder(request.node) in _WITHOUT_SPARK:
        monkeypatch.setattr(context.SparkContext, "_active_spark_context", None)


class _OneSession(LoadFileScheduling):
    """Give tests to workers file by file, and the files that share the session of Spark to one worker.

    A second session would start slowly, too.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith("tests/integration/") else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)  # There is no such hook with `-p no:xdist`.
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return _OneSession(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    # What is imported stays. The collector would go through it again and again: a tenth of the time.
    gc.collect()
    gc.freeze()
    # Not in a fixture, where it would use up the time of the first test.
    folders = {_folder(item) for item in session.items}
    kept = _archives(session.config)
    if kept and not session.config.option.collectonly and folders & _WITH_DRIVERS:
        use_archive(kept, make="crash" in folders)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    started = any("tests/crash/" in getattr(report, "nodeid", "") for report in reports)
    kept = _archives(terminalreporter.config)
    if started and kept and (log := missing_archive(kept)):
        terminalreporter.write_line(f"Spark started slowly: no class-data archive, see {log}")


def _archives(config: pytest.Config) -> Path | None:
    """Return where class-data archives are kept; nowhere with `-p no:cacheprovider`."""
    cache = getattr(config, "cache", None)
    return None if cache is None else cache.mkdir("class-data")


def _folder(item: pytest.Item) -> str:
    root = Path(__file__).parent
    return item.path.relative_to(root).parts[0] if item.path.is_relative_to(root) else ""
