"""The command registry: what the embedded cluster can do, and the flags clients derive behaviour from.

A handler is a plain function of a `Context`. It is registered under its wire name with the four facts of a
command descriptor (`yt/yt/client/driver/driver.cpp`). The client derives the HTTP verb, the retries and the
proxy from them, so a wrong flag changes its behaviour.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, Literal, TypeVar

from yt.yson.yson_types import NotUnicodeError

from yt_exactly_once.local import support
from yt_exactly_once.local.cypress import permissions
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError
from yt_exactly_once.local.proxy import Proxy
from yt_exactly_once.local.tables.schema import Column

VERSION = "25.2.0-local"
"""Of YTsaurus, which the embedded cluster claims to be."""

Item = TypeVar("Item")
DataType = Literal["null", "structured", "tabular", "binary"]


@dataclass(frozen=True)
class Rows:
    """A tabular answer.

    Attributes:
        rows: one mapping of column name to value per row, in order; `None` stands for a row that
            was asked for and not found.
        columns: what a row consists of, where the handler knows it; RPC answers need it.
    """

    rows: Iterable[dict[str, Any] | None]
    columns: tuple[Column, ...] = ()


class Stream(Iterator[Item]):
    """Items of an answer that hold something open.

    Args:
        release: closes what they need; called once, at the end or when the answer is given up.
    """

    def __init__(self, items: Iterator[Item], release: Callable[[], None] | None) -> None:
        self._items = items
        self._release = release

    def __next__(self) -> Item:
        """Return the next item; the end and every failure release what was open."""
        try:
            return next(self._items)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up; again is fine."""
        release, self._release = self._release, None
        if release is not None:
            release()


RowReader = Callable[..., Sequence[dict[str, Any]]]
"""Parses the body of a tabular command: the rows in order, or `YtError` for a malformed body.

It may be given the columns of `@schema` (`name`, `type` and, where it says more, `type_v3`). Only Arrow looks
at them: the conversion of a value depends on the column's type, and other columns are dropped. Without them
Arrow values come as they are.
"""


@dataclass
class Context:
    """One command on its way: who asks, with what, on which proxy.

    Attributes:
        proxy: the proxy process that serves the request (store, sticky transactions, settings).
        command: wire name of the command.
        parameters: merged parameters of the request, keys as `str`, strings as `str`.
        user: authenticated user.
        read_value: parses the body as one structured value.
        read_rows: parses the body as rows in the input format, see `RowReader`.
        read_bytes: yields the raw body of a binary command.
        response_parameters: what the handler wants to return beside the output.
        etag: version of the output; a client that names it as known gets no output.
        commands: those of the version of the API that is spoken, by name; parts of a batch are
            looked up here.
    """

    proxy: Proxy
    command: str
    parameters: dict[str, Any]
    user: str = "root"
    read_value: Callable[[], Any] = lambda: None
    read_rows: RowReader = lambda _schema=None: []
    read_bytes: Callable[[], Iterator[bytes]] = lambda: iter(())
    response_parameters: dict[str, Any] = field(default_factory=dict)
    etag: str | None = None
    commands: Mapping[str, Command] = field(default_factory=lambda: REGISTRY)


Handler = Callable[[Context], Any]
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Command:
    """A registered command; the first five fields are its public descriptor."""

    name: str
    input_type: DataType
    output_type: DataType
    is_volatile: bool
    is_heavy: bool
    handler: Handler
    note: str

    def descriptor(self) -> dict[str, Any]:
        """Return the entry of `GET /api/v4`."""
        return {each.name: getattr(self, each.name) for each in fields(self)[:5]}


REGISTRY: dict[str, Command] = {}


def command(
    name: str,
    *,
    input_type: DataType = "null",
    output_type: DataType = "structured",
    volatile: bool = False,
    heavy: bool = False,
    partial: str = "",
) -> Callable[[Handler], Handler]:
    """Register a handler.

    Args:
        output_type: what the answer carries. A handler returns a plain value (structured), `Rows`
            (tabular), an iterator of bytes (binary) or `None` (null).
        volatile: whether the command changes something.
        heavy: whether clients send it to a heavy proxy.
        partial: what is missing compared to the real command; empty means nothing known.
    """

    def register(handler: Handler) -> Handler:
        @wraps(handler)
        def checked(context: Context) -> Any:
            support.check_parameters(name, context.parameters)
            if context.user != permissions.ROOT:
                with context.proxy.store.read() as connection:
                    permissions.check_user(View(connection, user=context.user))
            return handler(context)

        REGISTRY[name] = Command(name, input_type, output_type, volatile, heavy, checked, partial)
        return handler

    return register


def as_error(raised: Exception, context: Context | None = None) -> YtError:
    """Turn anything that a handler raised into an error of the wire."""
    if isinstance(raised, YtError):
        error = raised
    elif isinstance(raised, sqlite3.OperationalError) and "locked" in str(raised):
        error = YtError("The store is busy; try again later", Code.UNAVAILABLE)
    elif isinstance(raised, NotUnicodeError):
        error = YtError(
            "A parameter or the name of an attribute is not UTF-8; the embedded cluster takes other"
            " bytes in values only"
        )
    else:
        name = context.command if context else "request"
        _LOGGER.error("Internal error in %s", name, exc_info=raised)
        error = YtError("Internal error", exception=f"{type(raised).__name__}: {raised}")
    path = context.parameters.get("path") if context else None
    if isinstance(path, str):
        error.attributes.setdefault("path", str(path))
    return error
