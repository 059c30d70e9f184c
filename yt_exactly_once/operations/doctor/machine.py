"""This machine and the executors of a running driver: versions of Python, Java and packages."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from yt_exactly_once.errors import JavaNotFoundError
from yt_exactly_once.operations.doctor.subject import Finding, Subject, note, ok, problem, warning
from yt_exactly_once.spark.executors import unfit_python
from yt_exactly_once.spark.java import require_java

_PACKAGE = "yt-exactly-once"
_DRIVER = "ytsaurus-rpc-driver"


def examine(subject: Subject) -> Iterator[Finding]:
    """Compare what is installed with what is needed."""
    yield ok("python", f"Python {platform.python_version()}")
    yield _java()
    yield from _packages(subject)
    named = {str(error): error for text in subject.failures if (error := unfit_python(text))}
    for error in named.values():
        why = "Every task fails there, so no batch is written"
        yield problem("executors", error.placed, why, error.remedy)


def _java() -> Finding:
    try:
        require_java()
    except JavaNotFoundError as error:
        return warning(
            "java",
            error.placed,
            "Spark does not start on this machine. If the driver runs elsewhere, that is fine",
            error.remedy,
        )
    return ok("java", "Java is new enough for Spark")


def _packages(subject: Subject) -> Iterator[Finding]:
    needed = []
    try:
        needed += [Requirement(text) for text in requires(_PACKAGE) or ()]
    except PackageNotFoundError:
        what = "The package runs from its sources, so its requirements are not known"
        yield note("packages", what)
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
            f"package {one.name}",
            f"{one.name} {has}",
            "The driver and every executor need it",
            f"pip install '{one.name}{one.specifier}'"
            + (", or leave the backend out to use HTTP" if one.name == _DRIVER else ""),
        )
    if fitting:
        yield ok("packages", ", ".join(fitting))
