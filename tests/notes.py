"""Notes and events of a query that live in memory."""

from collections.abc import Sequence
from typing import Any

from yt_exactly_once.commit.notes import Note


class MemoryNotes:
    """Keeps notes as long as the object lives."""

    def __init__(self) -> None:
        self.texts: dict[Note, str] = {}

    def all(self) -> Sequence[Note]:
        return tuple(self.texts)

    def add(self, note: Note, text: str, instead_of: Note | None = None) -> None:
        self.texts.pop(instead_of, None)  # type: ignore[arg-type] - no note is not there
        self.texts[note] = text


class Told(list[tuple[str, dict[str, Any]]]):
    """Takes the place of an emitter, and keeps every event with its fields."""

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.append((event, fields))

    def of(self, *events: str) -> list[dict[str, Any]]:
        return [fields for event, fields in self if event in events]
