"""The audit of one target: which comparison fits it, and the comparison.

Memory does not grow with the size of rows: it is one bit per row of the queue, and the rows of one range.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

from yt_exactly_once.codec import schema
from yt_exactly_once.config import check_path
from yt_exactly_once.errors import ConfigError, UnprovableError
from yt_exactly_once.operations.audit.by_digest import Totals
from yt_exactly_once.operations.audit.by_sequence import against_tombstones
from yt_exactly_once.operations.audit.by_source import Comparison
from yt_exactly_once.operations.audit.found import Audit, By, SourceColumns
from yt_exactly_once.operations.audit.ranges import Progress, RangeReader
from yt_exactly_once.operations.ledgers import entries_of
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import ClusterArguments


def audit(
    target: str,
    *,
    by: str | None = None,
    columns: SourceColumns | None = None,
    ledger: str | None = None,
    start: int = 0,
    backfill: bool = False,
    compare: bool = True,
    progress: Progress = lambda *_: None,
    **cluster: Unpack[ClusterArguments],
) -> Audit:
    """Prove that a target has every committed row exactly once.

    The query may run meanwhile: what it commits after the start of the audit is not judged. Only a sorted
    target that is compared by digest must not be written while it is read.

    Args:
        target: a table. Those of a path with columns in braces are audited one by one; `status` names them.
        by: `sequence`, `source`, `digest` or `count`: what to compare it with. Default: with its tombstones
            if its rows were changes, with its queues if it has the source of its rows, else by digest if
            the ledger keeps one, else by count.
        columns: where the target has the source of its rows; default: the service columns of the source.
        ledger: path of the ledger; default: the one beside the target, or another one in its folder.
        start: first row of every partition that the queries have read; by source only.
        backfill: whether the rows of batch jobs are in no queue: the queries begin where these end. No
            comparison can know that. By source the rows of jobs are those without a source.
        compare: whether values are compared too, and not only which rows are there.
        progress: called with what is read, and how many of how many rows are done.
        **cluster: `proxy`, `token` and `client_config`; default: `YT_PROXY` and `YT_TOKEN`.

    Returns:
        What was found; its `verdict` is the answer.

    Raises:
        ConfigError: an argument is impossible, or contradicts the target.
        UnprovableError: nothing can be proven about this target in this way.
        LedgerError: there is no ledger, or no entry of the target.
    """
    check_path(target, "target")
    if by is not None and by not in {*By}:
        raise ConfigError(f"by is {by!r}", remedy=f"Choose from: {', '.join(By)}", target=target)
    by = None if by is None else By(by)
    connection = Connection.to(**cluster)
    info = describe_table(connection, target)
    info.require_mounted()
    look = partial(entries_of, connection, target, ledger)
    entries = look()
    reader = RangeReader(connection, progress)
    if info.tombstones:
        _require_sequence(target, by, columns)
        return against_tombstones(reader, info, entries)
    names = {column["name"] for column in info.schema}
    is_one_of_many = any(row.pattern for row in entries)
    if is_one_of_many and (by is By.SOURCE or columns):
        raise UnprovableError(
            "The table has the rows that name it, and its queues have those of all tables",
            remedy="Compare the digest that the ledger keeps with Target(..., digest=True), or the number of "
            "rows: --by count",
            target=target,
        )
    by_source = {schema.SOURCE_TABLET_COLUMN, schema.SOURCE_ROW_COLUMN} <= names
    if by is None and (columns or (by_source and not is_one_of_many)):
        by = By.SOURCE
    if by is By.SOURCE:
        chosen = columns or SourceColumns(
            queue=schema.SOURCE_QUEUE_COLUMN if schema.SOURCE_QUEUE_COLUMN in names else None
        )
        missing = [name for name in chosen.names if name not in names]
        if missing:
            raise ConfigError(
                f"The target has no column {', '.join(missing)}",
                remedy="Name the columns with the partition and the index of the row in the queue",
                target=target,
            )
        comparison = Comparison(reader, info, entries, chosen, start, look=look, backfill=backfill)
        return comparison.run(compare=compare)
    if by is By.SEQUENCE:
        raise UnprovableError(
            "The target has no tombstones: its rows were no changes",
            remedy="Compare it with its source, the digest or the number of its rows",
            target=target,
        )
    if columns:
        raise ConfigError(
            "Columns with the source of each row are for an audit by source",
            remedy="Leave them out",
        )
    totals = Totals(reader, info, entries, look, backfill)
    has_digests = all(row.entry.tally.digest is not None for row in entries)
    if by is By.DIGEST or (by is None and compare and has_digests):
        return totals.by_digest()
    return totals.by_count()


def _require_sequence(target: str, by: str | None, columns: SourceColumns | None) -> None:
    """Refuse with `UnprovableError` what needs all rows: of changes only the newest of each key is there."""
    if columns or by not in {None, By.SEQUENCE}:
        raise UnprovableError(
            "Its rows were changes, and of each key the target has the newest one alone",
            remedy="Compare it with its tombstones: --by sequence",
            target=target,
        )
