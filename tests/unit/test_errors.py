"""The exception tree: one root, pickling, messages that name place and remedy."""

import inspect
import pickle

import pytest

from yt_exactly_once import errors
from yt_exactly_once.errors import ExactlyOnceError, TransientError

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, BaseException)
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling(kind):
    """Spark moves errors between processes; nothing of them may be lost on the way."""
    assert issubclass(kind, ExactlyOnceError)
    error = kind("It broke", remedy="Mend it", query="q", batch=7)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.what, copy.remedy, copy.where) == (error.what, error.remedy, error.where)
    assert str(copy) == "It broke [query=q, batch=7]. Mend it."


TRANSIENT = "Conflict ClusterUnavailable TransactionLost CommitOutcomeUnknown"
FATAL = "Fenced OffsetConflict LedgerDiverged SchemaMismatch"


@pytest.mark.parametrize(("names", "is_transient"), [(TRANSIENT, True), (FATAL, False)])
def test_errors_that_a_new_attempt_may_cure_are_transient(names, is_transient):
    """The retry policy looks at this class alone. Repeating what a person must decide would hide it."""
    for name in names.split():
        assert issubclass(getattr(errors, f"{name}Error"), TransientError) is is_transient
