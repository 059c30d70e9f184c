"""Executors whose Python is another one than the driver's."""

from __future__ import annotations

import sys
import tarfile
import time
import venv

import pytest

from tests.machines.environment import ENVIRONMENT, pack
from tests.machines.stage import FLOWS, open_stage

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nightly]

_PATIENCE_SECONDS = 600.0


@pytest.mark.timeout(900)
def test_a_package_that_the_executors_lack_is_named(tmp_path):
    """In every mode the query fails with the package and the remedy, and writes nothing."""
    venv.create(tmp_path / "bare")
    with open_stage(tmp_path, executor_python=tmp_path / "bare" / "bin" / "python") as stage:
        assert_all_fail(stage, "executors has no package", "PYSPARK_PYTHON")


@pytest.mark.timeout(900)
def test_a_python_that_the_executors_lack_is_named(tmp_path):
    """The driver has one at the relative path, and the archive has none."""
    program = tmp_path / ENVIRONMENT / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o700)
    archive = tmp_path / "empty.tar.gz"
    tarfile.open(archive, "w:gz").close()
    with open_stage(tmp_path, archive=archive) as stage:
        assert_all_fail(stage, "cannot start the Python 'environment/bin/python'", "PYSPARK_PYTHON")


def assert_all_fail(stage, *said):
    """Wait until each flow has failed with an error that says this; nothing is written."""
    named: set[str] = set()
    error = ""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for part in range(len(stage.queue.rows)):
        stage.queue.append(10, part)
    while named != set(FLOWS):
        event = stage.driver.next_event(deadline - time.monotonic())
        assert event is not None, error
        assert event["event"] == "failed", event
        error = event["error"]
        # A busy machine may be too slow to start a Python at first.
        if all(words in error for words in said):
            named.add(event["flow"])
    for target in stage.targets.values():
        assert not list(stage.client.select_rows(f"* from [{target}]"))


@pytest.mark.timeout(900)
def test_packed_environment_is_all_that_executors_need(tmp_path):
    """Shipped by `spark.archives`, with workers that find no package elsewhere: every mode is exact."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with open_stage(tmp_path, archive=pack(tmp_path)) as stage:
        for part in range(len(stage.queue.rows)):
            stage.queue.append(10, part)
        error = ""
        while wrong := stage.wrong():
            assert time.monotonic() < deadline, (wrong, error)
            event = stage.driver.next_event(1)
            # A busy machine may be too slow to start a Python at first.
            error = event["error"] if event and event["event"] == "failed" else error
