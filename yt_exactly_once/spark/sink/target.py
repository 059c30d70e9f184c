"""The options of a target: each declared once, and checked before any batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from yt_exactly_once import config
from yt_exactly_once.codec.path_pattern import PathPattern
from yt_exactly_once.config import Changes
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import Group, check_values, documented, require_known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


APPEND = "append"
UPSERT = "upsert"
REPLACE = "replace"

REFUSE, ADD, IGNORE = "refuse", "add", "ignore"

BY_PARTITION = "partition"
PRESERVE = "preserve"
ROUND_ROBIN = "round_robin"

MAX_TABLES = 256

CREATE_ARGUMENTS = ("key_columns", "tablet_count", "pivot_keys", "attributes")
"""Arguments of `create_table` that the option `create` takes."""

_OLD_ROW = "what a row leaves in the table depends on the row that is there"
_NOT_TOGETHER = (
    ("update_columns", "write='replace'", "a complete result has all columns"),
    ("write='replace'", "delete_marker", "what is not in the result is deleted already"),
    ("write='replace'", "aggregate", "a complete result adds nothing to what is there"),
    ("delete_marker", "aggregate", "of the rows of a key only the last one would count"),
    ("delete_marker", "unique_keys", "several changes of one key are what a marker is for"),
    ("digest", "update_columns", _OLD_ROW),
    ("digest", "delete_marker", "deleted rows cannot be taken out of it"),
    ("digest", "aggregate", _OLD_ROW),
    ("changes", "update_columns", "a late change cannot know which columns a newer one has left"),
    ("changes", "write='replace'", "a complete result has no changes"),
    ("changes", "delete_marker", "the sequence of a row decides, not its position"),
    ("changes", "aggregate", "a repeated change would be added again"),
    ("changes", "unique_keys", "several changes of one key are what a sequence is for"),
    ("changes", "digest", "rows that have no effect cannot be taken out of it"),
)


@documented
@dataclass(frozen=True)
class Target:
    """A table that a sink writes, and how."""

    path: str = field(
        metadata=Group.WHERE.metadata(
            "A mounted dynamic table, ordered or sorted. Or a path with columns in braces, such as "
            "`//home/{shop}/orders`: each row names its table by its values there.",
            more="Such a path is for transactional mode. The columns hold strings, integers or dates. They "
            "are written only if the table has them. A value names no table if it is null, empty or longer "
            "than 256 bytes. Neither does one with a slash or another character that means something in a "
            "path. Such rows are for `dead_letter_path`.",
        )
    )
    _: KW_ONLY
    transform: Callable[[DataFrame], DataFrame] | None = Group.WHAT.option(
        "Changes the DataFrame of the batch for this table.",
        more="It must depend on nothing but the DataFrame, since it runs again on a replay.",
        only_python="it is a function",
    )
    write: str | None = Group.WHAT.option(
        "What a row does to the table.",
        values={
            APPEND: "Adds a row to an ordered table. The default there.",
            UPSERT: "Writes a row by key into a sorted table. The default there.",
            REPLACE: "For output mode `complete` and sorted tables: rows that are no longer in the "
            "result are deleted in the same transaction.",
        },
        more="With `replace` the transaction reads the table at its start, so the table must belong to "
        "this query alone. Rows of others are deleted too. Rows of the result and deleted rows together "
        "must fit one transaction.",
        default_text="by the kind of table",
    )
    update_columns: bool = Group.WHAT.option(
        "Keep the columns of an existing sorted row that the DataFrame does not have.",
        default=False,
    )
    on_new_columns: str = Group.WHAT.option(
        "What happens if the DataFrame has columns that the table lacks.",
        default=REFUSE,
        values={
            REFUSE: "The query stops before the first row, and the error has the command that adds them.",
            ADD: "The sink adds them to the table, between two batches and before the first row that has "
            "one. It also widens types: whole numbers, `float` to `double`, and structs with new members. "
            "For transactional mode.",
            IGNORE: "They are not written. The event `columns.ignored` names them.",
        },
        more="To add columns the table is unmounted for a moment, so the user of the token needs the "
        "permission `mount`. Other queries that write to the table retry.",
    )
    delete_marker: str | None = Group.WHAT.option(
        "A boolean column of the DataFrame: true deletes the row's key from a sorted table.",
        more="The column itself is not written. Of several rows with one key the last one counts, in the "
        "order of the Spark partition. Rows of one key in several Spark partitions have no order and are "
        "refused.",
    )
    changes: Changes | None = Group.WHAT.option(
        "Rows insert, update or delete the row of a key in a sorted table. The newest by sequence counts.",
        more="Whatever the order of rows and batches; late and repeated changes have no effect.",
        only_python="it is an object. The options changes_sequence, changes_operation, changes_delete, "
        "changes_upsert and changes_tombstone_ttl have its parts",
    )
    aggregate: bool = Group.WHAT.option(
        "Combine aggregating columns of a sorted table (`sum`, `max`, ...) with the stored values, "
        "instead of replacing them.",
        default=False,
        more="Each row counts once, whatever fails. But a query that emits a key again with a new total, "
        "as aggregations in output mode `update` do, adds that total.",
    )
    unique_keys: bool = Group.WHAT.option(
        "Refuse a batch that has two rows with one key, in transactional mode and a sorted table.",
        default=False,
        more="Without it, the last of the rows in one Spark partition counts, and of rows in several "
        "Spark partitions any. Idempotent mode always refuses such a batch.",
    )
    placement: str | Sequence[str] = Group.HOW.option(
        "Which tablet of an ordered table takes a row; or a list of columns: rows with the same values "
        "there go to the same tablet.",
        default=BY_PARTITION,
        values={
            BY_PARTITION: "Spark partition i goes to tablet i modulo the number of tablets. Where the "
            "driver sends the rows, partitions without any may not count, and two may share a tablet. "
            "Where a task reads several queue partitions, it goes to tablet i plus the number of the "
            "batch. The order of a queue partition holds within a batch only, since its rows may be in "
            "another Spark partition in the next batch.",
            PRESERVE: "A row goes to the tablet it had in the queue. This needs the source's service "
            "columns in the DataFrame and as many tablets as the queue has. The order of a queue "
            "partition holds over all batches.",
            ROUND_ROBIN: "The rows of a Spark partition go to one tablet after the other.",
        },
        more="In all cases rows of one Spark partition that go to one tablet keep their order there.",
        otherwise="or a list of columns, which only Python can give",
    )
    create: Mapping[str, Any] | None = Group.WHAT.option(
        "Create tables that a path with columns in braces names and that are not there, with these arguments "
        "of `create_table`: `key_columns`, `tablet_count`, `pivot_keys`, `attributes`. They get the columns "
        "of the DataFrame.",
        more="If a table is gone that the query has written, the query stops. It is never created again.",
        default_text="a table that is not there stops the query",
    )
    max_tables: int = Group.LIMITS.option(
        "Most tables that the rows of one batch may name; only for a path with columns in braces.",
        default=MAX_TABLES,
    )
    digest: bool = Group.HOW.option(
        "Keep a digest of all written rows in the ledger.",
        default=False,
        more="With it, `yt-exactly-once audit` finds lost, repeated and changed rows without columns "
        "that say where a row came from. Switch it on for the first batch: it proves nothing about a "
        "target with earlier ones.",
    )

    def __post_init__(self) -> None:
        """Check every option; raise `ConfigError` if one is impossible."""
        config.check_path(self.path, "path")
        self._check_pattern()
        if not isinstance(self.placement, str) and not self.placement:
            raise ConfigError(
                "placement names no column", remedy="Name at least one", target=self.path
            )
        check_values(self, target=self.path)
        given = {**self.effects, "digest": self.digest}
        for one, other, reason in _NOT_TOGETHER:
            if given[one] and given[other]:
                raise ConfigError(
                    f"{one} and {other} exclude each other: {reason}",
                    remedy="Leave one of them out",
                    target=self.path,
                )

    @cached_property
    def pattern(self) -> PathPattern | None:
        """By which each row names its table; `None` if the path is that of one table."""
        return PathPattern.of(self.path)

    def of_table(self, path: str) -> Target:
        """Return one table of a pattern as a target."""
        return replace(self, path=path, create=None, max_tables=MAX_TABLES)

    def _check_pattern(self) -> None:
        config.check_positive(self.max_tables, "max_tables")
        named, wanted = {"create": self.create is not None}, {}
        named["max_tables"] = self.max_tables != MAX_TABLES
        if self.pattern is not None:
            wanted["write='replace'"] = (
                self.replaces,
                "it would not delete from tables it does not name",
            )
            is_other = self.placement != BY_PARTITION
            wanted["placement"] = (
                is_other,
                "tablets are not known before the rows name their tables",
            )
            wanted["changes"] = (
                self.changes is not None,
                "each table would need tombstones of its own",
            )
            wanted["on_new_columns='add'"] = (
                self.on_new_columns == ADD,
                "tables are not altered while the rows name them",
            )
            require_known(self.create or {}, CREATE_ARGUMENTS, "create")
        elif refused := next((name for name, is_given in named.items() if is_given), None):
            raise ConfigError(
                f"{refused} is for a path with columns in braces, and this one is of one table",
                remedy=f"Leave {refused} out",
                target=self.path,
            )
        for name, (is_given, reason) in wanted.items():
            if is_given:
                raise ConfigError(
                    f"{name} and a path with columns in braces exclude each other: {reason}",
                    remedy=f"Leave {name} out, or give each table a target of its own",
                    target=self.path,
                )

    @property
    def write_options(self) -> config.WriteOptions:
        """What its requests say about how rows are written."""
        return config.WriteOptions(update=self.update_columns, aggregate=self.aggregate)

    @property
    def replaces(self) -> bool:
        """Whether rows that are not in the batch are deleted."""
        return self.write == REPLACE

    @property
    def effects(self) -> dict[str, bool]:
        """The options that change what a row does to its key, and whether they were given."""
        return {
            "update_columns": self.update_columns,
            "write='replace'": self.replaces,
            "delete_marker": self.delete_marker is not None,
            "aggregate": self.aggregate,
            "unique_keys": self.unique_keys,
            "changes": self.changes is not None,
        }

    def transformed(self, frame: DataFrame) -> DataFrame:
        """Return the DataFrame that is written here."""
        return frame if self.transform is None else self.transform(frame)

    @property
    def collects_keys(self) -> bool:
        """Whether all keys of a batch must be known together."""
        return self.replaces or self.unique_keys
