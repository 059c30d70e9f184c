"""The whole exception tree: every error of the package derives from `ExactlyOnceError`.

Errors are grouped by what the caller can do: fix the input, wait for a retry, or decide as a person.
A message says what happened, where, and what to do next. Ids are attributes; no row value, token or
argument dump is ever part of a message. Every class survives pickling, since Spark moves errors
between processes.
"""

from __future__ import annotations

from typing import Any


class ExactlyOnceError(Exception):
    """Root of the tree.

    Args:
        what: what happened, one sentence without the closing dot.
        remedy: what to do next, one sentence without the closing dot; may be empty.
        **where: ids that place the error: `query`, `batch`, `target`, `path`, `proxy`, ...

    Attributes:
        what: as given.
        remedy: as given.
        where: as given, without empty values.
    """

    def __init__(self, what: str, *, remedy: str = "", **where: Any) -> None:
        self.what = what
        self.remedy = remedy
        self.where = {name: value for name, value in where.items() if value is not None}
        super().__init__(what)

    @property
    def placed(self) -> str:
        """What happened and where, without the remedy."""
        place = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return f"{self.what} [{place}]" if place else self.what

    def __str__(self) -> str:
        """Render message, place and remedy."""
        return f"{self.placed}. {self.remedy}." if self.remedy else f"{self.placed}."

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by keyword, which the default protocol cannot do."""
        return _rebuild, (type(self), self.what, self.remedy, self.where)


def _rebuild(
    kind: type[ExactlyOnceError], what: str, remedy: str, where: dict[str, Any]
) -> ExactlyOnceError:
    return kind(what, remedy=remedy, **where)


# Fix the input or the set-up.


class ConfigError(ExactlyOnceError):
    """An option is missing, unknown, impossible, or contradicts another one."""


class RepeatedCallError(ConfigError):
    """A sink was called again for a batch and target; the rows of that call are not written."""


class JavaNotFoundError(ConfigError):
    """No Java runtime that Spark can start with (17 or newer)."""


class AccessError(ConfigError):
    """The cluster refused the token or a permission."""


class SchemaMismatchError(ExactlyOnceError):
    """The frame's columns do not fit the table's; raised before the first row is sent."""


class EncodingError(ExactlyOnceError):
    """A value cannot be written as the column's type; names column and coordinates, not the value."""


class NotOneToOneError(EncodingError):
    """Idempotent mode found two rows with one key or number in a batch, or a replay with other rows."""


class AmbiguousOrderError(EncodingError):
    """Rows of one key are in several Spark partitions, so that none of them is the last one."""


class TableError(ExactlyOnceError):
    """A table cannot serve the purpose it was given."""


class TableNotFoundError(TableError):
    """Nothing, or no table, at the path."""


class TableNotDynamicError(TableError):
    """The table is static."""


class TableNotMountedError(TableError):
    """The table has tablets that are not mounted."""


class NotAQueueError(TableError):
    """The path is not an ordered dynamic table."""


class ConsumerNotFoundError(TableError):
    """Nothing at the consumer path, or a table that is not a queue consumer."""


class ConsumerNotRegisteredError(TableError):
    """The consumer is not registered for the queue."""


class RequestRefusedError(ExactlyOnceError):
    """The cluster refused a request for a reason that repeating it will not change."""


class BatchTooLargeError(ExactlyOnceError):
    """The batch has more rows than one transaction of the target may carry."""


class DataLossError(ExactlyOnceError):
    """Rows that must be read are gone: trimmed, or the queue was recreated."""


# Retried: the attempt had no effect.


class TransientError(ExactlyOnceError):
    """The attempt had no effect and a new one may succeed."""


class ConflictError(TransientError):
    """Another transaction changed a row this one needed."""


class ClusterUnavailableError(TransientError):
    """The cluster could not be reached or asked to come back later."""


class TransactionLostError(TransientError):
    """The transaction ended before its commit was sent: lease expired or its proxy died."""


class CommitOutcomeUnknownError(TransientError):
    """The commit was sent and no answer says what became of it; the ledger knows."""


class RetriesExhaustedError(ExactlyOnceError):
    """Every attempt failed; the message lists each attempt's error, time and back-off."""


# A person decides.


class OffsetConflictError(ExactlyOnceError):
    """The consumer is not where this query left it: somebody else moved it."""


class IncompleteBatchError(ExactlyOnceError):
    """Rows of an earlier batch are missing in the target, and later batches must not hide that."""


class FencedError(ExactlyOnceError):
    """A newer run of the same query owns the ledger; this one must stop."""


class ProducerFencedError(FencedError):
    """A newer attempt of the same task owns the producer session."""


class ProducerDivergedError(FencedError):
    """A producer session is not where its owner left it, though nobody took it over."""


class LedgerError(ExactlyOnceError):
    """The ledger cannot be used: wrong schema, unreadable entry."""


class LedgerMissingError(LedgerError):
    """The ledger has no entry of a query that has committed batches before."""


class LedgerDivergedError(LedgerError):
    """The ledger and Spark's checkpoint tell different stories."""
