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
def test_every_error_derives_from_the_root(kind):
    """Catching the root catches all of them."""
    assert issubclass(kind, ExactlyOnceError)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling(kind):
    """Spark moves errors between processes; nothing of them may be lost on the way."""
    error = kind("It broke", remedy="Mend it", query="q", batch=7)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.what, copy.remedy, copy.where) == (error.what, error.remedy, error.where)
    assert str(copy) == "It broke [query=q, batch=7]. Mend it."


@pytest.mark.parametrize(
    "name",
    [
        "ConflictError",
        "ClusterUnavailableError",
        "TransactionLostError",
        "CommitOutcomeUnknownError",
    ],
)
def test_errors_that_a_new_attempt_may_cure_are_transient(name):
    """The retry policy looks at this class alone."""
    assert issubclass(getattr(errors, name), TransientError)


@pytest.mark.parametrize(
    "name", ["FencedError", "OffsetConflictError", "LedgerDivergedError", "SchemaMismatchError"]
)
def test_errors_that_a_person_must_decide_are_not_transient(name):
    """Repeating these would hide them."""
    assert not issubclass(getattr(errors, name), TransientError)
