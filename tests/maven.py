"""JARs of servers and of Spark's clients for them, from Maven Central into a cache folder.

Without Maven, or without a way to the registry, the tests are skipped and say so; `.ci/run` sets variables
such as `REQUIRE_KAFKA`, which make that a failure.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_DOWNLOAD_SECONDS = 900


def give_up(what: str, reason: str) -> None:
    """Skip the test, or fail it where that is required, such as `KAFKA`."""
    if os.environ.get(f"REQUIRE_{what}"):
        pytest.fail(f"{what} is required here: {reason}")
    pytest.skip(f"{what} is not tested: {reason}")


def jars_of(pom: Path, profile: str, what: str) -> Path:
    """Return the folder with the JARs of a profile of a POM, downloaded once per machine.

    Args:
        what: see `give_up`.
    """
    if shutil.which("mvn") is None:
        give_up(what, "mvn is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yt-exactly-once"
    name = f"{what.lower()}-{profile}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not (cache / name).exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            f"-P{profile}",
            "dependency:copy-dependencies",
        ]
        command += [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
        if done.returncode:
            shutil.rmtree(fresh)
            give_up(what, f"Maven could not download it: {done.stdout[-500:]}")
        try:
            fresh.rename(cache / name)
        except OSError:
            shutil.rmtree(fresh)  # another process was faster
    return cache / name
