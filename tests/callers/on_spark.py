"""Programs on a real Spark and the embedded cluster: real plans, real tasks, real threads; few of them.

Spark calls the function. A driver dies at a commit, with an error that no code of the function catches, and
from then on the sink reaches no cluster; tasks die at a row, in all their attempts.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyspark
from pyspark.errors import StreamingQueryException

from tests.callers.deployment import CHUNK, Deployment, joined
from tests.callers.mishaps import How, Request
from tests.callers.oracle import ViolationError
from tests.callers.program import Layout, Part, Source
from tests.callers.server import bare
from tests.flows import read_queue
from tests.integration.streams import forget_last_batch
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.transaction import TabletTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from yt.wrapper import YtClient

    from tests.callers.program import Program, Run
    from yt_exactly_once.local import LocalCluster
    from yt_exactly_once.spark.sink.transactional_sink import TransactionalSink

_PATIENCE_SECONDS = 120
_TASK_DIES = "The task dies here"
_AFTER_A_WHILE = (
    f"concat('{_TASK_DIES}', coalesce(java_method('java.lang.Thread', 'sleep', bigint(200)), ''))"
)
"""Meanwhile the rows before are pushed."""

_OURS = "yt_exactly_once.errors."
_FIRST = 1_700_000_000
_TYPES = {"bigint": "int64", "double": "double", "string": "utf8", "boolean": "boolean"}

_KEPT = {
    Part.ALL: "true",
    Part.EVEN: "id % 2 = 0",
    Part.ODD: "id % 2 = 1",
    Part.NONE: "false",
    Part.GOOD: "num is not null",
    Part.GOOD_ODD: "num is not null and id % 2 = 1",
}

_MANY = 1_000
_LAID_OUT: dict[Layout, Callable[[DataFrame, int], DataFrame]] = {
    Layout.COALESCED: lambda frame, cores: frame.coalesce(cores),
    Layout.SHUFFLED: lambda frame, cores: frame.repartition(cores),
    Layout.PERSISTED: lambda frame, cores: frame.repartition(cores).persist(),
    Layout.KEPT: lambda frame, _: frame.persist(),
    Layout.CHECKPOINTED: lambda frame, cores: frame.repartition(cores).localCheckpoint(),
    Layout.DISTINCT: lambda frame, _: frame.distinct().persist(),
    Layout.LIMITED: lambda frame, _: frame.limit(_MANY),
    Layout.ORDERED: lambda frame, cores: frame.orderBy(
        frame["id"] * (1 if cores % 2 else -1)
    ).limit(_MANY),
    Layout.RDD: lambda frame, cores: frame.sparkSession.createDataFrame(
        frame.rdd.repartition(cores), frame.schema
    ),
}


class DeadError(Exception):
    """The driver is dead; what runs of it from now on would not run."""


class OnSpark(Deployment):
    """A program on Spark; all batches but the last one are as wide as the first.

    Args:
        program: what is deployed.
        spark: the session.
        cluster: the cluster.
        client: of the cluster.
        folder: for files and checkpoint.
    """

    def __init__(
        self,
        program: Program,
        spark: SparkSession,
        cluster: LocalCluster,
        client: YtClient,
        folder: Path,
    ) -> None:
        super().__init__(program)
        self._spark, self._cluster, self._client = spark, cluster, client
        self._home = f"//tmp/callers-{uuid.uuid4()}"
        self._folder = folder / self._home.rpartition("/")[2]
        self._is_dead = False
        self._raised: BaseException | None = None
        attributes = {} if program.is_sorted else {"tablet_count": program.tablets}
        self._create("target", self.target_schema(), attributes)
        if program.source is Source.FILES:
            self._write_files()
        else:
            self._fill_queue()

    def _create(self, name: str, schema: list[dict[str, Any]], attributes: dict[str, Any]) -> None:
        path = f"{self._home}/{name}"
        described = {"dynamic": True, "schema": schema, **attributes}
        self._client.create("table", path, recursive=True, attributes=described)
        self._client.mount_table(path, sync=True)

    # The source

    def _write_files(self) -> None:
        folder = self._folder / "source"
        folder.mkdir(parents=True)
        for batch in range(len(self.program.rows)):
            rows = [self._source_values(row) for row in joined(self.program.batch(batch))]
            file = folder / f"{batch}.json"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (_FIRST + batch, _FIRST + batch))

    def _fill_queue(self) -> None:
        queue = f"{self._home}/queue"
        width = len(self.program.rows[0])
        schema = [{"name": name, "type": _TYPES[kind]} for name, kind in self._plain().items()]
        self._create("queue", schema, {"tablet_count": width})
        for batch in range(len(self.program.rows)):
            for place, rows in enumerate(self.program.batch(batch)):
                values = [{**self._source_values(row), "$tablet_index": place} for row in rows]
                self._client.insert_rows(queue, values)
        if self.program.source is Source.CONSUMER:
            self._client.create("queue_consumer", f"{self._home}/consumer")
            self._client.mount_table(f"{self._home}/consumer", sync=True)
            self._client.register_queue_consumer(queue, f"{self._home}/consumer", vital=True)

    def _plain(self) -> dict[str, str]:
        """Return the columns that the source holds itself."""
        return {
            name: kind for name, kind in self.columns().items() if not name.startswith("__spyt")
        }

    def _source_values(self, row: Any) -> dict[str, Any]:
        values = self.values(row)
        return {name: values[name] for name in self._plain()}

    def _stream(self) -> DataFrame:
        program = self.program
        if program.source is Source.FILES:
            schema = ", ".join(f"`{name}` {kind}" for name, kind in self._plain().items())
            reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            return reader.json(str(self._folder / "source"))
        rows = read_queue(
            self._spark,
            self._cluster.proxy_urls[0],
            f"{self._home}/queue",
            f"{self._home}/consumer" if program.source is Source.CONSUMER else None,
            max_rows_per_partition=max(map(len, program.rows[0])),
            include_service_columns=str(program.numbered).lower(),
        )
        return rows.select(*(f"`{name}`" for name in self.columns()))

    # One run

    def run(self, run: Run) -> None:
        """See `Deployment.run`."""
        self._is_dead, self._raised, self.is_done = False, None, False
        if run.ledger_removed:
            self._client.remove(f"{self._home}/target_ledger", force=True)
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", CHUNK)
        # Rows reach the Python worker one small batch after the other, not all at the end.
        self._spark.conf.set("spark.sql.execution.pandas.udf.buffer.size", 64)
        self._spark.conf.set("spark.sql.files.minPartitionNum", run.cores)
        self._spark.conf.set("spark.sql.files.openCostInBytes", 0)

        def write(frame: DataFrame, batch: int) -> None:
            try:
                self.execute(run, (frame, batch), batch)
            except BaseException as error:
                self._raised = error
                raise

        with self._dying(run):
            self._wait_for(run, write)
        if run.unlogged is not None and any((self._folder / "checkpoint").glob("commits/[0-9]*")):
            forget_last_batch(self._folder / "checkpoint")

    def _wait_for(self, run: Run, write: Callable[[DataFrame, int], None]) -> None:
        query = (
            self._stream()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(_PATIENCE_SECONDS), "The query does not end"
            self.is_done = run.unlogged is None
        except StreamingQueryException:
            error = self._raised
            if error is None or isinstance(error, ViolationError):
                raise error or AssertionError("The query failed outside of the function") from None
            if self._is_dead or not isinstance(error, Exception):
                return
            self.require_typed(error)
            self.require_reason(run, error)
        finally:
            query.stop()

    @contextmanager
    def _dying(self, run: Run) -> Iterator[None]:
        """Let the driver die at the commit that the run says."""
        death, commit, pinned = run.death, TabletTransaction.commit, Connection.pinned
        sent = 0

        def die() -> None:
            self._is_dead = True
            raise DeadError

        def dying_commit(transaction: TabletTransaction, *written: Any) -> None:
            nonlocal sent
            sent += 1
            how = None
            if death is not None and death[:2] == (Request.COMMIT, sent - 1):
                how = death.how
            if how in {How.CRASH_BEFORE, How.TASK_DIES_BEFORE, How.LOST_REQUEST}:
                die()
            commit(transaction, *written)
            if how is not None:
                die()

        def dead_pinned(connection: Connection) -> Any:
            if self._is_dead:
                raise DeadError
            return pinned(connection)

        with (
            mock.patch.object(TabletTransaction, "commit", dying_commit),
            mock.patch.object(Connection, "pinned", dead_pinned),
        ):
            yield

    def require_typed(self, error: Exception) -> None:
        """See `Deployment.require_typed`; tasks tell of errors as text."""
        if self._is_dead:
            raise error
        if _OURS not in str(error) and _TASK_DIES not in str(error):
            super().require_typed(error)

    # What the function does

    def frame(self, run: Run, given: Any, layout: Layout, parts: Sequence[Part]) -> Any:
        """See `Deployment.frame`."""
        frame: DataFrame = given[0]
        frame.sparkSession.conf.set("spark.sql.adaptive.enabled", value=False)
        frame.sparkSession.conf.set("spark.sql.shuffle.partitions", run.cores)
        for part in parts:
            frame = frame.where(_KEPT[part])
        laid_out = _LAID_OUT.get(layout, lambda frame, _cores: frame)(frame, run.cores)
        return self._dying_at_a_row(laid_out, run, given[1])

    def _dying_at_a_row(self, frame: DataFrame, run: Run, batch: int) -> DataFrame:
        """Let the task that comes to a row of the batch die, in every attempt."""
        death = run.death
        if death is None or death.request is Request.COMMIT:
            return frame
        rows = joined(self.program.batch(batch))
        chosen = rows[-1 - death.number % len(rows)].id
        dies = f"if(id = {chosen}, cast(raise_error({_AFTER_A_WHILE}) as bigint), num)"
        names = {name: f"`{name}`" for name in frame.columns} | {"num": f"{dies} as num"}
        return frame.selectExpr(*names.values())

    def in_threads(self, jobs: Sequence[Callable[[], None]], period: int) -> None:  # noqa: ARG002 - Spark's threads
        """See `Deployment.in_threads`; all run at once."""
        raised: list[BaseException] = []

        def work(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - raised below
                raised.append(error)

        threads = [pyspark.InheritableThread(target=work, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if raised:
            raise raised[0]

    # The cluster

    @property
    def paths(self) -> dict[str, Any]:
        """See `Deployment.paths`."""
        rejects = {"dead_letter_path": f"{self._home}/rejected"} if self.program.rejects else {}
        proxy = self._cluster.proxy_urls[0]
        return {"proxy": proxy, **rejects}

    @property
    def target(self) -> str:
        """See `Deployment.target`."""
        return f"{self._home}/target"

    def connect(self, sink: TransactionalSink) -> None:
        """See `Deployment.connect`: it finds both by itself."""

    def written(self) -> list[dict[str, Any]]:
        """See `Deployment.written`."""
        names = ", ".join(f"[{column['name']}]" for column in self.target_schema())
        rows = self._client.select_rows(f"{names} from [{self._home}/target]")
        return [bare(row) for row in rows]

    def rejected(self) -> list[dict[str, Any]]:
        """See `Deployment.rejected`."""
        path = f"{self._home}/rejected"
        if not self._client.exists(path):
            return []
        return [json.loads(row["row"]) for row in self._client.select_rows(f"[row] from [{path}]")]
