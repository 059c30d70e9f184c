"""JARs of a Kafka broker and of Spark's connector, from Maven Central into a cache folder.

Without Maven, or without a way to the registry, the tests are skipped and say so; `.ci/run` sets
`REQUIRE_KAFKA`, which makes that a failure.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

POM = Path(__file__).parent / "pom.xml"
_DOWNLOAD_SECONDS = 600


def give_up(reason: str) -> None:
    """Skip the test, or fail it where Kafka is required."""
    if os.environ.get("REQUIRE_KAFKA"):
        pytest.fail(f"Kafka is required here: {reason}")
    pytest.skip(f"Kafka is not tested: {reason}")


def jars_of(profile: str) -> Path:
    """Return the folder with the JARs of a profile of the POM, downloaded once per machine."""
    if shutil.which("mvn") is None:
        give_up("mvn is not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "yt-exactly-once"
    name = f"kafka-{profile}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    if not (cache / name).exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        command = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(POM),
            f"-P{profile}",
            "dependency:copy-dependencies",
        ]
        command += [f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
        )
        if done.returncode:
            shutil.rmtree(fresh)
            give_up(f"Maven could not download it: {done.stdout[-500:]}")
        try:
            fresh.rename(cache / name)
        except OSError:
            shutil.rmtree(fresh)  # another process was faster
    return cache / name
