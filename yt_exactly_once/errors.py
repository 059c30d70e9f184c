"""The whole exception tree: every error of the package derives from `ExactlyOnceError`.

Errors are grouped by what the caller can do: fix the input, wait for a retry, or decide as a person.
A message says what happened, where, and what to do next. Ids are attributes; no row value, token or
argument dump is ever part of a message. Every class survives pickling, since Spark moves errors
between processes. Whoever may create a node chooses its name, and messages have names: `visible` shows
what they must not do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

_SECRET = re.compile(r"(webhdfs://[^/\s]+/|/webhdfs/v1/)[^/\s?]+|(://)[^/\s@]+(?=@)")


def without_secrets(text: str) -> str:
    """Return a text without the secrets of gateways, and the passwords, in the URLs that it may name."""
    return _SECRET.sub(r"\1\2...", text)


COMMANDING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What ends a line, commands a terminal, turns the order of a text around, or is no text."""

_SIGNS, _FIRST_SIGN = 0x20, 0x2400


def visible(text: str) -> str:
    """Return a text as one line that commands nothing: each such character is replaced by a sign.

    Everything that people read goes through it: errors, lines of the log, lines and tables of commands.
    """

    def sign(found: re.Match[str]) -> str:
        code = ord(found[0])
        return chr(_FIRST_SIGN + code) if code < _SIGNS else "\ufffd"

    return COMMANDING.sub(sign, text)


