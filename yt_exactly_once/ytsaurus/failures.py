"""One table from what the client raises to what the package raises.

Codes are searched anywhere in the error tree, since commit errors arrive nested. Source of the codes:
the server's `public.h` enums; of the transport exceptions: `yt.wrapper.http_helpers`.
"""

from __future__ import annotations

import http.client
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from yt.common import YtError
from yt.packages.requests.exceptions import RequestException
from yt.packages.urllib3.exceptions import HTTPError as Urllib3Error
from yt.wrapper.errors import YtIncorrectResponse, YtProxyUnavailable, YtTokenError

from yt_exactly_once.errors import (
    AccessError,
    BatchTooLargeError,
    ClusterUnavailableError,
    ConflictError,
    ConsumerNotRegisteredError,
    ExactlyOnceError,
    OffsetConflictError,
    ProducerFencedError,
    RequestRefusedError,
    SchemaMismatchError,
    TableNotFoundError,
    TransactionLostError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSPORT_ERRORS = (
    RequestException,
    Urllib3Error,
    http.client.HTTPException,
    OSError,
    YtProxyUnavailable,
    YtIncorrectResponse,
)
"""No answer, or none that could be read: the request may or may not have been executed."""

_BY_CODE: tuple[tuple[type[ExactlyOnceError], frozenset[int], str], ...] = (
    (
        AccessError,
        frozenset({109, 111, 900, 901, 902, 903}),
        "Check the token and the permissions of its user",
    ),
    (
        OffsetConflictError,
        frozenset({3100}),
        "Somebody else moves this consumer; give each query a consumer of its own",
    ),
    (
        ProducerFencedError,
        frozenset({3101, 3102}),
        "A newer attempt owns the producer session; this one must stop",
    ),
    (
        BatchTooLargeError,
        frozenset({1717}),
        "Lower max_rows_per_partition of the source or give the target more tablets",
    ),
    (ConflictError, frozenset({1700, 1712, 1713, 1729}), ""),
    (TransactionLostError, frozenset({11000, 11003}), ""),
    (
        ClusterUnavailableError,
        # Timeouts, overload, and tablets that are moving or not mounted at the moment.
        frozenset(
            {3, 100, 102, 105, 108, 116, 118, 119, 904, 1701, 1702, 1704, 1706, 1707, 1721}
            | {1725, 1735, 1736, 1737, 1739, 1744, 1745, 1746, 1747, 1900, 2100, 11004, 11005}
        ),
        "",
    ),
    (TableNotFoundError, frozenset({500}), "Check the path"),
    (
        SchemaMismatchError,
        frozenset({301, 306, 307, 308, 320, 321, 322, 323, 325, 326}),
        "Compare the frame with the table's schema",
    ),
)

UNKNOWN_OUTCOME_CODES = frozenset({3, 100, 105, 108, 904, 11000, 11003, 11004, 11005})
"""Answers to a commit that do not say whether it was applied."""


def leaves_outcome_unknown(error: BaseException) -> bool:
    """Tell whether a failed commit may have been applied nevertheless."""
    if isinstance(error, TRANSPORT_ERRORS):
        return True
    return isinstance(error, YtError) and _has_code(error, UNKNOWN_OUTCOME_CODES)


@contextmanager
def translated(action: str, **where: Any) -> Iterator[None]:
    """Turn the client's errors into the package's.

    Args:
        action: what was being done, as the tail of "Could not ...".
        **where: ids for the message.
    """
    try:
        yield
    except YtTokenError as error:
        raise AccessError(
            f"Could not {action}: the proxy refused the token",
            remedy="Pass a valid token= or set the environment variable YT_TOKEN",
            **where,
        ) from error
    except TRANSPORT_ERRORS as error:
        raise ClusterUnavailableError(
            f"Could not {action}: no usable answer from the proxy ({_short(error)})",
            remedy="Check the proxy address and that the cluster is up",
            **where,
        ) from error
    except YtError as error:
        raise _translate(error, action, where) from error


_AUTHORIZATION = 901
_NOT_REGISTERED = "is not registered for queue"
"""How a missing registration is told from a missing permission: by text (`registration_manager`)."""


def _translate(error: YtError, action: str, where: dict[str, Any]) -> ExactlyOnceError:
    if _has_code(error, frozenset({_AUTHORIZATION})) and _NOT_REGISTERED in _deepest(error):
        return ConsumerNotRegisteredError(
            f"Could not {action}: {_deepest(error)}",
            remedy="Register it (yt register-queue-consumer QUEUE CONSUMER --vital); proxies hear of "
            "a registration within seconds",
            **where,
        )
    for kind, codes, remedy in _BY_CODE:
        if _has_code(error, codes):
            return kind(f"Could not {action}: {_deepest(error)}", remedy=remedy, **where)
    return RequestRefusedError(f"Could not {action}: {_deepest(error)}", **where)


def _has_code(error: YtError, codes: frozenset[int]) -> bool:
    return error.find_matching_error(predicate=lambda inner: int(inner.code) in codes) is not None


def _deepest(error: YtError) -> str:
    """Return the message nearest to the cause, which is the one that names names."""
    current: Any = error
    while True:
        inner = (
            current.inner_errors if isinstance(current, YtError) else current.get("inner_errors")
        )
        if not inner:
            break
        current = inner[0]
    message = current.message if isinstance(current, YtError) else current.get("message", "")
    return str(message).strip().rstrip(".")


def _short(error: BaseException) -> str:
    return type(error).__name__
