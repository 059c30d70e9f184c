"""Writing encoded rows from a task: into a table, or through a queue-producer session.

Every call is one request on the pinned proxy, without retries. A retried insert may write its rows twice. A
retried push does not, since the session remembers the last number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from yt import yson
from yt.wrapper import YsonFormat

from yt_exactly_once.config import PLAIN_WRITE, WriteOptions
from yt_exactly_once.errors import ProducerDivergedError, TableNotDynamicError, TableNotFoundError
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.reading import literal
from yt_exactly_once.ytsaurus.sender import WIRES, YSON
from yt_exactly_once.ytsaurus.tables import describe_table

if TYPE_CHECKING:
    from yt_exactly_once.ytsaurus.client import Connection


def insert_payload(
    connection: Connection,
    path: str,
    payload: bytes | memoryview,
    wire: str,
    options: WriteOptions = PLAIN_WRITE,
) -> None:
    """Write one payload in its own transaction, which the proxy begins and commits.

    Raises:
        ClusterUnavailableError: no answer; the rows may have been written.
    """
    with connection.sending() as sender, translated("write rows", path=path):
        parameters = {"path": path, "input_format": WIRES[wire], **options.parameters}
        sender.send("insert_rows", parameters, payload)


class SessionState(NamedTuple):
    """What the last push stored in a producer session.

    Attributes:
        sequence_number: the last number the session has written, -1 before the first.
        format: version of what that push stored; 0 before the first.
        run: run of the query.
        batch: number of the batch.
        task: Spark partition of the task.
        digest: digest of that batch's rows in the session.
    """

    sequence_number: int
    format: int = 0
    run: str | None = None
    batch: int | None = None
    task: int | None = None
    digest: str | None = None

    @classmethod
    def of(cls, number: Any, user_meta: Mapping[str, Any] | None) -> SessionState:
        """Return what the cluster keeps of a push."""
        known = {
            name: value for name, value in (user_meta or {}).items() if name in cls._fields[1:]
        }
        return cls(int(number), **known)


def session_prefix(query_id: str, target: str) -> str:
    """Return how the names of a query's sessions for a target begin."""
    return f"{query_id}:{target}:"


def sessions_of(connection: Connection, producer: str, prefix: str) -> dict[str, SessionState]:
    """Return what the last pushes stored, by session; raise `TableNotMountedError` if it cannot be read.

    Args:
        producer: path of the producer table; any other object has no sessions.
    """
    try:
        info = describe_table(connection, producer)
    except (TableNotFoundError, TableNotDynamicError):
        return {}
    wanted = {"session_id", "sequence_number", "user_meta"}
    if not wanted <= {column["name"] for column in info.schema}:
        return {}
    info.require_mounted()
    with translated("read the producer sessions", producer=producer):
        rows = connection.reader.select_rows(
            f"session_id, sequence_number, user_meta from [{producer}] "
            f"where is_prefix({literal(prefix)}, session_id)",
            format=YsonFormat(),
        )
        return {
            row["session_id"]: SessionState.of(row["sequence_number"], row["user_meta"])
            for row in rows
        }


@dataclass(frozen=True)
class ProducerSession:
    """A queue-producer session that this task owns until another client creates it again.

    Attributes:
        queue: path of the ordered target.
        epoch: increases with every creation; pushes with an older one are refused.
        state: what the last push stored there.
    """

    producer: str
    queue: str
    session_id: str
    epoch: int
    state: SessionState

    @classmethod
    def create(
        cls, connection: Connection, producer: str, queue: str, session_id: str
    ) -> ProducerSession:
        """Create the session, or take it over and fence its owner."""
        session = producer, queue, session_id
        answer = _sent(
            connection, "create the producer session", "create_queue_producer_session", session
        )
        state = SessionState.of(answer["sequence_number"], answer.get("user_meta"))
        return cls(*session, int(answer["epoch"]), state)

    def push(
        self,
        connection: Connection,
        payload: bytes | memoryview,
        wire: str,
        last_number: int,
        user_meta: dict[str, Any],
    ) -> ProducerSession:
        """Append rows with numbers that all exceed the session's last one.

        Args:
            payload: rows with `$sequence_number`, at least one.
            last_number: number of the last row.

        Returns:
            The session as it is now.

        Raises:
            ProducerFencedError: a newer attempt owns the session.
            ProducerDivergedError: the proxy skipped rows as duplicates, or the session moved back.
            ClusterUnavailableError: no answer; a retry resolves the outcome.
        """
        session = self.producer, self.queue, self.session_id
        answer = _sent(
            connection,
            "push rows",
            "push_queue_producer",
            session,
            payload,
            epoch=self.epoch,
            user_meta=user_meta,
            input_format=WIRES[wire],
        )
        # A proxy that saw an empty body, or skipped rows, answers with success.
        skipped, last = int(answer["skipped_row_count"]), int(answer["last_sequence_number"])
        if skipped or last != last_number:
            raise ProducerDivergedError(
                f"The push left the session at {last} with {skipped} rows skipped, expected "
                f"{last_number} and none",
                remedy="Another client writes through this session. Only this query may use it",
                producer=self.producer,
                queue=self.queue,
                session=self.session_id,
            )
        return replace(self, state=SessionState.of(last, user_meta))


def _sent(
    connection: Connection,
    action: str,
    command: str,
    session: tuple[str, str, str],
    rows: bytes | memoryview | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Send a command of a producer session, and return the answer."""
    producer, queue, name = session
    where = {"producer": producer, "queue": queue, "session": name}
    named = {"producer_path": producer, "queue_path": queue, "session_id": name}
    with (
        connection.sending() as sender,
        translated(action, asked=lambda: connection.reader, among=(queue, producer), **where),
    ):
        answer = sender.send(command, {**named, "output_format": YSON, **more}, rows)
        return dict(yson.loads(answer))
