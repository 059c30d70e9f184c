"""What the Python processes of Spark run first, in interpreters with the path that Spark gives them."""

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from yt_exactly_once.spark import startup

FOUND = "import importlib.util; print(importlib.util.find_spec('pyspark').origin)"
INSTALLED = Path(find_spec("pyspark").origin)


def package(folder):
    """A PySpark in a folder."""
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    return folder / "__init__.py"


def zipped(home):
    """The zip file of the PySpark, or of the distribution of Spark, in a folder."""
    (home / "python" / "lib").mkdir(parents=True)
    path = home / "python" / "lib" / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pyspark/__init__.py", "")
    return path


def run(code, *path):
    """Run code with these folders in front of the path, and return what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.strip()


def test_installed_pyspark_is_taken_from_its_package():
    """The real one: a new layout of PySpark would be noticed here."""
    spark = INSTALLED.parent / "python" / "lib" / "pyspark.zip"
    assert spark.exists()
    assert run(FOUND, spark, startup.FOLDER) == str(INSTALLED)
    assert run(FOUND, spark) == f"{spark}/pyspark/__init__.py"


def test_distribution_of_spark_has_its_package_beside_the_zip_file(tmp_path):
    """Another PySpark, which is installed here, must not be taken."""
    spark = zipped(tmp_path)
    beside = package(tmp_path / "python" / "pyspark")
    assert run(FOUND, spark, startup.FOLDER) == str(beside)


def test_zip_file_stays_where_another_pyspark_would_be_taken(tmp_path):
    """The package around the zip file is behind another one on the path, or not on it."""
    spark = zipped(tmp_path / "theirs" / "pyspark")
    (tmp_path / "theirs" / "pyspark" / "__init__.py").touch()
    package(tmp_path / "other" / "pyspark")
    zipped_package = f"{spark}/pyspark/__init__.py"
    assert run(FOUND, spark, startup.FOLDER) == zipped_package
    assert (
        run(FOUND, spark, startup.FOLDER, tmp_path / "other", tmp_path / "theirs") == zipped_package
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_module_that_is_hidden_runs_too(tmp_path, is_there):
    """A machine may have a `sitecustomize` of its own; there is one at most."""
    if is_there:
        (tmp_path / "sitecustomize.py").write_text("KNOWN = 'theirs'")
    code = "import sitecustomize; print(getattr(sitecustomize, 'KNOWN', 'ours'))"
    assert run(code, startup.FOLDER, tmp_path) == ("theirs" if is_there else "ours")
