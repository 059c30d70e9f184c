"""One table of failures: what the client raises, what the package raises, and what is done about it.

Codes are searched anywhere in the error tree, since commit errors arrive nested; the first row of the
table with a code of the tree decides. Source of the codes: the server's `public.h` enums; of the
transport exceptions: `yt.wrapper.http_helpers`. The table decides how soon a batch is written. The
ledger decides that it is written once.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from yt.common import YtError
from yt.packages.urllib3.exceptions import HTTPError as Urllib3Error
from yt.wrapper.errors import YtIncorrectResponse, YtProxyUnavailable, YtTokenError
from yt.ypath import YPathError
from yt.yson.common import YsonError

from yt_exactly_once import advice, errors
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.ytsaurus.client_noise import held_back

TRANSPORT_ERRORS = (
    Urllib3Error,
    http.client.HTTPException,
    OSError,
    YtProxyUnavailable,
    YtIncorrectResponse,
)
"""No readable answer: the request may or may not have been executed. Errors of `requests` are `OSError`s."""


@dataclass(frozen=True)
class Failure:
    """One row of the table.

    Attributes:
        meaning: what has happened.
        error: what the package raises.
        codes: of the server, with their names there.
        remedy: what a person can do.
    """

    meaning: str
    error: type[ExactlyOnceError]
    codes: Mapping[int, str] = field(default_factory=dict)
    remedy: str = ""


REFUSED_TOKEN = Failure(
    "the proxy refuses the token (HTTP 401)",
    errors.AccessError,
    remedy="Pass a valid token= or set the environment variable YT_TOKEN, and start the query again. If the "
    "token should be valid, ask an administrator whether it has expired or was revoked",
)
"""Recognised by an exception of the client."""

REFUSED_USER = Failure(
    "the proxy refuses the user: banned or unknown (code 1, recognised by its text)",
    errors.AccessError,
    remedy="Ask an administrator whether the user of the token exists and is not banned, and start the query "
    "again",
)
"""What proxies find without asking a master, which has codes for both."""

NO_ANSWER = Failure(
    "no readable answer: connection refused or reset, timeout, HTTP 500 or 503",
    errors.ClusterUnavailableError,
    remedy="Check the address of the proxy, and whether the cluster is healthy",
)
"""Recognised by `TRANSPORT_ERRORS`."""

NOT_REGISTERED = Failure(
    "the consumer is not registered for the queue (code 901, recognised by its text)",
    errors.ConsumerNotRegisteredError,
    remedy=f"Register it: {advice.register('QUEUE', 'CONSUMER')}. Proxies learn of a registration within "
    "25 s",
)
"""Shares its code with a missing permission."""

NO_CELL = Failure(
    "a tablet has no cell, for example because its table is unmounted (code 1, recognised by its text)",
    errors.ClusterUnavailableError,
    remedy=f"Mount the table: {advice.mount('PATH')}. Proxies learn of it within half a minute",
)
"""What `get_tablet_infos` and pulls are answered: the proxy looks for the cell and finds none."""

NOT_PINGED = Failure(
    "the proxy could not renew the lease of the transaction (code 1, recognised by its text)",
    errors.TransactionLostError,
)
"""A commit that was applied meanwhile is answered so too (`transaction_manager.cpp`, `RunPeriodicPings`)."""

NO_REGISTRATIONS = Failure(
    "the proxy cannot read the registrations of consumers (code 1, recognised by its text)",
    errors.ClusterUnavailableError,
    remedy="If it stays so, ask an administrator whether //sys/queue_agents can be read",
)
"""What a pull is answered while a proxy's look-up of the registration fails."""

CUT_OFF = Failure(
    "the answer breaks off (recognised by its text)",
    errors.ClusterUnavailableError,
    remedy="Check whether the proxy was killed or restarted",
)
"""A proxy that dies in the middle of an answer; the client then fails to parse YSON."""