class ExactlyOnceError(Exception):
    """Root of the tree.

    Args:
        what: what happened, without the closing dot.
        remedy: what to do next, without the closing dot. It may be empty.
        details: lines below the message.
        **where: ids that place the error: `query`, `batch`, `target`, `path`, `proxy`, ...

    Attributes:
        what: as given.
        remedy: as given.
        details: as given.
        where: as given, without empty values.
        remote: what the client raised, if that led to this error and the error has left a sink. It does not
            survive pickling.
        trace: where it was raised and from what, as text, if it has left a sink; for a bug report. It does
            not survive pickling.
    """

    remote: BaseException | None = None
    trace: str = ""

    def __init__(
        self, what: str, *, remedy: str = "", details: Sequence[str] = (), **where: Any
    ) -> None:
        self.what = without_secrets(what)
        self.remedy = remedy
        self.details = tuple(map(without_secrets, details))
        self.where = {
            name: without_secrets(value) if isinstance(value, str) else value
            for name, value in where.items()
            if value is not None and value != ""
        }
        super().__init__(self.what)

    @property
    def placed(self) -> str:
        """What happened and where, without the remedy, as one line."""
        where = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return visible(f"{self.what} [{where}]" if where else self.what)

    def extended(self, more: str = "", *, remedy: str = "", **where: Any) -> Self:
        """Return the same error with more of what happened, another remedy, and further ids.

        The error itself stays as it was raised. Raise the new one `from` it.
        """
        known = type(self)(
            self.what + more,
            remedy=remedy or self.remedy,
            details=self.details,
            **{**where, **self.where},
        )
        known.remote = self.remote
        return known

    def __str__(self) -> str:
        """Render message, place and remedy as one line, and the details below."""
        line = f"{self.placed}. {self.remedy}." if self.remedy else f"{self.placed}."
        return "\n  ".join(map(visible, (line, *self.details)))

    def to_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        where = {
            name: value if isinstance(value, str | int | float) else str(value)
            for name, value in self.where.items()
        }
        written = {"what": self.what, "where": where, "remedy": self.remedy}
        return {"error": type(self).__name__, **written, "details": list(self.details)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by keyword, which the default protocol cannot do."""
        more: dict[str, Any] = {"details": self.details, **self.where}
        return partial(type(self), self.what, remedy=self.remedy, **more), ()


# Fix the input or the set-up.


class ConfigError(ExactlyOnceError):
    """An option is missing, unknown, impossible, or contradicts another one."""


class RepeatedCallError(ConfigError):
    """A sink was called a second time for one batch and target. The rows of that call are not written."""


class TasksRefusedError(ConfigError):
    """Tasks may not send the rows of a DataFrame into one transaction: they could mix, or come twice."""


class JavaNotFoundError(ConfigError):
    """There is no Java runtime for Spark: 17 or newer."""


class ProxyNotFoundError(ConfigError):
    """The address leads to no proxy: its name does not resolve, or another server answers there."""


class AccessError(ConfigError):
    """The cluster refused the token or a permission."""


class SchemaMismatchError(ExactlyOnceError):
    """The columns of the DataFrame do not fit those of the table. No row has been sent."""


class EncodingError(ExactlyOnceError):
    """A value does not fit the type of its column. The message names column and row, not the value."""


class NotOneToOneError(EncodingError):
    """In idempotent mode, two rows of a batch have one number, or a replay has other rows."""


class DuplicateKeyError(EncodingError):
    """Two rows of a batch have one key, in idempotent mode or with `unique_keys=True`."""


class AmbiguousOrderError(EncodingError):
    """Several rows of a batch have one key, and which of them is the newest is not known."""


class TableError(ExactlyOnceError):
    """A table is missing, or it is not what the query needs."""


class TableNotFoundError(TableError):
    """There is no table at the path."""


class TableNotDynamicError(TableError):
    """The table is static."""


class ReplicatedTableError(TableError):
    """The table is replicated, or a replica. Only tables of one cluster are supported."""


class TableNotMountedError(TableError):
    """Some tablets of the table are not mounted."""


class NotAQueueError(TableError):
    """The path is not an ordered dynamic table."""


class ConsumerNotFoundError(TableError):
    """There is no queue consumer at the path."""


class ConsumerNotRegisteredError(TableError):
    """The consumer is not registered for the queue."""


class PathExistsError(ExactlyOnceError):
    """Something is at the path already, and must not be replaced."""


class RequestRefusedError(ExactlyOnceError):
    """The cluster refused a request, and a retry would not help."""


class CheckpointError(ExactlyOnceError):
    """The checkpoint of the query cannot be read or written."""


class BatchTooLargeError(ExactlyOnceError):
    """The batch has more rows than one transaction may write to the target."""


class DataLossError(ExactlyOnceError):
    """Rows that the query must read are gone: they were trimmed, or the queue was recreated."""


class UnprovableError(ExactlyOnceError):
    """An audit can prove nothing about the target in the way that was asked for."""


# Retried: the attempt had no effect.


class TransientError(ExactlyOnceError):
    """The attempt failed, and a new one may succeed."""


class ConflictError(TransientError):
    """Another transaction changed or locked a row that this one needs."""


class TransactionTooOldError(ConflictError):
    """The transaction began before rows were written whose conflicts the cluster cannot check any more."""


class ClusterUnavailableError(TransientError):
    """The cluster did not answer, or asked for a later retry."""


class TransactionLostError(TransientError):
    """The transaction ended before its commit: its lease expired or its proxy died."""


class RepeatedTaskError(TransientError):
    """A task ran again and may not write: its first attempt may have written into the same transaction."""


class CommitOutcomeUnknownError(TransientError):
    """The commit was sent, and its outcome is unknown. The ledger resolves it."""


class RetriesExhaustedError(ExactlyOnceError):
    """Every attempt failed. The message lists each cause once, with how often it came."""


# A person decides.


class OffsetConflictError(ExactlyOnceError):
    """The consumer is not at the offset where this query left it. Another client moved it."""


class IncompleteBatchError(ExactlyOnceError):
    """Rows of an earlier batch are missing in the target. Later batches are refused until it is settled."""


class FencedError(ExactlyOnceError):
    """A newer run of the same query owns the ledger row. This run must stop."""


class ProducerFencedError(FencedError):
    """A newer attempt of the same task owns the producer session."""


class ProducerDivergedError(FencedError):
    """A producer session is not at the number where its owner left it, although nobody took it over."""


class NewerFormatError(ExactlyOnceError):
    """A newer version of the package wrote the ledger, a note or an offset, or a newer Spark its log."""


def require_known_format(version: int, newest: int, what: str, **where: Any) -> None:
    """Raise `NewerFormatError` if something was stored in a later format than this version can read.

    What outlives a version of this package carries the version of its format: ledger, notes, offsets. A
    reader takes its own version and every earlier one. What a later one means is unknown, and a guess could
    repeat rows or lose them.

    Args:
        newest: format that this version of the package writes.
        what: was stored, for the message.
        **where: see `ExactlyOnceError`.
    """
    if version > newest:
        raise NewerFormatError(
            f"{what} has format version {version}, and this version of the package knows {newest}",
            remedy="A newer version has written it: run that version again. What a downgrade needs is in "
            "how-to/change.md, section 'Upgrade and downgrade'",
            **where,
        )


class LedgerError(ExactlyOnceError):
    """The ledger cannot be used: its schema is wrong, or an entry is unreadable."""


class LedgerMissingError(LedgerError):
    """The ledger lacks batches that the query has committed: the entry is gone, or an older copy is there."""


class LedgerDivergedError(LedgerError):
    """The ledger and Spark's checkpoint contradict each other."""
