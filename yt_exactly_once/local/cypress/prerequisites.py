"""Prerequisites: what must still be so for a command to run.

Owns the check of `prerequisite_transaction_ids` and `prerequisite_revisions`, which every command of the
tree takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from sqlite3 import Connection
from typing import Any

from yt_exactly_once.local import arguments
from yt_exactly_once.local.cypress import master_transactions, tree, ypath
from yt_exactly_once.local.cypress.view import View
from yt_exactly_once.local.errors import Code, YtError

TRANSACTIONS, REVISIONS = "prerequisite_transaction_ids", "prerequisite_revisions"


def check(connection: Connection, parameters: dict[str, Any]) -> list[str]:
    """Refuse (1000) a command whose prerequisites do not hold; return transactions that must live."""
    wanted = transactions(parameters)
    check_alive(connection, wanted)
    revisions = parameters.get(REVISIONS) or []
    if not isinstance(revisions, list):
        raise YtError(f'Error parsing parameter "{REVISIONS}": expected a list')
    for given in revisions:
        _check_revision(connection, arguments.mapping(given, REVISIONS))
    return wanted


def transactions(parameters: dict[str, Any]) -> list[str]:
    """Return the transactions that a command needs alive."""
    return arguments.texts(parameters.get(TRANSACTIONS) or [], TRANSACTIONS)


def check_alive(connection: Connection, wanted: Iterable[str]) -> None:
    """Refuse when a master transaction has ended, with 1000 and its id."""
    for transaction_id in wanted:
        try:
            master_transactions.chain(connection, transaction_id)
        except YtError as error:
            raise _failed(f"transaction {transaction_id} is missing", error) from error


def _check_revision(connection: Connection, given: dict[str, Any]) -> None:
    path = ypath.parse(given.get("path"), REVISIONS)
    expected = arguments.integer(given, "revision", unsigned=True)
    # Of the trunk, whatever transaction the command belongs to.
    view = View(connection)
    try:
        position = tree.reach(view, path)
    except YtError as error:
        raise _failed(f"failed to resolve path {path.text}", error) from error
    found = int(view.attribute(position.id, "revision") or 0)
    if found != expected:
        raise _failed(f"node {path.text} revision mismatch: expected {expected:x}, found {found:x}")


def _failed(reason: str, cause: YtError | None = None) -> YtError:
    return YtError(
        f"Prerequisite check failed: {reason}",
        Code.PREREQUISITE_CHECK_FAILED,
        inner=[] if cause is None else [cause],
    )
