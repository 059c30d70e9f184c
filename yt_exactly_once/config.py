"""Frozen, checked and picklable configuration: impossible values fail when the object is built.

It reads the two environment variables every YTsaurus tool reads, `YT_PROXY` and `YT_TOKEN`, and
nothing else; it opens no connection and holds no process-wide state.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import Group, Option, documented, read_names

DEFAULT_DYN_BATCH_SIZE = 50_000
"""Rows per insert request; SPYT's `spark.yt.write.dynBatchSize` has the same default."""

ROWS_PER_TABLET_LIMIT = 100_000
"""Default of the server's `max_rows_per_transaction`: rows per tablet and transaction."""

RESULT_SIZE_CONF = "spark.driver.maxResultSize"
SPECULATION_CONF = "spark.speculation"
DYN_BATCH_SIZE_CONF = "spark.yt.write.dynBatchSize"
"""Settings of Spark that decide how a batch is sent; SPYT reads the last one too."""

LEASE = timedelta(seconds=60)
"""Of a transaction: tablet nodes end older ones (`max_transaction_timeout`), whatever a client asks for."""


PROXY = Option(
    Group.WHERE,
    "`host:port` or URL of an HTTP proxy, or of a balancer in front of the proxies.",
    default_text="`YT_PROXY`",
)
TOKEN = Option(Group.WHERE, "OAuth token. It is never shown.", default_text="`YT_TOKEN`")
BACKEND = Option(
    Group.WHERE,
    "Protocol of the client.",
    values={
        "http": "HTTP proxies.",
        "rpc": "RPC proxies; needs the package `ytsaurus-rpc-driver`.",
    },
    read=lambda _, text: text.lower(),
    default_text="`http`",
)
CLIENT_CONFIG = Option(Group.WHERE, "Laid over the configuration of `ytsaurus-client`.")
"""Options of everything that connects to a cluster."""


class DeliveryMode(StrEnum):
    """What a sink promises. The README compares the modes."""

    AT_LEAST_ONCE = "at-least-once"
    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """How the cluster writes rows into a table. It goes whole from the target to the request.

    Attributes:
        update: keep the columns of a sorted row that the payload does not have.
        aggregate: combine aggregating columns with what is there.
    """

    update: bool = False
    aggregate: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """Those of `insert_rows` by their names there; those that are off are left to the cluster."""
        return {name: value for name, value in vars(self).items() if value}


PLAIN_WRITE = WriteOptions()
"""A row replaces the one with its key, or is added."""


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A string that shows its value only on request."""

    _value: str

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """How to reach a cluster.

    Attributes:
        proxy: `host[:port]` or URL of an HTTP proxy, or of a balancer in front of the proxies.
        token: OAuth token. `None` sends no token.
        request_timeout: limit of one light request, including its retries.
        heavy_request_timeout: limit of one request that carries rows.
        client_config: settings of `ytsaurus-client` that replace its defaults, as nested mappings.
    """

    proxy: str
    token: Secret | None = None
    request_timeout: timedelta = timedelta(seconds=20)
    heavy_request_timeout: timedelta = timedelta(seconds=60)
    client_config: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        """Check every value."""
        if not self.proxy.strip():
            raise ConfigError("The proxy address is empty", remedy=_PROXY_REMEDY)
        try:
            _ = urlsplit(self.proxy if "//" in self.proxy else f"//{self.proxy}").port
        except ValueError as error:
            raise ConfigError(
                f"The proxy address is none: {error}", remedy=_PROXY_REMEDY, proxy=self.proxy
            ) from error
        for name in ("request_timeout", "heavy_request_timeout"):
            if require_duration(getattr(self, name), name) <= timedelta(0):
                raise ConfigError(f"{name} must be positive", remedy="Pass a longer duration")

    @classmethod
    def resolve(
        cls, proxy: str | None = None, token: str | Secret | None = None, **options: Any
    ) -> Self:
        """Build from arguments, falling back to `YT_PROXY` and `YT_TOKEN`.

        Raises:
            ConfigError: no proxy was given and `YT_PROXY` is not set.
        """
        proxy = proxy or os.environ.get("YT_PROXY")
        if not proxy:
            raise ConfigError("No YTsaurus proxy is configured", remedy=_PROXY_REMEDY)
        token = token or os.environ.get("YT_TOKEN") or None
        secret = Secret(token) if isinstance(token, str) else token
        return cls(proxy=proxy, token=secret, **options)


_PROXY_REMEDY = "Pass proxy='host:port' or set the environment variable YT_PROXY"


@documented
@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How often and how long a failed attempt is retried."""

    attempts: int = Group.LIMITS.option(
        "The maximum number of attempts, including the first.", default=10
    )
    deadline: timedelta = Group.LIMITS.option(
        "The time after the first attempt in which a new one may start. If a wait would end later, there "
        "is no new attempt.",
        default=timedelta(minutes=5),
    )
    first_wait: timedelta = Group.LIMITS.option(
        "The limit of the first wait. The limit doubles with each attempt. Each wait is random.",
        default=timedelta(milliseconds=200),
    )
    max_wait: timedelta = Group.LIMITS.option(
        "The longest wait between two attempts.", default=timedelta(seconds=20)
    )

    def __post_init__(self) -> None:
        """Check every value."""
        if self.attempts < 1:
            raise ConfigError(
                "attempts must be at least 1", remedy="Give 1, which means no retry, or more"
            )
        for name in ("deadline", "first_wait", "max_wait"):
            if require_duration(getattr(self, name), name) < timedelta(0):
                raise ConfigError(f"{name} must not be negative", remedy="Pass a longer duration")


