"""Versions of what outlives a version of this package: ledger, notes and offsets.

Each carries the version of its format. A reader takes its own version and every earlier one. It refuses a
later one: what that version means is unknown, and a guess could repeat rows or lose them.
"""

from __future__ import annotations

from yt_exactly_once.errors import NewerFormatError


def require_known_format(version: int, newest: int, what: str, **where: str | int | None) -> None:
    """Raise `NewerFormatError` if something was stored in a later format than this version can read.

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
