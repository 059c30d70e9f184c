"""Runs the facts over the backends, removes what it made, whatever happens, and says what was found.

What was found is data, JSON, and Markdown for a ticket.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import distributions
from typing import Any

from yt_exactly_once import errors
from yt_exactly_once.config import BACKEND, ClusterConfig, check_path
from yt_exactly_once.operations.verify.facts import FACTS
from yt_exactly_once.operations.verify.stage import FEATURES, Differs, Fact, Patience, Stage
from yt_exactly_once.ytsaurus.backends import check_backend
from yt_exactly_once.ytsaurus.browsing import cluster_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.failures import codes_in

_CANNOT_SHOW = (
    "A lost answer, a killed proxy and a lease that ends during a commit cannot be provoked on a cluster "
    "that is not one's own. The embedded cluster shows them."
)


class Verdict(StrEnum):
    """What a check says about a fact."""

    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Result:
    """One fact over one backend, and what the cluster did, or what is worth telling besides."""

    fact: Fact
    backend: str
    verdict: Verdict
    seen: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        fact = self.fact
        return {
            **{name: getattr(fact, name) for name in ("name", "area", "checked")},
            "parts": fact.features,
            "source": fact.source,
            "meaning_if_different": fact.meaning,
            "backend": self.backend,
            "verdict": self.verdict.value,
            "seen": self.seen,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """Return it for people: what was checked and seen, and what it means unless it holds."""
        fact = self.fact
        seen = f" Seen: {self.seen}".replace("\n", " ") if self.seen else ""
        head = f"- {self.verdict.value} over {self.backend}: `{fact.name}`. {fact.checked}{seen}"
        if self.verdict is Verdict.HOLDS:
            return [head]
        return [
            head,
            f"  - What it means: {fact.meaning}",
            f"  - Depends on it: {', '.join(fact.features)}",
            f"  - Where YTsaurus decides it: {fact.source}",
        ]


@dataclass(frozen=True)
class Report:
    """One run.

    Attributes:
        started: when, UTC, ISO 8601.
        versions: of the packages that are installed.
        skipped: backends that were not checked, each with the reason.
        leftover: what could not be removed, and how to; empty when all is removed.
    """

    proxy: str
    cluster: str
    started: str
    seconds: float
    versions: Mapping[str, str]
    results: Sequence[Result]
    skipped: Mapping[str, str]
    leftover: str = ""

    def of(self, verdict: Verdict) -> list[Result]:
        """Return the results with a verdict."""
        return [result for result in self.results if result.verdict is verdict]

    @property
    def holds(self) -> bool:
        """Whether nothing differs and everything that matters was shown."""
        return {result.verdict for result in self.results} == {Verdict.HOLDS}

    @property
    def affected(self) -> dict[str, list[str]]:
        """Features of the package that something different matters to, with the names of the facts."""
        differs = [result.fact for result in self.of(Verdict.DIFFERS)]
        found = {
            feature: {fact.name for fact in differs if feature in fact.features}
            for feature in FEATURES
        }
        return {feature: sorted(names) for feature, names in found.items() if names}

    def to_json(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        names = ("proxy", "cluster", "started", "versions", "holds", "affected", "leftover")
        return {
            **{name: getattr(self, name) for name in names},
            "seconds": round(self.seconds, 1),
            "skipped_backends": self.skipped,
            "results": [result.to_json() for result in self.results],
            "cannot_be_shown": _CANNOT_SHOW,
        }

    def summary(self) -> list[str]:
        """Return the outcome in a few lines."""
        counts = Counter(result.verdict for result in self.results)
        verdicts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
        lines = [f"{', '.join(verdicts)}, in {self.seconds:.0f} s"]
        lines += [f"Affected: {feature} by {', '.join(n)}" for feature, n in self.affected.items()]
        lines += [f"Not checked over {name}: {reason}" for name, reason in self.skipped.items()]
        if self.leftover:
            lines.append(self.leftover)
        return lines

    def to_markdown(self) -> str:
        """Return it as text to attach to a ticket: the outcome, then every fact, those that hold last."""
        lines = [
            f"# verify-cluster: {self.cluster or self.proxy}",
            "",
            f"- Proxy: {self.proxy}",
            f"- Started: {self.started}",
            *(f"- {name}: {version}" for name, version in self.versions.items()),
            *(f"- {line}" for line in self.summary()),
            "",
        ]
        for verdict in (Verdict.DIFFERS, Verdict.NOT_SHOWN, Verdict.HOLDS):
            lines += [line for result in self.of(verdict) for line in result.lines()]
        return "\n".join([*lines, "", _CANNOT_SHOW, ""])


_PACKAGES = ("yt-exactly-once", "ytsaurus-client", "ytsaurus-rpc-driver", "pyarrow")


def verify_cluster(
    config: ClusterConfig,
    directory: str,
    *,
    backends: Iterable[str] = BACKEND.values,
    facts: Sequence[Fact] = FACTS,
    patience: Patience | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
    connect: Callable[[ClusterConfig], Connection] = Connection,
) -> Report:
    """Check facts on a live cluster, below a directory of its own.

    It writes about 400 000 rows of one number, and needs the permission to create and mount dynamic
    tables and to register consumers. Ctrl-C ends it; what it made is removed even then. A directory
    that is left behind by SIGKILL expires after an hour.

    Args:
        directory: path of a directory; a new one is made below it and removed at the end.
        backends: `http`, `rpc` or both. What cannot be used is left out with a reason.
        patience: how long to wait for what may come late.
        on_result: gets each result as soon as it is there.
    """
    check_path(directory, "directory")
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
        folder = f"{directory}/verify-cluster-{uuid.uuid4().hex[:12]}"
        stage = Stage(connect(settings), folder, patience or Patience())
        with _removed(stage, leftovers):
            stage.build()
            name = cluster_of(stage.connection).name
            for fact in facts:
                results.append(_check(fact, stage, backend))
                on_result(results[-1])
    return Report(
        proxy=config.proxy,
        cluster=name,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - began,
        versions={one.name: one.version for one in distributions() if one.name in _PACKAGES},
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
    is_main = threading.current_thread() is threading.main_thread()
    try:
        yield
    finally:
        # No interrupt arrives in another thread.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
        try:
            stage.remove()
        except errors.ExactlyOnceError as error:
            leftovers.append(
                f"{stage.directory} could not be removed: {error} Run: yt remove -rf {stage.directory}. It "
                "expires by itself after an hour."
            )
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)
