"""How Spark's Python processes start: with PySpark as it is installed, and what they had before."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from yt_exactly_once.spark.tuning import SWITCH
from yt_exactly_once.spark.tuning.start import INTERPRETER

LIBRARY = Path(pyspark.__file__).parent / "python" / "lib"
ARCHIVES = sorted(map(str, LIBRARY.glob("*.zip")))


WORKER = {"PYTHON_WORKER_FACTORY_SECRET": "of Spark"}


def started(*path, **more):
    """Start Python with this path as Spark does, and return where it has its modules from."""
    program = (
        "import json, sys, py4j, pyspark, sitecustomize;"
        "print(json.dumps([pyspark.__file__, py4j.__file__, getattr(sys, 'marked', 0), sys.path]))"
    )
    environment = {**os.environ, **WORKER, **more, "PYTHONPATH": os.pathsep.join(map(str, path))}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert not told.stderr
    return json.loads(told.stdout)


@pytest.mark.skipif(not ARCHIVES, reason="this PySpark has no archives")
def test_pyspark_is_imported_as_it_is_installed():
    """Spark's archives have no bytecode, and the installed package is the same."""
    spark, py4j, _, path = started(*ARCHIVES, INTERPRETER)
    assert spark == pyspark.__file__
    assert ".zip" not in py4j
    assert not set(ARCHIVES) & set(path)


@pytest.mark.skipif(not ARCHIVES, reason="this PySpark has no archives")
def test_archives_of_another_spark_stay(tmp_path):
    """Those of a distribution, say, whose version may be another one."""
    library = tmp_path / "pyspark" / "python" / "lib"
    shutil.copytree(LIBRARY, library)
    archives = sorted(library.glob("*.zip"))
    spark, py4j, _, _ = started(*archives, INTERPRETER)
    assert spark.startswith(str(library))
    assert py4j.startswith(str(library))


@pytest.mark.parametrize("switch", ["on", "off"])
def test_hidden_sitecustomize_runs_too(switch, tmp_path):
    """Tools that watch Python processes have one."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.marked = 7")
    assert started(INTERPRETER, tmp_path, **{SWITCH: switch})[2] == 7


@pytest.mark.skipif(not ARCHIVES, reason="this PySpark has no archives")
def test_path_stays_with_the_switch_off():
    """An executor may have it off, and its driver on."""
    assert started(*ARCHIVES, INTERPRETER, **{SWITCH: "off"})[0].startswith(str(LIBRARY))


def test_workers_have_what_reads_a_queue_before_they_are_forked():
    """Each of them would import it anew. This is how Spark starts the process that forks them."""
    daemon = ["-X", "importtime", "-m", "pyspark.daemon", "pyspark.worker"]
    told = subprocess.run(
        [sys.executable, *daemon],
        env={**os.environ, **WORKER, "PYTHONPATH": os.pathsep.join([INTERPRETER, *sys.path])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    imported = {line.rpartition(b"|")[2].strip() for line in told.stderr.splitlines()}
    # Nothing else of that imports it.
    assert b"yt_exactly_once.spark.source.planning" in imported
