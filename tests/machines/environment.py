"""A packed environment: a plain tar of a virtual environment with what a task needs, and no Spark."""

import shutil
import sys
import tarfile
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import yt_exactly_once

ENVIRONMENT = "environment"
"""Name of the folder that Spark unpacks it in, and of the one that it is made of."""

_PACKAGE = "yt-exactly-once"
_OF_SPARK = frozenset({"pyspark", "py4j"})
"""Spark's own Python comes with each executor."""


def pack(folder: Path) -> Path:
    """Make an environment in a folder, without the network, and return it as an archive beside it."""
    environment = folder / ENVIRONMENT
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environment / "lib" / version / "site-packages"
    source = Path(yt_exactly_once.__file__).parent
    shutil.copytree(source, packages / source.name)
    for name in _needed(_PACKAGE, set()) - {_PACKAGE}:
        _copy(metadata.distribution(name), packages)
    archive = folder / f"{ENVIRONMENT}.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        # Spark unpacks into a folder that has the name after the #.
        tar.add(environment, ".")
    return archive


def _needed(name: str, found: set[str]) -> set[str]:
    """Add a distribution to those that are found, and what it needs without extras."""
    if name not in found | _OF_SPARK:
        found.add(name)
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                _needed(requirement.name, found)
    return found


def _copy(distribution: metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." in file.parts or not source.exists():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        # With its time: Python compiles everything again otherwise, and Spark waits for it ten seconds.
        shutil.copy2(source, target)
