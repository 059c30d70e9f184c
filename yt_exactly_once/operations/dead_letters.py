"""Rows that a target could not take: what they are, and their way into the target once they are repaired.

A letter is a row of a dead-letter table, named by its tablet and its index there. A replay writes letters and
notes beside that table which they are, in one transaction. So a letter gets in once, however often and by
however many people it is replayed, whatever ledgers there are. A letter that does not fit stays where it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.codec.rejects import (
    EARLIER_SCHEMA,
    REJECT_ARROW,
    ROW_ARROW,
    readable,
    unpacked,
)
from yt_exactly_once.codec.row_hash import combined
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.commit.entry import LETTERS_PREFIX, LedgerEntry
from yt_exactly_once.commit.tally import RowDigest, Tally
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ConfigError, LedgerError, TableError
from yt_exactly_once.operations.audit.ranges import RangeReader, placed
from yt_exactly_once.operations.ledgers import Entries, entries_of
from yt_exactly_once.operations.letter_rows import Letter, Spelling, Target
from yt_exactly_once.operations.replay_notes import ReplayNotes, noted_earlier
from yt_exactly_once.ytsaurus.queues import RemoteQueue
from yt_exactly_once.ytsaurus.tables import describe_table, require_columns

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection

ROWS_PER_COMMIT = 10_000
"""Letters that one transaction replays."""

_ABOUT = ("query_id", "target", "column", "reason")


@dataclass(frozen=True)
class Replay:
    """What a replay does with the letters of one target.

    Attributes:
        into: the target; `None` for letters that name no table of a pattern.
        path: of the target, or the pattern.
        ledger: which counts what is written.
        done: how many were replayed before.
    """

    into: Target | None
    path: str
    ledger: str
    notes: ReplayNotes
    fitting: tuple[Letter, ...]
    unfit: tuple[tuple[Letter, str], ...]
    done: int


def read_letters(connection: Connection, path: str) -> list[Letter]:
    """Return all letters of a table, in their order; raise `TableError` if it is none, or not mounted."""
    info = describe_table(connection, path)
    remedy = "Pass the path that the sink has as dead_letter_path"
    require_columns(info, EARLIER_SCHEMA, "a dead-letter table", TableError, remedy)
    info.require_mounted()
    schema, reader = placed(REJECT_ARROW), RangeReader(connection)
    if ROW_ARROW not in {column["name"] for column in info.schema}:
        schema = schema.remove(schema.get_field_index(ROW_ARROW))
    found = []
    for tablet, bound in enumerate(RemoteQueue(connection, path).state().partitions):
        for rows in reader.rows(info, schema, tablet, bound.lower, bound.upper):
            for row in rows.to_pylist():
                known = {name: row[name].decode("utf-8", "backslashreplace") for name in _ABOUT}
                known |= kept_row(row.get(ROW_ARROW), row["row"])
                position = {
                    "tablet": tablet,
                    "index": row["$row_index"],
                    "batch_id": row["batch_id"],
                }
                found.append(Letter(table=info.id, **position, **known))
    return sorted(found, key=lambda one: one.position)


def kept_row(kept: bytes | None, text: bytes | None) -> dict[str, Any]:
    """Return the row of a letter with its types, and as JSON, of an earlier version that alone."""
    try:
        if kept is not None:
            return {"kept": kept, "row": readable(unpacked(kept).row)}
        return {"row": None if text is None else dict(json.loads(text))}
    except (TypeError, ValueError):
        # The sink wrote it not so. The letter is listed, and does not fit.
        return {"row": None}


def repaired(letters: Sequence[Letter], document: Any) -> list[Letter]:
    """Return letters with the rows of what `show --json` printed; raise `ConfigError` if it names others."""
    known = {(one.table, *one.position): one for one in letters}
    try:
        found = {
            (one["table"], one["tablet"], one["index"]): one["row"] and dict(one["row"])
            for one in document
        }
        return [replace(known[key], row=row) for key, row in found.items()]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            "The file does not hold letters of this table",
            remedy="Save what the command show prints with --json, and change only the values in row",
        ) from error


def done_letters(
    connection: Connection, path: str, letters: Sequence[Letter]
) -> set[tuple[int, int]]:
    """Return the positions of the letters of the table at a path that are in their target."""
    notes = ReplayNotes.of(connection, path)
    found = notes.positions(connection)
    for target in sorted({one.target for one in letters if one.kept is None}):
        # What an earlier version has noted there counts as waiting; a replay would say so.
        with suppress(LedgerError, TableError):
            found |= noted_earlier(connection, notes.table, target)
    return found


def plan_replays(
    connection: Connection,
    path: str,
    letters: Sequence[Letter],
    *,
    ledger: str | None = None,
    spelling: Spelling | None = None,
) -> list[Replay]:
    """Say which letters of the table at a path would get into their targets.

    Args:
        ledger: see `entries_of`.
        spelling: what letters of an earlier version do not say.

    Raises:
        LedgerError: a target has no ledger.
        TableError: a target is gone or not mounted, or the notes of earlier replays are.
    """
    notes = ReplayNotes.of(connection, path)
    noted = notes.positions(connection)
    patterns = [*filter(None, map(PathPattern.of, {one.target for one in letters}))]
    letters, found = _addressed(connection, letters, notes, noted, ledger)
    for target in sorted({one.target for one in letters}):
        rows = entries_of(connection, target, ledger)
        info = describe_table(connection, target)
        info.require_mounted()
        info.require_no_changes()
        naming = {name for one in patterns if one.covers(target) for name in one.columns}
        into = Target(info, spelling or Spelling(), naming)
        mine = [one for one in letters if one.target == target]
        done = noted
        if any(one.kept is None for one in mine):
            done = noted | noted_earlier(connection, notes.table, target, ledger)
        waiting = [one for one in mine if one.position not in done]
        unfit: dict[tuple[int, int], str] = {}
        for chunk in _by_commit(waiting):
            groups, others = into.grouped(chunk)
            unfit |= others
            for group in groups:
                unfit |= group.faults()
        found.append(
            Replay(
                into=into,
                path=target,
                ledger=_counting(rows, notes),
                notes=notes,
                fitting=tuple(one for one in waiting if one.position not in unfit),
                unfit=tuple((one, unfit[one.position]) for one in waiting if one.position in unfit),
                done=len(mine) - len(waiting),
            )
        )
    return found


def _counting(rows: Entries, notes: ReplayNotes) -> str:
    """Return the ledger that counts replayed rows of a table: one that does already, as the newest counts."""
    name = LETTERS_PREFIX + notes.table
    return next((row.ledger for row in rows if row.entry.query_id == name), rows[0].ledger)


def _addressed(
    connection: Connection,
    letters: Sequence[Letter],
    notes: ReplayNotes,
    noted: Collection[tuple[int, int]],
    ledger: str | None,
) -> tuple[list[Letter], list[Replay]]:
    """Return letters with the tables that their rows name now, and what is left of patterns: they name none.

    Only a table that the query has written counts. The sink may have refused to create another one.
    """
    known = [one for one in letters if PathPattern.of(one.target) is None]
    found = []
    for target in sorted({one.target for one in letters} - {one.target for one in known}):
        pattern, rows = PathPattern(target), entries_of(connection, target, ledger)
        tables = {path for row in rows for path in row.entry.tables}
        mine = [one for one in letters if one.target == target]
        unfit: list[tuple[Letter, str]] = []
        for one in mine:
            values = [(one.row or {}).get(name) for name in pattern.columns]
            path, problem = pattern.path_of(values)
            if problem or path not in tables:
                unfit.append((one, problem or f"the query has written no table {path}"))
            else:
                known.append(replace(one, target=path))
        waiting = tuple(pair for pair in unfit if pair[0].position not in noted)
        done = len(unfit) - len(waiting)
        found.append(Replay(None, target, rows[0].ledger, notes, (), waiting, done))
    return known, found


def _by_commit(letters: Sequence[Letter]) -> Iterator[Sequence[Letter]]:
    for start in range(0, len(letters), ROWS_PER_COMMIT):
        yield letters[start : start + ROWS_PER_COMMIT]


def replay(connection: Connection, plan: Replay, *, overwrite: bool = False) -> int:
    """Write the fitting letters of a plan, and note them; return how many were written.

    Letters that somebody else has replayed since the plan are left out. A call that fails may be repeated.

    Args:
        overwrite: whether a letter may replace a row of a sorted target that has its key.

    Raises:
        ConfigError: a sorted target has rows with keys of these letters, or two letters have one key.
        ConflictError: another replay, or the query, has written the same rows. Nothing of the last
            transaction was written.
        CommitOutcomeUnknownError: no answer to the commit. A repeated call finds out.
    """
    if not plan.fitting:
        return 0
    noted = plan.notes.created(connection)
    chunks = _by_commit(plan.fitting)
    return sum(_commit(connection, plan, noted, chunk, overwrite=overwrite) for chunk in chunks)


def _commit(
    connection: Connection,
    plan: Replay,
    noted: ReplayNotes,
    letters: Sequence[Letter],
    *,
    overwrite: bool,
) -> int:
    into = plan.into
    assert into is not None, "there are fitting letters"
    info = into.info
    query_id = LETTERS_PREFIX + letters[0].table
    began = datetime.now(UTC)
    # The digests that the queries of this target keep must cover these rows too.
    digests = any(row.entry.tally.digest for row in entries_of(connection, info.path, plan.ledger))
    with connection.transaction() as transaction:
        found = transaction.lookup(plan.ledger, [{"query_id": query_id, "target": info.path}])[0]
        before = LedgerEntry.from_row(found) if found else None
        letters = noted.take(transaction, letters)
        if not letters:
            return 0
        groups, _ = into.grouped(letters)
        if info.is_sorted:
            into.require_free(transaction, groups, overwrite=overwrite)
        tablets = None if info.is_sorted else info.tablet_count
        payloads = []
        for group in groups:
            some = group.payloads(tablets)
            transaction.write(info.path, some, WireFormat.YSON, group.write)
            payloads += some
        digest = RowDigest(combined(*(one.digest for one in payloads))) if digests else None
        size = sum(len(one.data) for one in payloads)
        entry = LedgerEntry(
            query_id=query_id,
            target=info.path,
            batch_id=before.batch_id + 1 if before else 0,
            run_id="",
            transaction_id=transaction.id,
            offsets={},
            # What an earlier version has noted here.
            other_sources=before.other_sources if before else "",
            mode=DeliveryMode.TRANSACTIONAL,
            started_at=began.isoformat(timespec="milliseconds"),
            committed_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            tallies={
                info.path: (before.tally if before else Tally()).after(
                    Tally(rows=len(letters), bytes=size, digest=digest), is_same=False
                )
            },
        )
        transaction.insert(plan.ledger, [entry.to_row()])
    return len(letters)


def grouped(letters: Sequence[Letter], done: Collection[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the letters by query, target, column and reason, with how many wait."""
    groups: dict[tuple[str, ...], list[Letter]] = {}
    for one in letters:
        groups.setdefault((one.query_id, one.target, one.column, one.reason), []).append(one)
    return [
        {
            **dict(zip(("query", "target", "column", "reason"), names, strict=True)),
            "letters": len(some),
            "waiting": sum(one.position not in done for one in some),
            "batches": [min(one.batch_id for one in some), max(one.batch_id for one in some)],
        }
        for names, some in groups.items()
    ]
