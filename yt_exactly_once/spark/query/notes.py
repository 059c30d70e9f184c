"""Where notes are kept: a folder of small files in the query's checkpoint, next to Spark's own logs.

A note that the checkpoint refuses is kept beside the ledger, as an attribute of its table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from yt_exactly_once.commit.notes import FOLDER, Note, digest_of_path
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.errors import CheckpointError, ExactlyOnceError
from yt_exactly_once.observability import Emitter
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.spark.storage import Storage
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import existing, set_attribute


class FolderNotes:
    """Notes in a checkpoint that this process reads directly."""

    def __init__(self, checkpoint: Storage) -> None:
        self._checkpoint = checkpoint

    def all(self) -> Sequence[Note]:
        """Return every note that is kept here."""
        with _typed("read the notes in the checkpoint"):
            return _notes(self._checkpoint.names(FOLDER))

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        """Keep a note, or rename the one that it replaces."""
        with _typed("write a note into the checkpoint"):
            if instead_of is not None:
                # It may be gone: an answer was lost, or somebody removed it.
                with suppress(FileNotFoundError):
                    self._checkpoint.rename(f"{FOLDER}/{instead_of.name}", f"{FOLDER}/{note.name}")
                    return
            self._checkpoint.write(f"{FOLDER}/{note.name}", _content(text))


class HadoopNotes:
    """Notes on any file system that Spark keeps a checkpoint on, at the root that Spark has resolved."""

    def __init__(self, jvm: Any, session: Any, root: str) -> None:
        # To find a class takes five calls to the JVM.
        self._path_of = jvm.org.apache.hadoop.fs.Path
        self._folder = self._path_of(root, FOLDER)
        self._files = self._folder.getFileSystem(session.sessionState().newHadoopConf())
        self._added: tuple[Note, Any] | None = None

    def all(self) -> Sequence[Note]:
        """Return every note that is kept here."""
        with _typed("read the notes in the checkpoint"):
            if not self._files.exists(self._folder):
                return ()
            found = self._files.listStatus(self._folder)
            return _notes(file.getPath().getName() for file in found)

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        """Keep a note, or rename the one that it replaces."""
        path = self._path_of(self._folder, note.name)
        before, self._added = self._added, (note, path)
        with _typed("write a note into the checkpoint"):
            if instead_of is not None:
                # The note that each batch renames was mostly added by the batch before.
                added, old = before or (None, None)
                if added != instead_of:
                    old = self._path_of(self._folder, instead_of.name)
                if self._files.rename(old, path):
                    return
            stream = self._files.create(path, True)  # overwrites
            try:
                stream.write(bytearray(_content(text)))
            finally:
                stream.close()


class LedgerNotes:
    """Notes that the checkpoint has refused, as an attribute of the ledger's table.

    A row of the ledger says what is committed, and there may be none yet. An attribute is in nobody's way.
    """

    def __init__(
        self, connection: Connection, path: str, query_id: str, retry: RetryPolicy, emit: Emitter
    ) -> None:
        self._connection = connection
        self._path = path
        self._retry = retry
        self._emit = emit
        # The id of a batch job may have characters that a path gives a meaning.
        self._name = f"yt_exactly_once_notes_{digest_of_path(query_id)}"

    def all(self) -> Sequence[Note]:
        """Return every note that is kept here."""
        return self.look()[1]

    def look(self) -> tuple[str, Sequence[Note]]:
        """Return the object id of the ledger, and the notes."""
        found = run_attempts(self._read, self._retry, self._emit)
        return str(found["id"]), _notes(found.get(self._name, ()))

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:  # noqa: ARG002 - one interface
        """Keep a note; none is renamed here."""

        def attempt(number: int) -> None:
            kept = self._read(number).get(self._name, {})
            set_attribute(self._connection, self._path, self._name, {**kept, note.name: text})

        run_attempts(attempt, self._retry, self._emit)

    def _read(self, _number: int) -> Any:
        return existing(self._connection, self._path, ["id", self._name])


@contextmanager
def _typed(action: str) -> Iterator[None]:
    try:
        yield
    except ExactlyOnceError:
        raise
    except Exception as error:
        # Without the stack of the JVM.
        cause = getattr(error, "java_exception", None)
        lines = str(error if cause is None else cause.toString()).splitlines()
        raise CheckpointError(
            f"Could not {action}: {type(error).__name__}: {lines[0] if lines else ''}",
            remedy="Make the checkpoint writable for the driver, and start the query again. Nothing is lost: "
            "Spark replays the batch",
        ) from error


def _notes(names: Iterable[str]) -> tuple[Note, ...]:
    return tuple(note for name in sorted(names) if (note := Note.from_name(name)) is not None)


def _content(text: str) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return (json.dumps({"at": now, "what": text}, ensure_ascii=False) + "\n").encode()
