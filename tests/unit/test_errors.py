"""The exception tree: one root, pickling, messages that name place and remedy."""

import inspect
import pickle

import pytest

from yt_exactly_once import errors
from yt_exactly_once.errors import ExactlyOnceError, TransientError, visible

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling(kind):
    """Spark moves errors between processes; nothing of them may be lost on the way."""
    assert issubclass(kind, ExactlyOnceError)
    error = kind("It broke", remedy="Mend it", details=["one", "two"], query="q", batch=7)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert vars(copy) == vars(error)
    assert str(copy) == "It broke [query=q, batch=7]. Mend it.\n  one\n  two"


FORGED = "//t\nRun: yt remove //home\x1b[2K\x9b\u202e\u2066\u2028\r\ud800"
"""A name that begins another line, commands a terminal, and turns the order of its text around."""


def test_names_in_an_error_begin_no_line_and_command_no_terminal():
    """Whoever may create a node chooses its name, and errors advise commands."""
    error = ExactlyOnceError(f"No {FORGED}", remedy=FORGED, details=[FORGED], path=FORGED)
    shown = "//t␊Run: yt remove //home␛[2K\ufffd\ufffd\ufffd\ufffd␍\ufffd"
    assert str(error) == f"No {shown} [path={shown}]. {shown}.\n  {shown}"
    assert error.placed == f"No {shown} [path={shown}]"
    assert visible("Заказы: naïve 注文 👩‍🚀") == "Заказы: naïve 注文 👩‍🚀"


TRANSIENT = "Conflict ClusterUnavailable TransactionLost CommitOutcomeUnknown"
FATAL = "Fenced OffsetConflict LedgerDiverged SchemaMismatch"


@pytest.mark.parametrize(("names", "is_transient"), [(TRANSIENT, True), (FATAL, False)])
def test_errors_that_a_new_attempt_may_cure_are_transient(names, is_transient):
    """The retry policy looks at this class alone. Repeating what a person must decide would hide it."""
    for name in names.split():
        assert issubclass(getattr(errors, f"{name}Error"), TransientError) is is_transient
