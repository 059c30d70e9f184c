"""The stamp on every result: when, on which machine, with which versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = (
    "yt-exactly-once",
    "pyspark",
    "pyarrow",
    "ytsaurus-client",
    "ytsaurus-yson",
    "deltalake",
    "psycopg",
)


def stamp() -> dict[str, str]:
    """Describe when and where this run happens."""
    found = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "java": _java(),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
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
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return answer.stderr.splitlines()[0] if answer.stderr else "absent"


def _revision() -> str:
    """Return the commit of the working copy; nothing outside one."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return answer.stdout.strip()
