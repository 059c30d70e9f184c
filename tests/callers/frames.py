"""DataFrames without Spark: Arrow rows in partitions, evaluated when the sink asks for them.

`Frame` has what the sink calls on a DataFrame, and `Functions` what it takes from `pyspark.sql.functions`.
Every job may deal rows otherwise, as a shuffle does, and every attempt of a task may get them in another
order. Tasks run one after the other; one that dies is started again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tests.callers.mishaps import TaskDiedError
from tests.callers.server import Server
from tests.model.tasks import task_context
from yt_exactly_once.errors import ExactlyOnceError
from yt_exactly_once.spark.schema import spark_schema_of

Partitions = list[pa.RecordBatch]

ROWS_OF_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

TASK_ATTEMPTS = 2
PLACE_BITS = 33


class JobFailedError(Exception):
    """Spark gave a job up because of an error of a task, which may be one of the package."""


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: Any) -> None:
        self[name] = str(value)


@dataclass(frozen=True)
class Column:
    """An expression: gives an array for the rows of one partition."""

    type: pa.DataType
    values: Callable[[pa.RecordBatch, int], pa.Array]

    def cast(self, name: Any) -> Column:
        """See `Column.cast`, for the names of integers."""
        kind = {"int": pa.int32(), "bigint": pa.int64(), "long": pa.int64()}[str(name)]
        return Column(kind, lambda rows, place: self.values(rows, place).cast(kind))

    def _with(self, other: Column, combine: Callable[[int, int], int]) -> Column:
        def values(rows: pa.RecordBatch, place: int) -> pa.Array:
            pairs = zip(
                self.values(rows, place).to_pylist(),
                other.values(rows, place).to_pylist(),
                strict=True,
            )
            return pa.array([combine(*pair) for pair in pairs], pa.int64())

        return Column(pa.int64(), values)

    def __add__(self, other: Column) -> Column:
        return self._with(other, lambda one, two: one + two)

    def __sub__(self, other: Column) -> Column:
        return self._with(other, lambda one, two: one - two)


class Functions:
    """The functions of Spark that the sink uses."""

    @staticmethod
    def col(name: str) -> Any:
        plain = name.strip("`").replace("``", "`")
        return Column(pa.null(), lambda rows, _: rows.column(plain))

    @staticmethod
    def lit(value: int) -> Column:
        return Column(pa.int64(), lambda rows, _: pa.array([value] * rows.num_rows, pa.int64()))

    @staticmethod
    def spark_partition_id() -> Column:
        return Column(pa.int32(), lambda rows, place: pa.array([place] * rows.num_rows, pa.int32()))

    @staticmethod
    def monotonically_increasing_id() -> Column:
        """Return the partition and the place in it."""
        return Column(
            pa.int64(),
            lambda rows, place: pa.array(
                [(place << PLACE_BITS) + number for number in range(rows.num_rows)], pa.int64()
            ),
        )

    @staticmethod
    def pmod(one: Column, two: Column) -> Column:
        return one._with(two, lambda number, by: number % by)

    @staticmethod
    def shiftright(one: Column, bits: int) -> Column:
        return one._with(Functions.lit(bits), lambda number, by: number >> by)

    @staticmethod
    def shiftleft(one: Column, bits: int) -> Column:
        return one._with(Functions.lit(bits), lambda number, by: number << by)

    @staticmethod
    def xxhash64(*columns: Column) -> Column:
        """Return 64 bits of a hash; -0.0 has the hash of 0.0, as in Spark."""

        def number(values: tuple[Any, ...]) -> int:
            told = repr([0.0 if value == 0 else value for value in values]).encode()
            return int.from_bytes(hashlib.sha256(told).digest()[:8], signed=True)

        def values(rows: pa.RecordBatch, place: int) -> pa.Array:
            arrays = [column.values(rows, place).to_pylist() for column in columns]
            return pa.array([number(each) for each in zip(*arrays, strict=True)], pa.int64())

        return Column(pa.int64(), values)


@dataclass(frozen=True)
class Frame:
    """What the sink sees of a DataFrame.

    Attributes:
        server: knows whether a task runs.
        evaluate: returns the rows, per partition.
        disorders: whether the attempts of a task get its rows in different orders.
        folds: whether Spark takes the number of a partition for a constant.
    """

    server: Server
    arrow: pa.Schema
    evaluate: Callable[[], Partitions]
    sparkSession: Any  # noqa: N815 - Spark's name
    disorders: bool = False
    folds: bool = False

    @property
    def columns(self) -> list[str]:
        return list(self.arrow.names)

    @property
    def schema(self) -> Any:
        return spark_schema_of(self.arrow)

    def mapped(
        self, schema: pa.Schema, change: Callable[[pa.RecordBatch, int], pa.RecordBatch]
    ) -> Frame:
        """Return a frame with other rows, partition by partition."""

        def evaluate() -> Partitions:
            placed = enumerate(self.evaluate())
            return [change(rows, 0 if self.folds else place) for place, rows in placed]

        return replace(self, arrow=schema, evaluate=evaluate)

    def withColumn(self, name: str, column: Column) -> Frame:  # noqa: N802 - Spark's name
        """See `DataFrame.withColumn`; one of that name is replaced."""
        fields = [field for field in self.arrow if field.name != name]
        kept = [field.name for field in fields]
        kind = column.type
        if pa.types.is_null(kind):
            kind = self.arrow.field(name).type
        schema = pa.schema([*fields, pa.field(name, kind)])

        def change(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
            arrays = [rows.column(each) for each in kept]
            return pa.RecordBatch.from_arrays([*arrays, column.values(rows, place)], schema=schema)

        return self.mapped(schema, change)

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
        fields = [field.with_name(name) for field, name in zip(self.arrow, names, strict=True)]
        return self.mapped(pa.schema(fields), lambda rows, _: rows.rename_columns(list(names)))

    def select(self, *names: str) -> Frame:
        """See `DataFrame.select`, for names; Spark does not find every name as it is.

        Raises:
            LookupError: it does not find one.
        """
        folded = [name.lower() for name in self.arrow.names]
        for name in names:
            if set(name) & set(".`") or folded.count(name.lower()) != 1:
                raise LookupError(name)
        schema = pa.schema([self.arrow.field(name) for name in names])
        return self.mapped(schema, lambda rows, _: rows.select(list(names)))

    def localCheckpoint(self, eager: bool = True) -> Frame:  # noqa: N802 - Spark's name
        assert eager
        kept = self.evaluate()
        return replace(self, evaluate=lambda: kept, disorders=False)

    def _collect_as_arrow(self) -> Partitions:
        return [batch for rows in self.evaluate() for batch in self.batches(rows)]

    def batches(self, rows: pa.RecordBatch) -> Partitions:
        """Return the rows of a partition as Spark hands them over: it tells when to begin another batch."""
        most = int(self.sparkSession.conf.get(ROWS_OF_BATCH))
        return [
            pa.concat_batches([rows.slice(start, most)]) for start in range(0, rows.num_rows, most)
        ]

    def mapInArrow(self, task: Any, _schema: Any) -> _Job:  # noqa: N802 - Spark's name
        return _Job(self, task)


@dataclass(frozen=True)
class _Job:
    frame: Frame
    task: Any

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """Run the tasks, one after the other, and return their reports."""
        placed = self.frame.evaluate()
        reports = [report for place in range(len(placed)) for report in self._run(placed, place)]
        return pa.Table.from_batches(reports) if reports else pa.table({})

    def _run(self, placed: Partitions, place: int) -> list[pa.RecordBatch]:
        rows = placed[place]
        for number in range(TASK_ATTEMPTS):
            if number and self.frame.disorders:
                rows = rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))
            try:
                with task_context(place), _in_task(self.frame.server):
                    return list(self.task(iter(self.frame.batches(rows))))
            except (TaskDiedError, ExactlyOnceError) as error:
                if number == TASK_ATTEMPTS - 1:
                    message = f"The task of partition {place} failed"
                    raise JobFailedError(message) from error
        raise AssertionError


@contextmanager
def _in_task(server: Server) -> Iterator[None]:
    server.in_task = True
    try:
        yield
    finally:
        server.in_task = False
