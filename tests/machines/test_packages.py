"""Executors whose Python is another one than the driver's."""

import sys
import tarfile
import time
import venv

import pytest

from tests.machines.environment import ENVIRONMENT, pack
from tests.machines.stage import FLOWS, open_stage

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.nightly]

_PATIENCE_SECONDS = 600.0
_REMEDY = "PYSPARK_PYTHON"


@pytest.mark.timeout(900)
def test_a_package_that_the_executors_lack_is_named(tmp_path):
    """In every mode the query fails with the package and the remedy, and writes nothing."""
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    with open_stage(tmp_path, executor_python=python) as stage, stage.driver() as driver:
        assert_all_fail(stage, driver, "executors has no package")


@pytest.mark.timeout(900)
def test_a_python_that_the_executors_lack_is_named(tmp_path):
    """The driver has one at the relative path, and the archive has none."""
    program = tmp_path / ENVIRONMENT / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o700)
    archive = tmp_path / "empty.tar.gz"
    tarfile.open(archive, "w:gz").close()
    with open_stage(tmp_path, archive=archive) as stage, stage.driver() as driver:
        assert_all_fail(stage, driver, "cannot start the Python 'environment/bin/python'")


def assert_all_fail(stage, driver, said):
    """Wait until each flow has failed with an error that says this and the remedy; nothing is written."""
    stage.feed(10)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    named: set[str] = set()
    while named != set(FLOWS):
        assert time.monotonic() < deadline, driver.failures[-1:]
        driver.listen(1.0)
        assert not driver.batches
        # A busy machine may be too slow to start a Python at first.
        named = {name for name, error in driver.failures if said in error and _REMEDY in error}
    for name in FLOWS:
        assert not list(stage.client.select_rows(f"* from [{stage.target(name)}]"))


@pytest.mark.timeout(900)
def test_packed_environment_is_all_that_executors_need(tmp_path):
    """Shipped by `spark.archives`, with workers that find no package elsewhere: every mode is exact."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with open_stage(tmp_path, archive=pack(tmp_path)) as stage, stage.driver() as driver:
        stage.feed(10)
        while wrong := stage.wrong():
            assert time.monotonic() < deadline, (wrong, driver.failures[-1:])
            driver.listen(1.0)
