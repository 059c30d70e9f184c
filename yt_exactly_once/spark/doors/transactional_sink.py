"""`TransactionalSink`: the object a query hands its micro-batches to.

The door of `foreachBatch`. It travels by pickle as its options. What belongs to a process is in its engine.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from yt_exactly_once import errors
from yt_exactly_once.options import given
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles, files_of_a_run
from yt_exactly_once.spark.compat.java import require_startable
from yt_exactly_once.spark.compat.raised import keep_error, raised_to_spark
from yt_exactly_once.spark.compat.running import RunningQuery
from yt_exactly_once.spark.doors.frame_rows import FrameRows
from yt_exactly_once.spark.engine.engine import Engine
from yt_exactly_once.spark.modes import mode_of
from yt_exactly_once.spark.sink.options import SinkOptions, require_options, takes
from yt_exactly_once.ytsaurus.client import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TransactionalSink:
    """Writes the micro-batches of a query into dynamic tables, exactly once.

    Use it as `df.writeStream.foreachBatch(TransactionalSink("//home/app/result"))`. Options of a table are
    given to its `Target`: `TransactionalSink(Target("//home/app/totals", write="replace"))`.

    In the default mode each batch is one short tablet transaction. It writes the rows, moves the queue
    consumers and records the batch in a ledger, all or nothing. A batch that Spark replays is found in the
    ledger and skipped. The promise holds over any crash of driver, tasks, proxies and network.

    Two things break it: writing to the ledger by hand, and deleting the checkpoint. The sink cannot notice a
    deleted checkpoint. The query is then a new one: it starts at its consumer's offset, without its state.
    The sink refuses a consumer that was moved by hand and a checkpoint that was restored from a copy.

    - Call the sink once for every batch, empty ones too, and before anything else reads the DataFrame. A
      replay may find its rows trimmed, which the sink skips and another reader does not.
    - Call it on the thread of the function, or on a `pyspark.InheritableThread` that the function waits for.
    - Let its errors out of the function. After a swallowed one, and after a second call for a batch, every
      later batch is refused.

    Attributes:
        options: of the sink.
        last_error: the last error that a call in this process has raised; `None` before the first.

    Args:
        target: the table or tables to write.
        **options: see `SinkOptions`.

    Raises:
        ConfigError: an option is missing, unknown or impossible.
        JavaNotFoundError: no session runs in this process, and there is no Java to start one with.
    """

    options: SinkOptions
    last_error: errors.ExactlyOnceError | None

    @takes(SinkOptions)
    def __init__(self, *target: Any, **options: Any) -> None:
        require_options(list(options))
        require_startable()
        self._open(SinkOptions(*target, **options), CheckpointFiles)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; Spark calls this. `Engine.deliver` has the nine steps.

        Raises:
            ExactlyOnceError: the batch was not written, or the replay will resolve its outcome.
        """
        running = None
        try:
            running = self._query.locate(frame, batch_id)
            self._engine.deliver(running, FrameRows(frame))
        except errors.ExactlyOnceError as error:
            shown = raised_to_spark(error)
        else:
            return
        self.last_error = shown
        if running is not None:
            keep_error(running.run_id, shown)
        raise shown

    def check(self, frame: DataFrame, *, output_mode: str | None = None) -> None:
        """Check before `start()` everything that can be known then. It writes nothing and creates nothing.

        That is the address, the token, every target with its columns, types and options, and the ledger and
        the dead-letter table if they are there. Of a streaming DataFrame it is also the query: a queue that
        is read twice with one consumer, consumers that are not registered, and in idempotent mode state or
        a shuffle. Spark Connect shows none of this. Permissions are checked in the first batch. The command
        `doctor` looks at those too.

        Args:
            frame: the DataFrame that the sink will get; the streaming one is fine.
            output_mode: of the query, if `write="replace"` or `aggregate` is used.

        Raises:
            ExactlyOnceError: as the first batch would.
        """
        self._engine.check(FrameRows(frame), output_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the options; a process that gets them has an engine of its own."""
        return _arrived, (type(self), self.options)

    def __repr__(self) -> str:
        paths = [target.path for target in self.options.targets]
        return f"TransactionalSink({', '.join(paths)!r}, mode='{self.options.mode}')"

    def _repr_html_(self) -> str:
        """Show a notebook the targets and the options that were given; neither token nor client_config."""
        options = self.options
        fixed = {"mode": options.mode, "ledger_path": options.ledger}
        rows = [*{**fixed, **given(options)}.items()]
        for target in options.targets:
            options_of_it = [f"{name}={value}" for name, value in given(target).items()]
            rows.append(("target", ", ".join([target.path, *options_of_it])))
        cells = (
            f"<th>{name}</th><td>{escape(errors.visible(str(one)))}</td>" for name, one in rows
        )
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"

    def _open(self, options: SinkOptions, files: Callable[..., CheckpointFiles]) -> None:
        connection = Connection(options.cluster)
        location = options.checkpoint_location
        self.options, self.last_error = options, None
        self._engine = Engine(mode_of(options, connection))
        self._query = RunningQuery(files(location, connection) if location else None)


def _arrived(kind: type[TransactionalSink], options: SinkOptions) -> TransactionalSink:
    sink = kind.__new__(kind)
    sink._open(options, files_of_a_run)  # noqa: SLF001 - `__init__` checks what has been checked
    return sink
