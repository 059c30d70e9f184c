"""The options of a sink and of its targets: each declared once, and checked before any batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from yt_exactly_once import config
from yt_exactly_once.codec.path_pattern import PathPattern, beside
from yt_exactly_once.commit.entry import SentBy
from yt_exactly_once.config import Changes, ClusterConfig, DeliveryMode, RetryPolicy, Secret
from yt_exactly_once.delivery.route import AUTO
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import Group, check_values, documented, options_of, require_known
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from yt_exactly_once.observability import Listener

P = ParamSpec("P")

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


def _read_batches(name: str, text: str) -> int | tuple[int, int]:
    """Return the number of a batch, or those of the first and the last of several."""
    numbers = [bound.strip() for bound in text.split("-")]
    if len(numbers) > 2 or not all(bound.isascii() and bound.isdigit() for bound in numbers):  # noqa: PLR2004 - a pair
        raise ConfigError(
            f"{name}={text!r} is no number of a batch",
            remedy="Give the number of a batch, or of the first and the last one: 7-9",
            option=name,
        )
    first, last = int(numbers[0]), int(numbers[-1])
    return first if len(numbers) == 1 else (first, last)


@documented
@dataclass(frozen=True)
class SinkOptions:
    """What a `TransactionalSink` takes, by the same names."""

    target: str | Target | Sequence[str | Target] = field(
        metadata=Group.WHERE.metadata(
            "The table to write: its path, or a `Target` with options; or several of them, which are written "
            "together, all or nothing.",
            only_python="the format takes the path and the options of one target",
        )
    )
    _: KW_ONLY
    mode: str = Group.WHAT.option(
        "What the sink promises.",
        default=DeliveryMode.TRANSACTIONAL.value,
        values={
            "at-least-once": "No row is lost. A replay may repeat rows. The tasks write large batches.",
            "transactional": "Exactly once for any query. A batch becomes visible all at once: one "
            "transaction has its rows.",
            "idempotent": "Exactly once for stateless queries that make one row of each row. The tasks "
            "write large batches.",
        },
        meant={"exactly-once": DeliveryMode.TRANSACTIONAL.value},
        more="In idempotent mode a batch that was begun on an ordered target must be finished with the "
        "same rows. Where rows are numbered by their position in a task, that takes the same code and as "
        "many cores. Where they carry their source, the code alone counts. A replay that differs stops "
        "with `NotOneToOneError`, and nothing is lost.",
    )
    proxy: str | None = field(default=None, metadata=config.PROXY.metadata)
    token: str | Secret | None = field(default=None, metadata=config.TOKEN.metadata)
    backend: str | None = field(default=None, metadata=config.BACKEND.metadata)
    client_config: Mapping[str, Any] | None = field(
        default=None, repr=False, metadata=config.CLIENT_CONFIG.metadata
    )
    ledger_path: str | None = Group.WHERE.option(
        "The ledger table, created and mounted on first use.",
        default_text="`<path>_ledger`; of several targets the first path in alphabetical order; of a path "
        "with columns in braces `yt_exactly_once_ledger` in the folder of all its tables",
    )
    ledger_attributes: Mapping[str, Any] | None = Group.WHERE.option(
        "Further attributes for a ledger that is created, such as `tablet_cell_bundle` or `primary_medium`."
    )
    source_position: Sequence[str] | None = Group.WHAT.option(
        "Columns that say where in its source a row is, for idempotent mode and an ordered target. For Kafka "
        "`topic`, `partition`, `offset`.",
        more="The last column has the position, the others what it counts in. Rows are then numbered by "
        "their source: a replay may spread them over other tasks. The position is an integer. Within the "
        "other columns it grows from row to row and from batch to batch, and may leave gaps. Columns that "
        "the target lacks are not written. Rows of one queue with its service columns need no such option.",
        default_text="the position in a task counts",
    )
    producer_path: str | None = Group.WHERE.option(
        "The queue-producer table of idempotent mode on ordered targets, created and mounted on first use.",
        default_text="`<path>_producer`, chosen like the ledger",
    )
    dead_letter_path: str | None = Group.WHERE.option(
        "A table for rows that the target cannot take, created and mounted on first use. For "
        "transactional mode.",
        more="Such a row has a number out of range, a null in a required column, bytes that are not "
        "UTF-8, or the like. Or it names no table of a path with columns in braces. It is written there in "
        "the same transaction, with its query, batch, source "
        "coordinates, column, reason, and the row, with its types and as JSON. The rest of the batch is "
        "written as usual. Without this option such a row fails the batch, and nothing is written.",
        default_text="none: such a row fails the batch",
    )
    history_path: str | None = Group.WHERE.option(
        "A table for the last 1 000 batches, created and mounted on first use: when, how many rows, how "
        "long, how many attempts. `yt-exactly-once history` shows it.",
        more="A thread of its own writes it after the commit, so no batch waits for it. If that fails, "
        "the batch is missing in the history, and nothing else.",
        default_text="none",
    )
    show_values: bool = Group.HOW.option(
        "Quote the value in the error about a row that the target cannot take.", default=False
    )
    advance_consumer: bool = Group.WHAT.option(
        "Move the consumers of the query's queues.",
        default=True,
        more="Of several sinks called from one foreachBatch function all but the last must have `False`.",
    )
    dyn_batch_size: int | None = Group.LIMITS.option(
        "Rows per insert request.",
        default_text=f"the Spark conf `{config.DYN_BATCH_SIZE_CONF}`, else {config.DEFAULT_DYN_BATCH_SIZE:,}",
    )
    split_oversized: bool = Group.LIMITS.option(
        "Write a batch that one transaction cannot carry in several.",
        default=False,
        more="The batch is then visible part by part. The query must give the same rows in the same "
        "order whenever it is replayed; a replay that differs is refused.",
    )
    connections: int = Group.HOW.option(
        "Requests sent in parallel within one transaction, or by one task in idempotent mode.",
        default=4,
    )
    rows_per_tablet_limit: int = Group.LIMITS.option(
        "The cluster's `max_rows_per_transaction`; bigger batches are refused.",
        default=config.ROWS_PER_TABLET_LIMIT,
    )
    wire_format: str = Group.HOW.option(
        "How rows are encoded.",
        default=AUTO,
        values={
            AUTO: "Arrow where the cluster takes it and the columns are safe in it, else YSON.",
            "arrow": "Arrow. Refuses columns that some proxies would store wrongly: `any`, `interval64`, "
            "and decimals of more than 35 digits.",
            "yson": "YSON.",
        },
    )
    sent_by: str = Group.HOW.option(
        "Who sends the rows of a batch to the cluster.",
        default=AUTO,
        values={
            AUTO: "The tasks, for large batches that allow it; else the driver.",
            SentBy.DRIVER: "The driver, which collects them.",
            SentBy.TASKS: "The tasks. A query that does not allow it in transactional mode is refused.",
        },
        only_python="the format sends the rows of transactional mode when it commits, all others from "
        "its tasks",
    )
    retry: RetryPolicy = Group.HOW.option(
        "How often and how long an attempt is repeated.",
        default=RetryPolicy(),
        only_python="it is an object. The options retry_attempts, retry_deadline, retry_first_wait and "
        "retry_max_wait have its parts",
    )
    accept_incomplete: int | tuple[int, int] | None = Group.WHAT.option(
        "Number of a batch, or numbers of the first and the last of several, whose missing rows you have "
        "written yourself or give up.",
        more="It has no effect on any other batch.",
        read=_read_batches,
        default_text="none",
    )
    new_ledger: bool = Group.WHAT.option(
        "Begin, on a checkpoint with earlier batches, with a `ledger_path` or a target that the query "
        "has not used.",
        default=False,
        more="Also accept a copy of the ledger. It has no effect on a ledger that the query has used. "
        "Leave it out afterwards: it accepts every copy.",
    )
    checkpoint_location: str | None = Group.WHERE.option(
        "The query's checkpoint; used only where the session has no JVM.",
        shown=False,
        only_python="the writer takes the query's own checkpointLocation",
    )
    listener: Listener | None = Group.HOW.option(
        "Called with the name and the fields of every event, for metrics.",
        more="What it raises is logged once and disturbs no batch.",
        only_python="it is a function",
    )

    def __post_init__(self) -> None:
        """Check every option, and those that exclude each other; raise `ConfigError` if one is impossible."""
        if self.token and isinstance(self.token, str):
            object.__setattr__(self, "token", Secret(self.token))
        check_values(self)
        self._check_targets()
        config.check_path(self.ledger, "ledger_path")
        config.check_path(self.producer, "producer_path")
        self._check_own_paths()
        self._check_source_position()
        for name in ("connections", "rows_per_tablet_limit", "dyn_batch_size"):
            if (number := getattr(self, name)) is not None:
                config.check_positive(number, name)
        # The environment is read here, and not where the sink travels to.
        _ = self.accepted, self.cluster

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The targets, in the order they were given."""
        single = isinstance(self.target, str | Target)
        given: Any = (self.target,) if single else self.target
        return tuple(Target(each) if isinstance(each, str) else each for each in given)

    @cached_property
    def cluster(self) -> ClusterConfig:
        """How to reach the cluster; carries the token, and never shows it."""
        client = dict(self.client_config or {})
        if self.backend is not None:
            client["backend"] = self.backend
        check_backend(client)
        return ClusterConfig.resolve(self.proxy, self.token, client_config=client)

    @property
    def ledger(self) -> str:
        """Path of the ledger."""
        return self.ledger_path or self._beside_targets("ledger")

    @property
    def producer(self) -> str:
        """Path of the producer table."""
        return self.producer_path or self._beside_targets("producer")

    @property
    def claims(self) -> str:
        """Path of the table of claims."""
        return config.claims_beside(self.ledger)

    def _beside_targets(self, what: str) -> str:
        return beside((target.path for target in self.targets), what)

    @cached_property
    def accepted(self) -> range:
        """Batches whose missing rows a person has settled."""
        given: Any = self.accept_incomplete
        if given is None:
            return range(0)
        pair = given if isinstance(given, tuple) else (given, given)
        is_pair = len(pair) == 2 and all(type(number) is int for number in pair)  # noqa: PLR2004 - a pair
        if not is_pair or not 0 <= pair[0] <= pair[1]:
            raise ConfigError(
                f"accept_incomplete is {given!r}",
                remedy="Give the number of a batch, or a tuple of the first and the last one",
            )
        return range(pair[0], pair[1] + 1)

    def effective_dyn_batch_size(self, configured: str | None) -> int:
        """Return how many rows a request carries at most, perhaps by the conf of the Spark session."""
        size = self.dyn_batch_size
        if size is None:
            try:
                size = config.DEFAULT_DYN_BATCH_SIZE if configured is None else int(configured)
            except ValueError:
                raise ConfigError(
                    f"{config.DYN_BATCH_SIZE_CONF} is {configured!r}, not a number",
                    remedy="Set it to a positive number of rows",
                ) from None
            config.check_positive(size, config.DYN_BATCH_SIZE_CONF)
        # A request may not carry more rows than a transaction.
        return min(size, self.rows_per_tablet_limit)

    def _check_own_paths(self) -> None:
        taken = {self.ledger, *(target.path for target in self.targets)}
        for name in ("dead_letter_path", "history_path"):
            if (path := getattr(self, name)) is None:
                continue
            config.check_path(path, name)
            if path in taken:
                raise ConfigError(
                    f"{name} is {path}, which this sink uses already",
                    remedy="Give it a path of its own",
                )
            taken.add(path)

    def _check_source_position(self) -> None:
        given = self.source_position
        if given is None:
            return
        if isinstance(given, str) or len(set(given)) < max(2, len(given)):
            raise ConfigError(
                f"source_position is {given!r}",
                remedy='Give at least two columns, each once: ("topic", "partition", "offset")',
                option="source_position",
            )
        if self.mode != DeliveryMode.IDEMPOTENT:
            raise ConfigError(
                f"source_position has no meaning in mode '{self.mode}'",
                remedy="Leave it out: only idempotent mode numbers rows",
                option="source_position",
            )

    def _check_targets(self) -> None:
        paths = [target.path for target in self.targets]
        if not paths:
            raise ConfigError("The sink has no target", remedy="Give at least one path or Target")
        if repeated := sorted(path for path in paths if paths.count(path) > 1):
            raise ConfigError(
                f"The sink has the target {repeated[0]} twice", remedy="Give each path once"
            )
        patterns = [target for target in self.targets if target.pattern is not None]
        if patterns and self.mode != DeliveryMode.TRANSACTIONAL:
            raise ConfigError(
                f"A path with columns in braces is not possible in mode '{self.mode}': its tasks write "
                "before all tables of the batch are known",
                remedy="Use mode='transactional'",
                target=patterns[0].path,
            )


def require_options(names: Sequence[str]) -> None:
    """Check the names of a sink's options; raise `ConfigError` if it has no option of that name."""
    for name in sorted(set(names) & set(options_of(Target))):
        path = "'//home/app/result'"
        how = path if name == "path" else f"Target({path}, {name}=...)"
        raise ConfigError(
            f"The sink has no option {name}: it is one of the target",
            remedy=f"Give it first, without a name: TransactionalSink({how})",
            option=name,
        )
    require_known(names, options_of(SinkOptions), "The sink")


def takes(
    options: Callable[P, object],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give an `__init__` the signature of its options: for type checkers, editors and `help()`."""

    def with_signature(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        own = next(iter(signature(init).parameters.values()))
        wanted = [own, *signature(options).parameters.values()]
        init.__signature__ = Signature(wanted)  # type: ignore[attr-defined]
        return init

    return with_signature