CODED = (
    Failure(
        "the token is unknown, has expired or was revoked, or its user is banned",
        errors.AccessError,
        {
            109: "AuthenticationError",
            111: "InvalidCredentials",
            900: "AuthenticationError",
            903: "UserBanned",
        },
        remedy=REFUSED_TOKEN.remedy,
    ),
    Failure(
        "the user does not have the permission",
        errors.AccessError,
        {901: "AuthorizationError"},
        remedy="Ask an administrator of PATH for the permission, and start the query again. The command "
        "doctor lists all that are missing, each with the administrator's command",
    ),
    Failure(
        "the account has no free space",
        errors.AccessError,
        {902: "AccountLimitExceeded"},
        remedy="Free space in the account, which this prints: yt get PATH/@account. Or ask an administrator "
        "to raise its limits. Then start the query again: Spark replays the batch",
    ),
    Failure(
        "the consumer is not at the expected offset",
        errors.OffsetConflictError,
        {3100: "ConsumerOffsetConflict"},
        remedy="Another client moves this consumer. Give each query its own consumer",
    ),
    Failure(
        "a newer attempt owns the producer session",
        errors.ProducerFencedError,
        {3101: "InvalidEpoch", 3102: "ZombieEpoch"},
        remedy="Wait: a newer attempt of the task continues the work. If there is none, the rows of one "
        "source partition are in several Spark partitions: use mode='transactional' for such a query",
    ),
    Failure(
        "more rows than a transaction may write to a tablet",
        errors.BatchTooLargeError,
        {1717: "TooManyRowsInTransaction"},
        remedy="Start the query with split_oversized=True, or set rows_per_tablet_limit to the cluster's "
        "max_rows_per_transaction. In a sorted target most rows may go to one tablet. Changes, and "
        "a result that is replaced, are never split: give their target, and its tombstones, more tablets "
        "there. A lower max_rows_per_partition of the source helps only later batches",
    ),
    Failure(
        "another transaction changed or holds a row or a node",
        errors.ConflictError,
        {
            402: "ConcurrentTransactionLockConflict",
            1700: "TransactionLockConflict",
            1712: "RowIsBlocked",
            1713: "BlockedRowWaitTimeout",
        },
    ),
    Failure(
        "the transaction began before rows of a tablet that are flushed, whichever keys it writes there",
        errors.TransactionTooOldError,
        {1729: "CannotCheckConflictsAgainstChunkStore"},
        remedy="Give the query a ledger and a consumer of its own. If its target is sorted, make its batches "
        "smaller, or raise mount_config/backing_store_retention_time of the target and remount it",
    ),
    Failure(
        "the transaction is gone: its lease expired, its proxy restarted, or it ended before",
        errors.TransactionLostError,
        {11000: "NoSuchTransaction", 11003: "InvalidTransactionState"},
    ),
    Failure(
        "one server did not answer another, or a server is overloaded",
        errors.ClusterUnavailableError,
        {
            3: "Timeout",
            100: "TransportError",
            105: "Unavailable",
            108: "RequestQueueSizeLimitExceeded",
            116: "TransientFailure",
            118: "Overloaded",
            119: "SslError",
            120: "RequestMemoryPressure",
            122: "ResponseMemoryPressure",
            904: "RequestQueueSizeLimitExceeded",
            11004: "ParticipantFailedToPrepare",
            11005: "SomeParticipantsAreDown",
        },
    ),
    Failure(
        "a tablet is not mounted: it moves, or its table is unmounted or frozen",
        errors.ClusterUnavailableError,
        {1702: "TabletNotMounted", 1706: "InvalidTabletState"},
        remedy="If the table stays so, mount it, and unfreeze it if it is frozen: "
        f"{advice.mount('PATH')}; {advice.mount('PATH', 'frozen')}",
    ),
    Failure(
        "the tablet cell bundle of a table has no cell that works, or no resources",
        errors.ClusterUnavailableError,
        {
            1720: "BundleResourceLimitExceeded",
            1721: "NoSuchCell",
            1737: "CellHasNoAssignedPeers",
            1739: "BundleIsBanned",
        },
        remedy="Ask the administrators of the cluster about the bundle, which this prints: yt get "
        "PATH/@tablet_cell_bundle. Then start the query again: Spark replays the batch",
    ),
    Failure(
        "a proxy or a tablet is unavailable for now: banned, moving, or slow to flush",
        errors.ClusterUnavailableError,
        {
            102: "NoSuchService",
            115: "PeerBanned",
            1701: "NoSuchTablet",
            1703: "AllWritesDisabled",
            1704: "InvalidMountRevision",
            1707: "TableMountInfoNotReady",
            1725: "RequestThrottled",
            1735: "ChunkIsNotPreloaded",
            1736: "NoInSyncReplicas",
            1740: "TabletServantIsNotActive",
            1744: "TabletIsInIntermediateState",
            1745: "HunkTabletStoreToggleConflict",
            1746: "HunkStoreAllocationFailed",
            1747: "TabletResharded",
            1748: "ReadOnlySmoothMovementStage",
            1900: "TooManyConcurrentRequests",
            2100: "ProxyBanned",
        },
    ),
    Failure(
        "there is nothing at the path",
        errors.TableNotFoundError,
        {500: "ResolveError"},
        remedy="Check the path",
    ),
    Failure(
        "there is something at the path already",
        errors.PathExistsError,
        {501: "AlreadyExists"},
        remedy="Choose another path",
    ),
    Failure(
        "a row or a value is larger than the cluster takes",
        errors.SchemaMismatchError,
        {308: "RowWeightLimitExceeded", 326: "StringLikeValueLengthLimitExceeded"},
        remedy="Filter such rows out in the query, or shorten their strings, and start it again",
    ),
    Failure(
        "a row does not fit the table",
        errors.SchemaMismatchError,
        {
            301: "SortOrderViolation",
            306: "UniqueKeyViolation",
            307: "SchemaViolation",
            320: "TooManyColumnsInKey",
            321: "TooManyValuesInRow",
            322: "DuplicateColumnInSchema",
            323: "MissingRequiredColumnInSchema",
            325: "KeyCannotBeNaN",
        },
        remedy="Compare the DataFrame with the schema of the table",
    ),
)
"""Recognised by a code. The first row that has a code of the error tree decides."""

