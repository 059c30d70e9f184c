"""The options of a sink: each declared once, and checked before any batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from yt_exactly_once import config
from yt_exactly_once.codec.path_pattern import beside
from yt_exactly_once.commit.tally import SentBy
from yt_exactly_once.config import ClusterConfig, DeliveryMode, RetryPolicy, Secret
from yt_exactly_once.delivery.route import AUTO
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import Group, check_values, documented, options_of, require_known
from yt_exactly_once.spark.sink.target import Target
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from yt_exactly_once.observability import Listener

P = ParamSpec("P")


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
        more="In the modes at-least-once and idempotent the tasks of the format `yt` always send the rows.",
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
