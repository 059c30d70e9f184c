"""Runs the facts over the backends, one after the other, and removes what it made, whatever happens."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from yt_exactly_once import errors
from yt_exactly_once.config import ClusterConfig, check_path
from yt_exactly_once.operations.verify.fact import Fact
from yt_exactly_once.operations.verify.facts import FACTS
from yt_exactly_once.operations.verify.results import Report, Result, Verdict
from yt_exactly_once.operations.verify.stage import Differs, Patience, Stage
from yt_exactly_once.ytsaurus.backends import RPC_BACKEND, check_backend
from yt_exactly_once.ytsaurus.browsing import cluster_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.failures import codes_in

HTTP_BACKEND = "http"
BACKENDS = (HTTP_BACKEND, RPC_BACKEND)
"""What can be checked; `rpc` needs the bindings."""

_PACKAGES = ("yt-exactly-once", "ytsaurus-client", "ytsaurus-rpc-driver", "pyarrow")


def verify_cluster(
    config: ClusterConfig,
    directory: str,
    *,
    backends: Sequence[str] = BACKENDS,
    facts: Sequence[Fact] = FACTS,
    patience: Patience | None = None,
    tell: Callable[[Result], None] = lambda _: None,
    connect: Callable[[ClusterConfig], Connection] = Connection,
) -> Report:
    """Check facts on a live cluster, below a directory of its own.

    It writes about 400 000 rows of one number, and needs the permission to create and mount dynamic
    tables and to register consumers. Ctrl-C ends it; what it made is removed even then. A directory
    that is left behind by SIGKILL expires after an hour.

    Args:
        directory: path of a directory; a new one is made below it and removed at the end.
        backends: `http`, `rpc` or both. `rpc` is left out with a reason if its bindings are missing.
        patience: how long to wait for what may come late.
        tell: gets each result as soon as it is there.
        connect: opens the connection that everything goes through.

    Raises:
        ConfigError: the directory is no path, or a backend is unknown.
        AccessError: a permission is missing.
        ClusterUnavailableError: the cluster does not answer, or no RPC proxy does.
    """
    check_path(directory, "directory")
    unknown = [backend for backend in backends if backend not in BACKENDS]
    if unknown:
        raise errors.ConfigError(
            f"There is no backend {unknown[0]!r}", remedy=f"Use {' or '.join(BACKENDS)}"
        )
    started, began = datetime.now(UTC), time.monotonic()
    results: list[Result] = []
    skipped: dict[str, str] = {}
    leftovers: list[str] = []
    name = ""
    for backend in backends:
        settings = replace(config, client_config={**config.client_config, "backend": backend})
        try:
            check_backend(settings.client_config)
        except errors.ConfigError as error:
            skipped[backend] = str(error)
            continue
        stage = Stage.below(connect(settings), directory, patience or Patience())
        with _removed(stage, leftovers):
            stage.build()
            name = cluster_of(stage.connection).name
            for fact in facts:
                results.append(_check(fact, stage, backend))
                tell(results[-1])
    return Report(
        proxy=config.proxy,
        cluster=name,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - began,
        versions=_versions(),
        results=results,
        skipped=skipped,
        leftover=" ".join(leftovers),
    )


def _check(fact: Fact, stage: Stage, backend: str) -> Result:
    began = time.monotonic()
    verdict, seen = Verdict.HOLDS, ""
    try:
        seen = fact.check(stage) or ""
    except Differs as difference:
        verdict, seen = Verdict.DIFFERS, str(difference)
    except (errors.AccessError, errors.ClusterUnavailableError) as error:
        verdict, seen = Verdict.NOT_SHOWN, str(error)
    except errors.ExactlyOnceError as error:
        unanswered = isinstance(error, errors.TransientError) and not codes_in(error)
        verdict = Verdict.NOT_SHOWN if unanswered else Verdict.DIFFERS
        seen = f"{type(error).__name__}: {error}"
    except (KeyError, TypeError, ValueError) as error:
        # An answer of another shape than the package reads.
        verdict, seen = Verdict.DIFFERS, f"an answer that cannot be read: {error!r}"
    return Result(fact, backend, verdict, seen, time.monotonic() - began)


@contextmanager
def _removed(stage: Stage, leftovers: list[str]) -> Iterator[None]:
    """Remove what the stage made. An interrupt during the removal waits for its end."""
    try:
        yield
    finally:
        with _uninterrupted():
            try:
                stage.remove()
            except errors.ExactlyOnceError as error:
                leftovers.append(
                    f"{stage.directory} could not be removed: {error} Run: yt remove -rf "
                    f"{stage.directory}. It expires by itself after an hour."
                )


@contextmanager
def _uninterrupted() -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:
        # Not the main thread: no interrupt arrives here.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