ANYTHING_ELSE = Failure("any other code", errors.RequestRefusedError)
"""Not recognised: a retry of an unknown failure could do harm."""

FAILURES = (
    REFUSED_TOKEN,
    REFUSED_USER,
    NO_ANSWER,
    NOT_REGISTERED,
    *CODED,
    NO_CELL,
    NO_REGISTRATIONS,
    NOT_PINGED,
    CUT_OFF,
    ANYTHING_ELSE,
)
"""The whole table, in the order in which its rows are tried."""


@contextmanager
def translated(
    action: str, *, asked: Callable[[], Any] | None = None, among: Sequence[str] = (), **where: Any
) -> Iterator[None]:
    """Turn the client's errors into the package's.

    Args:
        action: what was being done, as the tail of "Could not ...".
        asked: gives a client, for requests that need permissions on several objects: proxies do not say on
            which one a permission is missing.
        **where: ids for the message.
    """
    try:
        with held_back():
            yield
    except YtTokenError as error:
        raise _error(
            REFUSED_TOKEN, action, "the proxy refused the token, or wants one and got none", where
        ) from error
    except TRANSPORT_ERRORS as error:
        detail = f"no usable answer from the proxy ({reason(error)})"
        raise _error(NO_ANSWER, action, detail, {"proxy": _address(error), **where}) from error
    except YPathError as error:
        raise errors.ConfigError(
            f"Could not {action}: {error}",
            remedy="Correct the path: in the name of a node, a backslash stands before each of \\/@&*[{",
            **where,
        ) from error
    except YtError as error:
        denied = _denial(error)
        if denied is None:
            raise _error(find_failure(error), action, _deepest(error), where) from error
        raise _refused(denied, action, where, asked, among) from error


_NOT_IN_CYPRESS = re.compile(r' for (account|tablet cell bundle) "([^"]+)"')
"""Objects that an error names by their name; they are in `//sys`, in a folder of their kind."""


def _denial(error: YtError) -> dict[str, Any] | None:
    """Return the missing permission that an error tells of, if it tells of one, as the cluster does."""
    matching = error.find_matching_error(code=901)
    found: dict[str, Any] | None = None if matching is None else matching.simplify()
    while found is not None and not {"user", "permission"} <= found.get("attributes", {}).keys():
        found = next(iter(found.get("inner_errors") or ()), None)
    return found


