"""Where drivers run: SPYT in a virtual environment of its own, ours in the one that runs this program."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SPYT = "2.11.2"
PYSPARK = "3.5.9"
"""The last of 3.5; SPYT's transactional streaming was written for it first."""

NEWEST_PYSPARK = "4.2.1"
"""The newest that SPYT's wheel admits."""

SPYT_ALPHA = "2.12.0a1"
"""The newest on PyPI, and no release yet."""

DEFAULT_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
DEFAULT_CACHE = DEFAULT_CACHE / "yt-exactly-once" / "spyt"

DRIVER = "ytsaurus-rpc-driver"
"""What our sink needs to speak RPC; there are no wheels for every machine."""

_ROOT = Path(__file__).parents[2]
_COMPLETE = "complete"
"""File in an environment that is as it must be."""


@dataclass(frozen=True)
class Environment:
    """An interpreter, what it is started with, and what is in it.

    Attributes:
        python: the interpreter.
        variables: its environment.
        versions: of the packages that count.
    """

    python: Path
    variables: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)


def has_rpc_driver() -> bool:
    """Tell whether our sink can speak RPC here."""
    return find_spec("yt_driver_rpc_bindings") is not None


def ours(cache: Path, pyspark: str = "") -> Environment:
    """Return the environment that runs this program, or one with another PySpark, which is made once.

    Raises:
        CalledProcessError: the packages cannot be had.
    """
    variables = _inherited()
    variables["PYTHONPATH"] = str(_ROOT)
    if pyspark and pyspark != version("pyspark"):
        python = _made(cache / _name("ours", pyspark), [f"pyspark=={pyspark}", str(_ROOT)])
        return Environment(python, variables, {"pyspark": pyspark})
    named = ("yt-exactly-once", "pyspark", "ytsaurus-client", DRIVER)
    versions = {name: version(name) for name in named if name != DRIVER or has_rpc_driver()}
    return Environment(Path(sys.executable), variables, versions)


def is_installed(cache: Path, spyt: str = SPYT, pyspark: str = PYSPARK) -> bool:
    """Tell whether SPYT's environment has been made."""
    return (cache / _name(f"spyt-{spyt}", pyspark) / _COMPLETE).exists()


def spyt(cache: Path, spyt: str = SPYT, pyspark: str = PYSPARK) -> Environment:
    """Return SPYT's environment; the first time it is made, which downloads about 360 MB.

    The wheel is installed without its dependencies: streaming needs its jars and its Spark settings,
    and no cluster service. `SPARK_CONF_DIR` is what its own `spyt-env` sets.

    Raises:
        CalledProcessError: the packages cannot be had.
    """
    folder = cache / _name(f"spyt-{spyt}", pyspark)
    # PySpark 3.5 imports distutils, which Python has dropped; setuptools brings it back.
    python = _made(
        folder, [f"pyspark=={pyspark}", "setuptools<81"], ["--no-deps", f"ytsaurus-spyt=={spyt}"]
    )
    (package,) = folder.glob("lib/python*/site-packages/spyt")
    variables = _inherited()
    variables["SPARK_CONF_DIR"] = str(package / "conf")
    return Environment(python, variables, {"ytsaurus-spyt": spyt, "pyspark": pyspark})


def _name(what: str, pyspark: str) -> str:
    return f"{what}-pyspark-{pyspark}-python-{sys.version_info.minor}"


def _made(folder: Path, *packages: list[str]) -> Path:
    """Return the interpreter of a virtual environment, which is made the first time."""
    python, complete = folder / "bin" / "python", folder / _COMPLETE
    if not complete.exists():
        print(f"Installing into {folder}", flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        for wanted in packages:
            _run(str(python), "-m", "pip", "install", "-q", *wanted)
        complete.touch()
    return python


def _inherited() -> dict[str, str]:
    """Return the variables of this process that do not choose another Spark or Python."""
    chosen = ("SPARK_", "PYSPARK_", "PYTHON", "YT_", "SPYT_")
    return {name: value for name, value in os.environ.items() if not name.startswith(chosen)}


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env=_inherited())
