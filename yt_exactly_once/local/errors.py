"""Errors of the embedded cluster: the envelope every YTsaurus client expects, and the codes used here.

An error is a tree: code, message, attributes and inner errors. Clients match codes anywhere in the
tree, so nesting is part of the behaviour. Codes: the `public.h` files of the server's error enums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any


class Code(IntEnum):
    """Numeric error codes of YTsaurus, named as in the server's enums."""

    GENERIC = 1
    UNAVAILABLE = 105
    REQUEST_QUEUE_SIZE_LIMIT_EXCEEDED = 108
    RPC_AUTHENTICATION = 109
    INVALID_CREDENTIALS = 111
    SORT_ORDER_VIOLATION = 301
    UNIQUE_KEY_VIOLATION = 306
    SCHEMA_VIOLATION = 307
    INVALID_SCHEMA_VALUE = 314
    INCOMPATIBLE_SCHEMAS = 316
    ROW_WEIGHT_LIMIT_EXCEEDED = 308
    TOO_MANY_ROWS_IN_ROWSET = 319
    TOO_MANY_VALUES_IN_ROW = 321
    DUPLICATE_COLUMN = 322
    MISSING_REQUIRED_COLUMN = 323
    KEY_CANNOT_BE_NAN = 325
    STRING_LIKE_VALUE_LENGTH = 326
    SAME_TRANSACTION_LOCK_CONFLICT = 400
    DESCENDANT_TRANSACTION_LOCK_CONFLICT = 401
    CONCURRENT_TRANSACTION_LOCK_CONFLICT = 402
    RESOLVE = 500
    ALREADY_EXISTS = 501
    MAX_KEY_LENGTH = 505
    CANNOT_REMOVE_NONEMPTY = 506
    AUTHORIZATION = 901
    ACCOUNT_LIMIT_EXCEEDED = 902
    ALREADY_PRESENT_IN_GROUP = 908
    PREREQUISITE_CHECK_FAILED = 1000
    TRANSACTION_LOCK_CONFLICT = 1700
    NO_SUCH_TABLET = 1701
    TABLET_NOT_MOUNTED = 1702
    INVALID_TABLET_STATE = 1706
    QUERY_INPUT_ROW_LIMIT_EXCEEDED = 1709
    QUERY_OUTPUT_ROW_LIMIT_EXCEEDED = 1710
    TABLE_MUST_BE_SORTED = 1716
    TOO_MANY_ROWS_IN_TRANSACTION = 1717
    BUNDLE_LIMIT_EXCEEDED = 1720
    REQUEST_THROTTLED = 1725
    INVALID_FORMAT = 2800
    CONSUMER_OFFSET_CONFLICT = 3100
    INVALID_EPOCH = 3101
    ZOMBIE_EPOCH = 3102
    INVALID_ROW_SEQUENCE_NUMBERS = 3103
    YSON_PARSE = 4000
    NO_SUCH_TRANSACTION = 11000
    INVALID_TRANSACTION_STATE = 11003


class YtError(Exception):
    """One node of an error tree, raised by command handlers and rendered by the wire layer.

    Attributes:
        code: numeric code, see `Code`.
        message: text shown to the user.
        attributes: values that clients or people may look at, given as a map or by their names.
        inner: the errors that caused this one.
        http_status: status of the HTTP answer; 400 for every command error.
    """

    def __init__(
        self,
        message: str,
        code: int = Code.GENERIC,
        attributes: Mapping[str, Any] | None = None,
        inner: Sequence[YtError] = (),
        *,
        http_status: int = 400,
        **named: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = int(code)
        self.attributes = {**(attributes or {}), **named}
        self.inner = list(inner)
        self.http_status = http_status

    def to_dict(self) -> dict[str, Any]:
        """Render the tree as the envelope that goes over the wire."""
        return {
            "code": self.code,
            "message": self.message,
            "attributes": self.attributes,
            "inner_errors": [error.to_dict() for error in self.inner],
        }

    def contains(self, code: int) -> bool:
        """Tell whether this error or any inner one has the given code."""
        return self.code == code or any(error.contains(code) for error in self.inner)


def text_of(error: Exception) -> str:
    """Return the message of a library's error, which may quote bytes that are no text."""
    try:
        return str(error)
    except UnicodeDecodeError as undecodable:
        return bytes(undecodable.object).decode(errors="backslashreplace")