def _refused(
    denied: dict[str, Any],
    action: str,
    where: dict[str, Any],
    asked: Callable[[], Any] | None,
    among: Sequence[str],
) -> ExactlyOnceError:
    """Return the error of a missing permission: the object, and the command that grants it."""
    attributes, text = denied["attributes"], str(denied["message"]).strip()
    user, given = str(attributes["user"]), attributes["permission"]
    permission = str(given if isinstance(given, str) else next(iter(given), ""))
    if "row-level ACL" in text:
        # Who may read already is denied the rows that others' entries name.
        permission = "full_read"
    named = _NOT_IN_CYPRESS.search(text)
    path = f"//sys/{named[1].replace(' ', '_')}s/{named[2]}" if named else attributes.get("path")
    if path is None and asked is not None:
        # The error of the request matters more than one of this look.
        with suppress(YtError, *TRANSPORT_ERRORS):
            answers = ((each, asked().check_permission(user, permission, each)) for each in among)
            path = next((each for each, node in answers if str(node["action"]) == "deny"), None)
    known = (where.get(name) for name in ("path", "consumer", "queue", "producer"))
    path = path or next((str(one) for one in known if one), None)
    detail = text if path is None or path in text else f"{text} ({path})"
    return errors.AccessError(
        f"Could not {action}: {detail}",
        remedy=advice.grant(user, permission, path or "PATH"),
        **where,
    )


def reason(error: BaseException) -> str:
    """Return what the operating system says of a request without an answer, or the class of the error."""
    text = str(error)
    for known in ("Connection refused", "No route to host", "Network is unreachable", "reset"):
        if known in text:
            return known
    return type(error).__name__


_TABLE = re.compile(r"\b[Tt]able (//\S+) (?:while|has no)")
"""Where the cluster names the table whose tablet it cannot use."""

_USER_REFUSED = re.compile(r'User validation failed|User ".*" is banned')
"""Texts of newer and of older proxies (`TryParseUser` in `server/http_proxy/context.cpp`)."""

_NO_REGISTRATION = "is not registered for queue"
"""The text that separates a missing registration from a missing permission (`registration_manager`)."""

_LOOKUP_FAILED = (
    "Queue consumer registration resolution failed",
    "Failed to list queue consumer registrations",
)
"""What `registration_manager_new.cpp` puts around whatever a look-up of registrations fails with."""


def find_failure(error: YtError) -> Failure:
    """Return the row of the table that an error of the cluster belongs to."""
    if any(_USER_REFUSED.match(str(node.get("message"))) for node in _tree(error)):
        # An unknown user comes with the code of a path at which there is nothing.
        return REFUSED_USER
    codes = set(codes_in(error))
    found = next((failure for failure in CODED if codes & failure.codes.keys()), None)
    if found is None:
        return _by_text(error)
    if found.error is errors.AccessError and _NO_REGISTRATION in _deepest(error):
        return NOT_REGISTERED
    return found


def _by_text(error: YtError) -> Failure:
    text = _deepest(error)
    if isinstance(error, YsonError):
        # So the parser calls YSON that ends too early.
        return CUT_OFF if 'Unexpected "finish"' in text else ANYTHING_ELSE
    if "could not be pinged within timeout" in text:
        return NOT_PINGED
    if any(str(node.get("message")) in _LOOKUP_FAILED for node in _tree(error)):
        return NO_REGISTRATIONS
    return NO_CELL if text.startswith("Unknown cell") else ANYTHING_ELSE


def _error(failure: Failure, action: str, detail: str, where: dict[str, Any]) -> ExactlyOnceError:
    named = _TABLE.search(detail)
    path = named[1] if named else where.get("path") or where.get("queue") or "PATH"
    remedy = failure.remedy.replace("PATH", str(path))
    for name in ("queue", "consumer"):
        remedy = remedy.replace(name.upper(), str(where.get(name, name.upper())))
    return failure.error(f"Could not {action}: {detail}", remedy=remedy, **where)


def _address(error: Exception) -> str | None:
    """Return the address that a request went to, where the error knows it."""
    request = getattr(error, "request", None)
    return urlsplit(request.url).netloc if request is not None else None


def _deepest(error: YtError) -> str:
    """Return the message nearest to the cause, which is the one that names names."""
    # As the cluster tells it. Inner errors as objects would get the name and the time of this machine.
    node = error.simplify()
    while inner := node.get("inner_errors"):
        node = inner[0]
    return str(node.get("message", "")).strip().rstrip(".")


def codes_in(error: BaseException) -> list[int]:
    """Return the codes of the cluster's error behind an error, outermost first; none without an answer."""
    return [int(node.get("code", 0)) for node in _tree(error)]


def _tree(error: BaseException) -> list[dict[str, Any]]:
    """Return the cluster's error behind an error and all its inner ones, outermost first."""
    while error.__cause__ is not None and not isinstance(error, YtError):
        error = error.__cause__
    nodes = [error.simplify()] if isinstance(error, YtError) else []
    for node in nodes:
        nodes += node.get("inner_errors") or []
    return nodes
