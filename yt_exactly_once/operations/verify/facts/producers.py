"""Facts about queue producers: sessions, epochs and numbers, which idempotent mode rests on."""

from __future__ import annotations

import uuid
from typing import Any

from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.errors import ProducerFencedError
from yt_exactly_once.operations.verify.stage import CONFLICT, Facts, Stage, expect
from yt_exactly_once.ytsaurus.failures import translated
from yt_exactly_once.ytsaurus.rows import ProducerSession, sessions_of

_INVALID_EPOCH, _ZOMBIE = (ProducerFencedError, 3101), (ProducerFencedError, 3102)

_QUEUES = "yt/yt/client/driver/queue_commands.cpp"

fact = Facts("Queue producers", features=(DeliveryMode.IDEMPOTENT,), source=_QUEUES)


def _session(stage: Stage, name: str) -> ProducerSession:
    return ProducerSession.create(stage.connection, stage.path("producer"), stage.path("log"), name)


def _push(stage: Stage, session: ProducerSession, *numbers: int) -> ProducerSession:
    meta = {"run": "verify", "batch": numbers[-1]}
    rows = b"".join(b'{"v"="%d";"$sequence_number"=%d;};' % (one, one) for one in numbers)
    return session.push(stage.connection, rows, "yson", numbers[-1], meta)


def _answer(
    stage: Stage, session: ProducerSession, *numbers: int, client: Any = None
) -> dict[str, Any]:
    """Push without the checks of the package, and return the answer."""
    rows = [{"v": str(number), "$sequence_number": number} for number in numbers]
    with translated("push rows"):
        answer: dict[str, Any] = (client or stage.client).push_queue_producer(
            session.producer, session.queue, session.session_id, session.epoch, rows
        )
    return answer


@fact("producer.session")
def _sessions(stage: Stage) -> None:
    """A session begins at -1. It keeps the last number and the notes of the last push, and each creation
    raises its epoch.

    A retried task would not know which rows it has pushed. Do not use mode='idempotent' with ordered targets
    on this cluster.
    """
    offset = stage.end("log")
    first = _session(stage, "session")
    expect(
        first.state.sequence_number == -1,
        f"a new session begins at {first.state.sequence_number}, expected -1",
    )
    _push(stage, first, 3, 7)
    stage.appears("log", "3", "7", offset=offset)
    second = _session(stage, "session")
    expect(second.epoch > first.epoch, "the epoch does not grow when a session is created again")
    expect(
        (second.state.sequence_number, second.state.batch) == (7, 7),
        f"a session that was taken over says {second.state}, expected the last push: 7",
    )


@fact("producer.skips")
def _skips(stage: Stage) -> None:
    """Rows that a session already has are skipped, and the answer says how many.

    A push that arrives late could repeat rows. Do not use mode='idempotent' with ordered targets on this
    cluster.
    """
    offset = stage.end("log")
    session = _session(stage, "skips")
    _answer(stage, session, 1, 2)
    answer = _answer(stage, session, 1, 2, 3)
    found = (int(answer["skipped_row_count"]), int(answer["last_sequence_number"]))
    expect(found == (2, 3), f"of rows 1, 2 and 3 after 1 and 2, skipped and last are {found}")
    stage.appears("log", "1", "2", "3", offset=offset)


@fact("producer.epochs")
def _epochs(stage: Stage) -> None:
    """A push with an old epoch is refused with code 3102, one with a future epoch with 3101.

    Two attempts of a task could both write. Do not use mode='idempotent' with ordered targets on this
    cluster.
    """
    old = _session(stage, "epochs")
    new = _session(stage, "epochs")
    with stage.refuses(_ZOMBIE, "rows of a session that another task took over are accepted"):
        _push(stage, old, 1)
    future = ProducerSession(new.producer, new.queue, new.session_id, new.epoch + 5, new.state)
    with stage.refuses(_INVALID_EPOCH, "rows with an epoch that nobody got are accepted"):
        _push(stage, future, 1)


@fact("producer.take-over")
def _take_over(stage: Stage) -> None:
    """A push that is under way while another task takes the session over is refused at its commit.

    A slow attempt of a task could write after the next one. Do not use mode='idempotent' with ordered targets
    on this cluster.
    """
    offset = stage.end("log")
    session = _session(stage, "late")
    with stage.transaction() as transaction:
        inside = stage.connection.pinned().sender(0).client
        with inside.Transaction(transaction_id=transaction.id, ping=False, acquire=False):
            _answer(stage, session, 1, client=inside)
        _session(stage, "late")
        but = "a push that began before another task took the session over was committed after it"
        with stage.refuses(CONFLICT, but):
            transaction.commit()
    stage.insert("log", {"v": "after the zombie"})
    stage.appears("log", "after the zombie", offset=offset)


@fact("producer.listing", source="user guide: queues, producers")
def _listed(stage: Stage) -> None:
    """Sessions are rows that a query finds by the prefix of their id, with the notes of the last push.

    A changed replay would not be found before it is written.
    """
    prefix = f"listed-{uuid.uuid4().hex}/"
    _push(stage, _session(stage, f"{prefix}1"), 5)
    _session(stage, "other")
    found = sessions_of(stage.connection, stage.path("producer"), prefix)
    state = found.get(f"{prefix}1")
    expect(
        len(found) == 1
        and state is not None
        and (state.sequence_number, state.run) == (5, "verify"),
        f"of the sessions with a prefix, {len(found)} are found",
    )


@fact("producer.null-of-any", source="TInsertRowsFormatConfig in yt/yt/client/driver")
def _null_of_any(stage: Stage) -> None:
    """A push stores a null of an any column as a null.

    is_null does not find such nulls. In queries, compare with a YSON entity too.
    """
    session = _session(stage, "null")
    body = b'{"v"="null of any";"x"=#;"$sequence_number"=1;};'
    session.push(stage.connection, body, "yson", 1, {})
    query = f'v from [{stage.path("log")}] where v = "null of any" and is_null(x)'
    stage.wait(
        lambda: bool(list(stage.client.select_rows(query))),
        lambda: "a null of an any column is no null to a query after a push",
    )