TOMBSTONE_TTL = timedelta(days=30)


@documented
@dataclass(frozen=True, kw_only=True)
class Changes:
    """Rows that insert, update or delete the row of a key; of each key the newest by its sequence counts.

    The order in which the rows come makes no difference: neither within a batch, nor over batches. A change
    that is not newer than what the table knows of its key has no effect. The sequence of a row is a column of
    the target. That of a deleted key is in a table of tombstones beside it. Both are compared in the
    transaction of the batch.
    """

    sequence: str | Sequence[str] = field(
        metadata=Group.WHAT.metadata(
            "The column that orders the changes of a key, such as `lsn`; or several, which are compared one "
            "after the other. The target has them too.",
            more="Integers, dates, instants, decimals, and text, which is compared byte by byte. Two "
            "different changes of one key with one sequence are refused in one batch. In a later batch such "
            "a change is taken for a repeated one.",
            read=read_names,
        )
    )
    operation: str | None = Group.WHAT.option(
        "A text column of the DataFrame that says what a row does; the target does not have it.",
        default_text="none: every row is written",
    )
    delete: str | Sequence[str] = Group.WHAT.option(
        "Its values that delete the key. Of such a row only key and sequence count.",
        default=("d",),
        read=read_names,
    )
    upsert: str | Sequence[str] = Group.WHAT.option(
        "Its values that write the row. Any other value is an error.",
        default=("c", "u", "r"),
        read=read_names,
    )
    tombstone_ttl: timedelta = Group.LIMITS.option(
        "How long a tombstone is kept: a change that comes later than that after the delete brings its key "
        "back.",
        default=TOMBSTONE_TTL,
        more="It is `max_data_ttl` of the table `<path>_tombstones`, which is created and mounted on first "
        "use. A table that is there keeps its own.",
    )

    def __post_init__(self) -> None:
        """Check every value; a single name becomes a tuple of one."""
        for name in ("sequence", "delete", "upsert"):
            given = getattr(self, name)
            named = (given,) if isinstance(given, str) else tuple(given)
            if not named or not all(named) or len({*named}) < len(named):
                raise ConfigError(
                    f"{name} of changes is {given!r}", remedy="Give at least one, each once"
                )
            object.__setattr__(self, name, named)
        if both := {*self.delete} & {*self.upsert}:
            raise ConfigError(
                f"{min(both)!r} of changes both deletes and writes",
                remedy="Leave it out of delete or of upsert",
            )
        if self.operation in self.sequence:
            raise ConfigError(
                f"changes names {self.operation} as operation and as sequence",
                remedy="Name two columns",
            )
        if require_duration(self.tombstone_ttl, "tombstone_ttl") < _SHORTEST_TTL:
            raise ConfigError(
                f"tombstone_ttl is {self.tombstone_ttl}, shorter than {_SHORTEST_TTL}",
                remedy="Give a duration that is longer than any change may be late",
            )


_SHORTEST_TTL = timedelta(hours=1)
"""The cluster keeps every row for `min_data_ttl`, half an hour, and removes old ones when it compacts."""


def require_duration(value: object, name: str) -> timedelta:
    """Return a duration; raise `ConfigError` if it is something else, such as a number without a unit."""
    if not isinstance(value, timedelta):
        raise ConfigError(
            f"{name} is {value!r}, not a duration",
            remedy="Pass a datetime.timedelta, for instance timedelta(seconds=30)",
        )
    return value


def is_on(setting: str | None) -> bool:
    """Return whether a boolean setting of Spark is on, as Spark reads it; one that is absent is off."""
    return (setting or "").strip().lower() == "true"


def claims_beside(ledger: str) -> str:
    """Return where the claims of tasks are, whose driver records its batches in a ledger."""
    return f"{ledger}_claims"


def replayed_beside(letters: str) -> str:
    """Return where the notes about replayed dead letters are created."""
    return f"{letters}_replayed"


def check_path(path: str, option: str) -> None:
    """Check that an option is an absolute Cypress path; raise `ConfigError` if it is not."""
    if not path.startswith("//") or path.endswith("/"):
        raise ConfigError(
            f"{option} is {path!r}, not a Cypress path",
            remedy="Give an absolute path such as //home/app/result",
        )


def check_positive(number: int, option: str) -> None:
    """Check that a number is at least 1; raise `ConfigError` if it is smaller."""
    if number < 1:
        raise ConfigError(f"{option} is {number}", remedy="Give a whole number of at least 1")
