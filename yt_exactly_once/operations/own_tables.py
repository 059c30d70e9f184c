"""The tables that a sink keeps for itself, created beforehand with the rights of those who need them.

Whoever may write the ledger can make a sink skip a batch, so it gets access control of its own and inherits
none. What each right is for is in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.rejects import REJECT_SCHEMA
from yt_exactly_once.commit.entry import LEDGER_MARK, LEDGER_SCHEMA, LEDGER_VERSION
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.ytsaurus.browsing import user_of
from yt_exactly_once.ytsaurus.tables import ensure_object, ensure_table, restrict

if TYPE_CHECKING:
    from yt_exactly_once.operations.doctor.subject import Subject
    from yt_exactly_once.ytsaurus.client import Connection

OPERATING = ("read", "write", "mount", "remove", "administer")


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Users and groups, by what they do.

    Attributes:
        readers: look at it: `status`, `audit`.
        operators: mount, repair and remove the tables, and change these rights.
    """

    writers: Sequence[str]
    readers: Sequence[str] = ()
    operators: Sequence[str] = ()

    def acl(self) -> list[dict[str, Any]]:
        """Return the access control list of a table that the sink keeps."""
        return [
            {"action": "allow", "subjects": list(subjects), "permissions": list(permissions)}
            for subjects, permissions in (
                (self.writers, ("read", "write")),
                (self.readers, ("read",)),
                (self.operators, OPERATING),
            )
            if subjects
        ]


def create_own_tables(
    connection: Connection, subject: Subject, subjects: Subjects
) -> dict[str, bool]:
    """Create and mount the tables that a sink keeps; one that is there only gets the rights.

    Args:
        subject: its targets, its mode and the paths of the tables.
        subjects: who gets which rights. Without operators the user of the token is one.

    Returns:
        Path of each table, and whether this call created it.

    Raises:
        ConfigError: no target or no writer is named.
    """
    ledger, producer = subject.ledger_path, subject.producer_path
    if ledger is None or producer is None or not subjects.writers:
        raise ConfigError(
            "The tables of a sink need its targets and the users who run it",
            remedy="Pass the path of each target, and --writer with the user of the query's token",
        )
    if not subjects.operators:
        # Who creates a table does not own it, and has to mount it.
        subjects = Subjects(
            writers=subjects.writers, readers=subjects.readers, operators=(user_of(connection),)
        )
    rights = {"acl": subjects.acl(), "inherit_acl": False}
    created = {
        ledger: ensure_table(
            connection, ledger, LEDGER_SCHEMA, {**rights, LEDGER_MARK: LEDGER_VERSION}
        )
    }
    if subject.mode.traits.has_sessions:
        created[producer] = ensure_object(connection, "queue_producer", producer, rights)
    if subject.dead_letter is not None:
        created[subject.dead_letter] = ensure_table(
            connection, subject.dead_letter, REJECT_SCHEMA, rights
        )
    for path, is_new in created.items():
        if not is_new:
            restrict(connection, path, rights)
    return created
