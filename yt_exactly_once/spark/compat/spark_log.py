"""Spark's own files about the batches of a query: the one reader, for the JVM, for files and for tools.

Before a batch Spark writes `offsets/N`, where the batch ends in each source. After it, Spark writes
`commits/N`. Both begin with a line that says their version (`OffsetSeqLog.scala`, `CommitLog.scala`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from yt_exactly_once.errors import CheckpointError, NewerFormatError

OFFSETS, COMMITS = "offsets", "commits"
"""Folders of a checkpoint."""

_NAMED_SOURCES = 2
"""Version of the offset log that has a name before each offset."""

_NEWEST = {OFFSETS: _NAMED_SOURCES, COMMITS: 3}
"""Newest version of each folder that is known."""

_NO_OFFSET = "-"
"""How Spark spells a source that has no offset yet."""

_VERSION = re.compile(r"v([1-9][0-9]*)")

_LINE_END = re.compile(r"\r\n|\r|\n")
"""As Spark sees one. Python sees more of them, which JSON may hold."""


@dataclass(frozen=True)
class LoggedOffsets:
    """What Spark has written before a batch.

    Attributes:
        texts: the offset of each source that has one, as JSON.
        logged_at: when, in milliseconds since 1970.
        names: of the sources that have an offset; none in a log that has no names.
    """

    texts: list[str]
    logged_at: int
    names: frozenset[str] = frozenset()


def read_offsets(number: int, content: str, path: str | None = None) -> LoggedOffsets:
    """Read `offsets/N`; raise as `require_commit` does."""
    version, lines = _read_version(OFFSETS, number, content, path)
    if not lines:
        raise _torn(OFFSETS, number, "it ends after the version", path)
    metadata = _metadata(OFFSETS, number, lines[0], path)
    logged_at = int(metadata.get("batchTimestampMs", 0))
    if version < _NAMED_SOURCES:
        return LoggedOffsets([text for text in lines[1:] if text != _NO_OFFSET], logged_at)
    # A name has no colon, and an offset may have some.
    found = [line.partition(":") for line in lines[1:]]
    if not all(colon for _, colon, _ in found):
        raise _torn(OFFSETS, number, "a line has no name of a source", path)
    named = {name: text for name, _, text in found if text != _NO_OFFSET}
    return LoggedOffsets(list(named.values()), logged_at, frozenset(named))


def require_commit(number: int, content: str, path: str | None = None) -> None:
    """Check that `commits/N` can be read, which has nothing that a sink needs.

    Args:
        number: of the batch.
        content: of the file.
        path: of the checkpoint, as errors show it.

    Raises:
        CheckpointError: the file is torn.
        NewerFormatError: Spark has written a version that this package does not know. The file is healthy.
    """
    for line in _read_version(COMMITS, number, content, path)[1]:
        _metadata(COMMITS, number, line, path)


def _read_version(
    folder: str, number: int, content: str, path: str | None
) -> tuple[int, list[str]]:
    """Return the version of a file and the lines after it."""
    first, *lines = _LINE_END.split(content.removesuffix("\n"))
    found = _VERSION.fullmatch(first)
    if found is None:
        raise _torn(folder, number, "it does not begin with a version", path)
    version = int(found[1])
    if version > _NEWEST[folder]:
        raise NewerFormatError(
            f"{folder}/{number} of the checkpoint has version {version} of Spark's log, and this version of "
            f"the package reads {_NEWEST[folder]}",
            remedy="Keep the checkpoint: it is not damaged. Use a version of yt_exactly_once that supports "
            "the version of Spark that wrote it",
            path=path,
        )
    return version, lines


def _metadata(folder: str, number: int, line: str, path: str | None) -> dict[str, Any]:
    try:
        found = json.loads(line.strip() or "{}")
    except ValueError as error:
        raise _torn(folder, number, "its second line is no JSON", path) from error
    if not isinstance(found, dict):
        raise _torn(folder, number, "its second line is no JSON object", path)
    return found


def _torn(folder: str, number: int, why: str, path: str | None) -> CheckpointError:
    return CheckpointError(
        f"{folder}/{number} of the checkpoint is torn: {why}",
        remedy="Restore the whole checkpoint from its newest copy",
        path=path,
    )
