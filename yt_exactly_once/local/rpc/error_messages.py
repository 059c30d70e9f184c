"""Errors as RPC carries them: a tree of messages whose attributes are binary YSON."""

from __future__ import annotations

from typing import Any

from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.formats.structured import dump_yson

CALL_FAILED = "Internal RPC call failed"


def fill(message: Any, error: YtError) -> None:
    """Write an error and its causes into a message."""
    message.code = error.code
    message.message = error.message.encode()
    for key, value in error.attributes.items():
        message.attributes.attributes.add(key=str(key).encode(), value=dump_yson(value))
    for inner in error.inner:
        fill(message.inner_errors.add(), inner)


def of_call(error: YtError) -> YtError:
    """Wrap what a command raised the way the real proxy does; clients look for codes at any depth."""
    attributes = {name: error.attributes[name] for name in ("path",) if name in error.attributes}
    return YtError(CALL_FAILED, error.code, attributes, [error])


def not_supported(method: str) -> YtError:
    """Return the error for a method that is not there.

    The code of the real one, 103, makes clients give the proxy up and look for another for ever.
    """
    return YtError(
        f'RPC method "{method}" is not supported by the embedded cluster; its page of commands lists'
        " what is",
        Code.GENERIC,
        {"method": method},
    )
