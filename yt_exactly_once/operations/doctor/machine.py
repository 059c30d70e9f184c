"""This machine and the executors of a running driver: versions of Python, Java and packages."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from yt_exactly_once.errors import JavaNotFoundError
from yt_exactly_once.operations.doctor.finding import Finding, note, ok, problem, warning
from yt_exactly_once.spark.executors import unfit_python
from yt_exactly_once.spark.java import require_java

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject

_PACKAGE = "yt-exactly-once"
_DRIVER = "ytsaurus-rpc-driver"


def examine(subject: Subject) -> Iterator[Finding]:
    """Compare what is installed with what is needed."""
    yield ok("python", f"Python {platform.python_version()}")
    yield _java()
    yield from _packages()
    if subject.cluster.client_config.get("backend") == "rpc":
        yield _driver()
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


def _packages() -> Iterator[Finding]:
    try:
        needed = [Requirement(text) for text in requires(_PACKAGE) or ()]
    except PackageNotFoundError:
        yield note(
            "packages", "The package runs from its sources, so its requirements are not known"
        )
        return
    fitting = []
    for requirement in needed:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = _package(requirement)
            if isinstance(found, Finding):
                yield found
            else:
                fitting.append(found)
    if fitting:
        yield ok("packages", ", ".join(fitting))


def _package(requirement: Requirement) -> Finding | str:
    """Return what is wrong with a package, or its name and version."""
    check = f"package {requirement.name}"
    repair = f"pip install '{requirement.name}{requirement.specifier}'"
    why = "The driver and every executor need it"
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return problem(check, f"{requirement.name} is not installed", why, repair)
    if not requirement.specifier.contains(found, prereleases=True):
        what = f"{requirement.name} is {found}, and the package needs {requirement.specifier}"
        return problem(check, what, why, repair)
    return f"{requirement.name} {found}"


def _driver() -> Finding:
    check = f"package {_DRIVER}"
    try:
        return ok(check, f"{_DRIVER} {version(_DRIVER)}")
    except PackageNotFoundError:
        return problem(
            check,
            f"{_DRIVER} is not installed",
            "The backend rpc needs it on the driver and on every executor",
            f"pip install {_DRIVER}, or leave the backend out to use HTTP",
        )
