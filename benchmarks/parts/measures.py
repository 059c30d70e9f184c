"""The measurements, one generator per part of the package."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from yt.wrapper import YsonFormat
from yt.wrapper.format import ArrowFormat

from benchmarks.clients import UNCOMPRESSED
from benchmarks.parts.rows import ROWS, Sample
from benchmarks.parts.timing import BARE_LOOP, SOURCE, Timing, in_turn
from yt_exactly_once.codec.rows import WireFormat, decode
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA, CommitLedger
from yt_exactly_once.commit.parts import whole
from yt_exactly_once.commit.transactional import BatchCommit
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.observability import emitter
from yt_exactly_once.spark.source.options import SourceOptions
from yt_exactly_once.spark.source.range import BYTES_PER_PULL, ROWS_PER_PULL, RangeReader
from yt_exactly_once.spark.source.rows import RowFormat
from yt_exactly_once.spark.tuning.memory import keep_freed_memory
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.queues import RemoteQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from yt.wrapper import YtClient

    from yt_exactly_once.local import LocalCluster

HOME = "//home/parts"
PARTITIONS = (0, 1, 4, 16)


class Measures:
    """Measures every part on one cluster.

    Args:
        cluster: an empty one.
        samples: rows of every shape.
        repetitions: of each measurement.
    """

    def __init__(self, cluster: LocalCluster, samples: Sequence[Sample], repetitions: int) -> None:
        self._cluster = cluster
        self._client: YtClient = cluster.client(proxy=UNCOMPRESSED)
        self._connection = Connection(ClusterConfig.resolve(cluster.proxy_urls[0], None))
        self._samples = samples
        self._repetitions = repetitions
        self._client.create("map_node", HOME, recursive=True)

    def all(self) -> Iterator[Timing]:
        """Yield every measurement."""
        yield from self._encode()
        yield from self._cluster_inserts()
        for sample in self._samples:
            yield from self._pull(sample)
        yield from self._commit()
        yield from self._cluster_commands()

    def _encode(self) -> Iterator[Timing]:
        for sample in self._samples:
            for wire in WireFormat:
                size = len(sample.payload(wire))
                encode = {f"{sample.shape.name} as {wire}": partial(sample.payload, wire)}
                yield from self._timed("encode", encode, ROWS, size)
            digest = {f"digest of {sample.shape.name}": sample.digest}
            yield from self._timed("encode", digest, ROWS, sample.batch.nbytes)

    def _cluster_inserts(self) -> Iterator[Timing]:
        formats = {WireFormat.ARROW: ArrowFormat(), WireFormat.YSON: YsonFormat()}
        for sample in self._samples:
            for wire, form in formats.items():
                path = self._table(f"{sample.shape.name}-{wire}", sample.shape.columns())
                payload = sample.payload(wire)

                def insert(path: str = path, payload: bytes = payload, form: Any = form) -> None:
                    self._client.insert_rows(path, BytesIO(payload), format=form, raw=True)

                name = f"insert {sample.shape.name} as {wire}"
                yield from self._timed("cluster", {name: insert}, ROWS, len(payload))

    def _pull(self, sample: Sample) -> Iterator[Timing]:
        """Read the rows that were inserted before: the bare pull, with decoding, and as the source."""
        path, name = f"{HOME}/{sample.shape.name}-arrow", sample.shape.name
        client = self._client
        binary = YsonFormat(format="binary")
        limits = {"max_row_count": ROWS_PER_PULL, "max_data_weight": BYTES_PER_PULL}

        def pieces() -> Iterator[bytes]:
            for offset in range(0, ROWS, ROWS_PER_PULL):
                yield client.pull_queue(path, offset, 0, format=binary, raw=True, **limits).read()

        def dicts() -> None:
            for offset in range(0, ROWS, ROWS_PER_PULL):
                list(client.pull_queue(path, offset, 0, format=YsonFormat(), **limits))

        pulled = list(pieces())
        size = sum(map(len, pulled))
        in_memory = {name: lambda: [decode(piece, sample.pulled) for piece in pulled]}
        yield from self._timed("decode", in_memory, ROWS, size)
        reader = self._reader(path)
        works: dict[str, Callable[[], object]] = {
            "bytes only": lambda: list(pieces()),
            BARE_LOOP: lambda: [decode(piece, sample.pulled) for piece in pieces()],
            "rows as dicts": dicts,
            SOURCE: lambda: list(reader.read([PartitionRange(0, 0, ROWS)])),
        }
        named = {f"{name}, {work}": action for work, action in works.items()}
        yield from self._timed("pull", named, ROWS, size)

    def _reader(self, path: str) -> RangeReader:
        """Return what a task of the source reads a range with; the other ways share its process."""
        keep_freed_memory.act()
        proxy = self._cluster.proxy_urls[0]
        options = SourceOptions.parse(
            {"path": path, "proxy": proxy, "starting_offsets": "earliest"}
        )
        columns = [dict(column) for column in self._client.get(f"{path}/@schema")]
        rows = RowFormat(columns, options)
        return RangeReader(RemoteQueue(self._connection, path, None), rows.decode, emitter())

    def _commit(self) -> Iterator[Timing]:
        """Commit a batch without rows: begin, checks, moves, ledger entry, commit."""
        ledger = self._table("ledger", LEDGER_SCHEMA)
        for count in PARTITIONS:
            queue = self._table(
                f"queue-{count}", self._samples[0].shape.columns(), tablet_count=max(1, count)
            )
            consumer = self._consumer(queue)
            entries = CommitLedger(ledger, f"query-{count}", ["//target"])
            numbers = iter(range(1_000_000))

            def commit(
                entries: CommitLedger = entries,
                queue: str = queue,
                consumer: str = consumer,
                numbers: Iterator[int] = numbers,
                count: int = count,
            ) -> None:
                number = next(numbers)
                partitions = tuple(
                    PartitionRange(partition, number, number + 1) for partition in range(count)
                )
                source = SourceRange("local", queue, consumer, partitions)
                batch = MicroBatch(
                    f"query-{count}", number, "run", (source,) if count else (), stateful=False
                )
                BatchCommit(
                    entries,
                    batch,
                    self._connection,
                    policy=RetryPolicy(),
                    emit=emitter(),
                    connections=4,
                    advance_consumer=True,
                ).commit(whole([]))

            yield from self._timed("commit", {f"no rows, {count} partitions": commit})

    def _cluster_commands(self) -> Iterator[Timing]:
        client = self._connection.pinned().sender(0).client
        ledger = f"{HOME}/ledger"
        key = {"query_id": "query-1", "target": "//target"}

        def transaction() -> None:
            client.abort_transaction(client.start_transaction(type="tablet", sticky=True))

        target = self._table("rows-one-by-one", self._samples[0].shape.columns())
        row = self._samples[0].batch.slice(0, 1).to_pylist()
        commands = {
            "insert one row, as a dict": lambda: self._client.insert_rows(target, row),
            "get": lambda: client.get(f"{ledger}/@id"),
            "look a row up": lambda: list(client.lookup_rows(ledger, [key])),
            "start and abort a transaction": transaction,
        }
        for name, command in commands.items():
            yield from self._timed("cluster", {name: command}, repetitions=10 * self._repetitions)

    def _timed(
        self,
        part: str,
        works: Mapping[str, Callable[[], object]],
        rows: int = 0,
        size: int = 0,
        *,
        repetitions: int | None = None,
    ) -> Iterator[Timing]:
        """Measure pieces of work in turn, and count the round trips of each, once."""
        requests = []
        for work in works.values():
            work()  # what is done only once does not count
            before = self._cluster.request_counts()
            work()
            requests.append((self._cluster.request_counts() - before).total())
        measured = in_turn(list(works.values()), repetitions or self._repetitions)
        for name, times, trips in zip(works, measured, requests, strict=True):
            yield Timing(part, name, times.seconds, times.cpu_seconds, rows, size, trips)

    def _table(self, name: str, schema: list[dict[str, Any]], **attributes: Any) -> str:
        path = f"{HOME}/{name}"
        self._client.create(
            "table", path, attributes={"dynamic": True, "schema": schema, **attributes}
        )
        self._client.mount_table(path, sync=True)
        return path

    def _consumer(self, queue: str) -> str:
        path = f"{queue}-consumer"
        self._client.create("queue_consumer", path)
        self._client.mount_table(path, sync=True)
        self._client.register_queue_consumer(queue, path, vital=False)
        return path
