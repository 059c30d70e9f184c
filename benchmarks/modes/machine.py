"""The stamp on every result: when, on which machine, with which versions."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.modes.peers import server_version

_PACKAGES = (
    "yt-exactly-once",
    "pyspark",
    "pyarrow",
    "ytsaurus-client",
    "ytsaurus-yson",
    "deltalake",
    "psycopg",
)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def stamp() -> dict[str, str]:
    """Describe when and where a run begins."""
    found = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(cores()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "java": _java(),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    found["postgresql"] = server_version()
    revision = _revision()
    return found | ({"revision": revision} if revision else {})


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    named = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return named.group(1) if named else platform.processor()


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return "absent"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    return answer.stderr.splitlines()[0] if answer.stderr else "unknown"


def _revision() -> str:
    """Return the commit of the working copy; nothing outside one."""
    if shutil.which("git") is None:
        return ""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return answer.stdout.strip()
