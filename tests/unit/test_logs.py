"""Events as log lines: readable without a configuration, and the application's own affair with one."""

import logging

import pytest
import structlog

from yt_exactly_once.observability import LOGGER_NAME, Event, emitter
from yt_exactly_once.observability.events import level_of
from yt_exactly_once.observability.logs import line
from yt_exactly_once.ytsaurus.client_noise import CLIENT, held_back

LOGGER = logging.getLogger(LOGGER_NAME)

COMMITTED = {
    "query": "q-1",
    "batch": 17,
    "target": "//home/app/result",
    "mode": "transactional",
    "rows": 4_000,
    "attempts": 1,
    "transaction": "1-2-3-4",
    "seconds": {"look_up": 0.01, "compute": 0.2, "commit": 0.1234},
}


def test_line_begins_with_what_readers_look_for():
    assert line(Event.BATCH_COMMITTED, COMMITTED) == (
        "batch.committed batch=17 rows=4000 seconds=look_up:0.010,compute:0.200,commit:0.123 attempts=1 "
        "target=//home/app/result query=q-1 mode=transactional transaction=1-2-3-4"
    )


def test_error_of_many_lines_is_one_line_at_the_end():
    fields = {"error": "no\n  answer", "wait": 0.5, "attempt": 2, "proxy": "host:80"}
    assert line(Event.RETRY_SCHEDULED, fields) == (
        "retry.scheduled attempt=2 wait=0.500 proxy=host:80: no answer"
    )


def test_names_in_an_event_begin_no_line_and_command_no_terminal():
    fields = {"target": "//t\nbatch.committed", "error": "no\x1b[2K \u202eanswer"}
    assert line(Event.BATCH_FAILED, fields) == (
        "batch.failed target=//t␊batch.committed: no␛[2K \ufffdanswer"
    )


def to_own_format():
    logging.basicConfig(format="own %(message)s")


def to_structlog():
    structlog.configure(processors=[structlog.processors.JSONRenderer()])


@pytest.mark.parametrize(
    ("configure", "seen"),
    [
        (
            lambda: None,
            ["INFO yt_exactly_once: batch.committed", "WARNING yt_exactly_once: batch.skipped"],
        ),
        (lambda: LOGGER.setLevel("WARNING"), ["WARNING yt_exactly_once: batch.skipped"]),
        (lambda: LOGGER.setLevel("DEBUG"), ["batch.started", "batch.committed", "batch.skipped"]),
        (to_own_format, ["own batch.skipped batch=3 rows=5"]),
        (lambda: LOGGER.addHandler(logging.NullHandler()), []),
        (logging.disable, []),
        (to_structlog, []),
    ],
    ids=["nothing", "lower", "higher", "own format", "own handler", "disabled", "structlog"],
)
def test_application_decides_and_without_a_decision_batches_are_shown(
    configure, seen, monkeypatch, capsys
):
    """Whatever it configures is obeyed; stderr is written to only if it configures nothing."""
    for logger in (logging.root, LOGGER):
        monkeypatch.setattr(logger, "handlers", [])
    structlog.reset_defaults()  # other tests capture its logs, which leaves it configured
    emit = emitter(batch=3, target="//t")
    try:
        configure()
        emit(Event.BATCH_STARTED)
        emit(Event.BATCH_COMMITTED, rows=5)
        emit(Event.BATCH_SKIPPED, reason="replay", rows=5)
    finally:
        structlog.reset_defaults()
        logging.disable(logging.NOTSET)
        LOGGER.setLevel(logging.NOTSET)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == len(seen)
    assert all(part in found for part, found in zip(seen, lines, strict=True))
    assert captured.out.count('"batch": 3') == 3 * (configure is to_structlog)


def test_application_gets_event_and_fields_of_a_record(caplog):
    """For handlers that write JSON."""
    structlog.reset_defaults()
    with caplog.at_level("INFO", LOGGER_NAME):
        emitter(batch=3)(Event.BATCH_COMMITTED, rows=5)
    (record,) = caplog.records
    assert (record.event, record.fields) == ("batch.committed", {"batch": 3, "rows": 5})


@pytest.mark.parametrize(
    ("fields", "level"),
    [({"rows": 5}, "warning"), ({"rows": 0}, "info"), ({"reason": "empty"}, "info")],
)
def test_skip_of_a_batch_with_rows_is_a_warning(fields, level):
    assert level_of(Event.BATCH_SKIPPED, fields) == level


def test_noise_of_the_client_is_held_back_only_during_our_calls(caplog, monkeypatch):
    """The application's own calls log as ever; ours are there at debug."""
    shown = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())
    monkeypatch.setattr(CLIENT, "handlers", [handler])
    with caplog.at_level("DEBUG", LOGGER_NAME):
        CLIENT.warning("of the %s", "application")
        with held_back():
            CLIENT.error("of ours")
        CLIENT.warning("of the application again")
    assert shown == ["of the application", "of the application again"]
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        (f"{LOGGER_NAME}.client", "of ours")
    ]


def test_user_who_sets_the_clients_level_sees_all_of_it(monkeypatch):
    from yt import logger_config

    monkeypatch.setattr(logger_config, "LOG_LEVEL", "Debug")
    shown = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())
    monkeypatch.setattr(CLIENT, "handlers", [handler])
    with held_back():
        CLIENT.warning("of ours")
    assert shown == ["of ours"]
