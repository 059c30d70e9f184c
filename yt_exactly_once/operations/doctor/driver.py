"""Where the driver runs: this machine with its Python, Java and packages, and Spark's settings that matter.

Settings come from `NAME=VALUE`, `spark-defaults.conf`, or the UI of a running driver. They are read as text:
no Spark is needed.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import re
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from yt_exactly_once.config import (
    DYN_BATCH_SIZE_CONF,
    RESULT_SIZE_CONF,
    SPECULATION_CONF,
    DeliveryMode,
    is_on,
)
from yt_exactly_once.errors import ConfigError, JavaNotFoundError
from yt_exactly_once.operations.doctor.subject import Finding, Subject, note, ok, problem, warning
from yt_exactly_once.spark.compat.failures import unfit_python
from yt_exactly_once.spark.compat.java import require_java
from yt_exactly_once.ytsaurus.browsing import attributes_of

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

_PACKAGE = "yt-exactly-once"
_DRIVER = "ytsaurus-rpc-driver"


RETAINED = "spark.sql.streaming.minBatchesToRetain"

_WANTED = {
    RETAINED: "a number of batches",
    DYN_BATCH_SIZE_CONF: "a positive number of rows",
    RESULT_SIZE_CONF: "a size such as 2g",
}
_DEFAULTS = {RETAINED: "100", RESULT_SIZE_CONF: "1g", SPECULATION_CONF: "false"}
_FEW_BATCHES = 10
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)i?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def examine_machine(subject: Subject) -> Iterator[Finding]:
    """Compare what is installed with what is needed."""
    yield ok(f"Python {platform.python_version()}", check="python")
    yield _java()
    yield from _packages(subject)
    named = {str(error): error for text in subject.failures if (error := unfit_python(text))}
    for error in named.values():
        why = "Every task fails there, so no batch is written"
        yield problem(error.placed, why, error.remedy, check="executors")


def _java() -> Finding:
    try:
        require_java()
    except JavaNotFoundError as error:
        return warning(
            error.placed,
            "Spark does not start on this machine. If the driver runs elsewhere, that is fine",
            error.remedy,
            check="java",
        )
    return ok("Java is new enough for Spark", check="java")


def _packages(subject: Subject) -> Iterator[Finding]:
    needed = []
    try:
        needed += [Requirement(text) for text in requires(_PACKAGE) or ()]
    except PackageNotFoundError:
        what = "The package runs from its sources, so its requirements are not known"
        yield note(what, check="packages")
    if subject.cluster.client_config.get("backend") == "rpc":
        needed.append(Requirement(_DRIVER))
    fitting = []
    for one in needed:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        has = "is not installed"
        with suppress(PackageNotFoundError):
            found = version(one.name)
            has = f"is {found}, and the package needs {one.specifier}"
            if one.specifier.contains(found, prereleases=True):
                fitting.append(f"{one.name} {found}")
                continue
        yield problem(
            f"{one.name} {has}",
            "The driver and every executor need it",
            f"pip install '{one.name}{one.specifier}'"
            + (", or leave the backend out to use HTTP" if one.name == _DRIVER else ""),
            check=f"package {one.name}",
        )
    if fitting:
        yield ok(", ".join(fitting), check="packages")


def examine_settings(subject: Subject, connection: Connection | None) -> Iterator[Finding]:
    """Look at the settings; with a connection, also compare them with the size of a batch."""
    if not subject.conf_origin:
        yield note(
            "Spark's settings are not known",
            "Some of them decide whether a large batch fits",
            "Pass --conf NAME=VALUE, --spark-defaults FILE, or --spark-ui URL of a running driver",
        )
        return
    known = {name: value.strip() for name, value in {**_DEFAULTS, **subject.conf}.items()}
    malformed = {name for name in known.keys() & _WANTED if _number(known, name) is None}
    for name in sorted(malformed):
        what = f"{name} is {known[name]!r} in {subject.conf_origin}, and not {_WANTED[name]}"
        repair = f"Set {name} to {_WANTED[name]}"
        yield problem(what, "Spark or the sink refuses it", repair, check=name)
    if RETAINED not in malformed:
        kept = f"Spark keeps the log of {known[RETAINED]} batches"
        if int(known[RETAINED]) < _FEW_BATCHES:
            why = "The sink compares the ledger with this log after gaps, and a rewind goes back no further"
            repair = f"--conf {RETAINED}={_DEFAULTS[RETAINED]}, Spark's default"
            yield warning(kept, why, repair, check=RETAINED)
        else:
            yield ok(kept, check=RETAINED)
    if is_on(known[SPECULATION_CONF]) and subject.mode is DeliveryMode.AT_LEAST_ONCE:
        yield warning(
            f"Speculation is on, and the mode is {subject.mode}",
            "Every speculative copy of a task writes its rows again",
            f"--conf {SPECULATION_CONF}=false, or another mode",
            check=SPECULATION_CONF,
        )
    limit = _number(known, RESULT_SIZE_CONF)
    if limit and subject.mode is DeliveryMode.TRANSACTIONAL:
        size = None if connection is None else _batch_bytes(subject, connection)
        yield _result_size(known[RESULT_SIZE_CONF], limit, size)


def _number(known: Mapping[str, str], name: str) -> int | None:
    """Return a setting as Spark reads it; `None` when it is none: a positive number, or a size."""
    if name in (RETAINED, DYN_BATCH_SIZE_CONF):
        return int(known[name]) or None if known[name].isdecimal() else None
    found = _SIZE.fullmatch(known[name])
    if found is None:
        return None
    return int(found[1]) << (10 * _UNITS[found[2].lower()])


def _batch_bytes(subject: Subject, connection: Connection) -> int | None:
    """Estimate the bytes of the largest batch from the queues' statistics."""
    if subject.max_rows_per_partition is None:
        return None
    batch = 0
    for queue in subject.queues:
        names = ["tablet_count", "row_count", "uncompressed_data_size"]
        found = attributes_of(connection, queue.path, names) or {}
        rows = int(found.get("row_count", 0))
        if not rows or "uncompressed_data_size" not in found:
            return None
        row = int(found["uncompressed_data_size"]) / rows
        batch += int(row * subject.max_rows_per_partition) * int(found["tablet_count"])
    return batch or None


