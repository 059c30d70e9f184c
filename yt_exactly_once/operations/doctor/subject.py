"""What the doctor examines, a cluster and what is known of a query, and what it says about one thing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Literal

from yt_exactly_once import config, errors
from yt_exactly_once.codec.path_pattern import PathPattern, beside
from yt_exactly_once.ytsaurus.tombstones import tombstones_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Queue:
    """A queue that the query reads, and its consumer; `None` reads without one."""

    path: str
    consumer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is known of a query. Whatever is not known is not examined.

    Attributes:
        ledger: path of the ledger; by default that of a sink with these targets.
        producer: path of the producer table; by default as above.
        max_rows_per_partition: option of the source.
        rows_per_tablet: `rows_per_tablet_limit` of the sink.
        frame: columns that the sink writes, compared with those of each target; `None` if they are not known.
        conf: Spark's settings, as far as they are known.
        conf_origin: where the settings come from, for messages; empty if none are known.
        failures: why stages of the running driver failed.
        tables: those that the query has written of the targets that are patterns.
        changes: what the rows are to the sink; `None` if they are no changes, or that is not known.
        changed: targets whose deleted keys are kept beside them.
        delete_marker: option of the targets.

    Raises:
        ConfigError: a path or a number is impossible.
    """

    cluster: config.ClusterConfig
    queues: tuple[Queue, ...] = ()
    targets: tuple[str, ...] = ()
    mode: config.DeliveryMode = config.DeliveryMode.TRANSACTIONAL
    ledger: str | None = None
    producer: str | None = None
    dead_letter: str | None = None
    checkpoint: str | None = None
    max_rows_per_partition: int | None = None
    rows_per_tablet: int = config.ROWS_PER_TABLET_LIMIT
    frame: pa.Schema | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    conf_origin: str = ""
    failures: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    changes: config.Changes | None = None
    changed: tuple[str, ...] = ()
    delete_marker: str | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        named = [("queue", queue.path) for queue in self.queues]
        named += [("target", target) for target in self.targets]
        given = [("consumer", queue.consumer) for queue in self.queues]
        given += [(name, getattr(self, name)) for name in ("ledger", "producer", "dead_letter")]
        named += [(name, path) for name, path in given if path is not None]
        for name, path in named:
            config.check_path(path, name)
        config.check_positive(self.rows_per_tablet, "rows_per_tablet")
        if self.max_rows_per_partition is not None:
            config.check_positive(self.max_rows_per_partition, "max_rows_per_partition")

    @property
    def written(self) -> tuple[str, ...]:
        """The tables that the query writes: of patterns those that it has written."""
        fixed = [target for target in self.targets if PathPattern.of(target) is None]
        return (*fixed, *self.tables)

    def path_of(self, name: Literal["ledger", "producer"]) -> str | None:
        """Return where a table of the sink is or will be; `None` without targets."""
        default = beside(self.targets, name) if self.targets else None
        return getattr(self, name) or default

    @property
    def kept(self) -> dict[str, str]:
        """The paths of the tables that the sink keeps, by what they are."""
        has_sessions = self.mode is config.DeliveryMode.IDEMPOTENT
        found = {
            "ledger": self.path_of("ledger"),
            "producer table": self.path_of("producer") if has_sessions else None,
            "dead-letter table": self.dead_letter,
        }
        return {name: path for name, path in found.items() if path is not None}

    @property
    def tombstones(self) -> tuple[str, ...]:
        """The paths of the tables of tombstones."""
        return tuple(map(tombstones_of, self.changed))

    @property
    def claims(self) -> str | None:
        """The path of the table of claims; `None` without targets, or in a mode that has none."""
        ledger = self.path_of("ledger")
        has_claims = self.mode is config.DeliveryMode.TRANSACTIONAL and ledger is not None
        return config.claims_beside(ledger) if has_claims and ledger else None


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    """As it should be."""

    NOTE = "note"
    """Worth knowing."""

    WARNING = "warning"
    """A query runs, but it may fail or be slow under conditions that the finding names."""

    PROBLEM = "problem"
    """A query does not run, or does not keep its promise."""

    UNKNOWN = "unknown"
    """Could not be examined."""


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        check: short and stable name of what was examined, see `about`.
        what: what was found, where, with the path or address.
        why: why it matters; empty if all is well.
        repair: the command or setting that repairs it; empty if all is well.
        details: lines below.
    """

    check: str = field(default="", kw_only=True)
    what: str
    why: str = ""
    repair: str = ""
    level: Level = Level.OK
    details: tuple[str, ...] = field(default=(), kw_only=True)


ok, note, warning, problem, unknown = (partial(Finding, level=level) for level in Level)
"""A finding of each level."""


def refused(error: errors.ExactlyOnceError, why: str, check: str = "") -> Finding:
    """Say that a query would meet this error."""
    repair = error.remedy.removeprefix("Run: ")
    return problem(error.placed, why, repair, check=check, details=error.details)


_OF_TABLES = (errors.LedgerError, errors.SchemaMismatchError, errors.TableError)


def about(check: str, findings: Iterable[Finding], why: str = "") -> Iterator[Finding]:
    """Yield the findings of a check, those without a name of their own by that of the check.

    An error ends them, and is a finding, so that the other checks are made too. If a query would meet what is
    wrong with the table that is examined, `why` says what that means.
    """
    try:
        for finding in findings:
            yield replace(finding, check=finding.check or check)
    except (errors.AccessError, errors.NewerFormatError) as error:
        yield refused(error, "The query would be refused in the same way", check)
    except errors.ExactlyOnceError as error:
        if why and isinstance(error, _OF_TABLES):
            yield refused(error, why, check)
        else:
            yield unknown(error.placed, "It could not be examined", error.remedy, check=check)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which gets an s unless there is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
