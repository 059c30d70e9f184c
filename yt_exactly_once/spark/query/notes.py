"""Where notes are kept: a folder of small files in the query's checkpoint, next to Spark's own logs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from yt_exactly_once.commit.notes import Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from yt_exactly_once.spark.storage import Storage

FOLDER = "yt_exactly_once"
"""Name of the folder in the checkpoint; Spark ignores what it does not know there."""


class FolderNotes:
    """Notes in a checkpoint that this process reads directly.

    Args:
        checkpoint: its files.
    """

    def __init__(self, checkpoint: Storage) -> None:
        self._checkpoint = checkpoint

    def all(self) -> Sequence[Note]:
        """See `Notes.all`."""
        return _notes(self._checkpoint.names(FOLDER))

    def add(self, note: Note, text: str) -> None:
        """See `Notes.add`."""
        self._checkpoint.write(f"{FOLDER}/{note.name}", _content(text))


class HadoopNotes:
    """Notes on any file system that Spark keeps a checkpoint on.

    Args:
        jvm: of the session.
        session: Spark's session in the JVM.
        root: the checkpoint, as Spark has resolved it.
    """

    def __init__(self, jvm: Any, session: Any, root: str) -> None:
        self._jvm = jvm
        self._folder = jvm.org.apache.hadoop.fs.Path(root, FOLDER)
        self._files = self._folder.getFileSystem(session.sessionState().newHadoopConf())

    def all(self) -> Sequence[Note]:
        """See `Notes.all`."""
        if not self._files.exists(self._folder):
            return ()
        return _notes(found.getPath().getName() for found in self._files.listStatus(self._folder))

    def add(self, note: Note, text: str) -> None:
        """See `Notes.add`."""
        path = self._jvm.org.apache.hadoop.fs.Path(self._folder, note.name)
        stream = self._files.create(path, True)  # overwrites
        try:
            stream.write(bytearray(_content(text)))
        finally:
            stream.close()


def _notes(names: Iterable[str]) -> tuple[Note, ...]:
    return tuple(note for name in sorted(names) if (note := Note.from_name(name)) is not None)


def _content(text: str) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return (json.dumps({"at": now, "what": text}, ensure_ascii=False) + "\n").encode()