def _result_size(text: str, limit: int, size: int | None) -> Finding:
    if size is None or size <= limit:
        return ok(f"{RESULT_SIZE_CONF} is {text}", check=RESULT_SIZE_CONF)
    return warning(
        f"{RESULT_SIZE_CONF} is {text}, and a full batch has about {_shown(size)}, by the average row of the "
        "queues",
        "Spark ends a job that brings more to the driver. The tasks then send the rows, but they cannot if "
        "the query keeps state, shuffles, or writes in another way than rows of one target",
        f"--conf {RESULT_SIZE_CONF}={_shown(2 * size)}, with as much more spark.driver.memory, or a smaller "
        "max_rows_per_partition",
        check=RESULT_SIZE_CONF,
    )


def _shown(size: int) -> str:
    """Return a size in Spark's notation, rounded up."""
    return f"{-(-size // (1 << 20))}m"


_PATIENCE_SECONDS = 30
"""The first request to a driver starts its API, which takes seconds."""


def from_texts(texts: Iterable[str]) -> dict[str, str]:
    """Read settings as spark-submit takes them; raise `ConfigError` if one is not `NAME=VALUE`."""
    conf = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name.strip():
            raise ConfigError(f"{text!r} is not NAME=VALUE", remedy="Write it as for spark-submit")
        conf[name.strip()] = value
    return conf


def default_file() -> Path | None:
    """Return the `spark-defaults.conf` that Spark would read on this machine, if there is one."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    path = Path(folder, "spark-defaults.conf") if folder else None
    return path if path is not None and path.is_file() else None


def from_file(path: Path) -> dict[str, str]:
    """Read names and values of a `spark-defaults.conf`; raise `ConfigError` if it cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Spark's settings cannot be read: {error}", remedy="Check the path", path=path
        ) from error
    conf = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            name, _, value = stripped.replace("=", " ", 1).replace("\t", " ").partition(" ")
            conf[name] = value.strip()
    return conf


def from_ui(url: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Ask the UI of a running driver for its settings, without secrets, and why stages failed."""
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    base = url.rstrip("/") + "/api/v1/applications"
    try:
        (first, *_) = _get(base)
        properties = _get(f"{base}/{first['id']}/environment")["sparkProperties"]
        failed = _get(f"{base}/{first['id']}/stages?status=failed")
        why = tuple(str(stage.get("failureReason", "")) for stage in failed)
        return {str(name): str(value) for name, value in properties}, why
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException) as error:
        raise ConfigError(
            f"No Spark UI answers there ({error})",
            remedy="Pass the address that the driver logs at its start, usually http://DRIVER:4040",
            url=url,
        ) from error


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer:  # noqa: S310 - http or https
        return json.load(answer)
