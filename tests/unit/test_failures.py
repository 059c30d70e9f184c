"""From what the client raises to what the package raises, wherever the code hides in the tree."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from yt import yson
from yt.common import YtError
from yt.packages.requests.exceptions import ConnectionError as TransportError
from yt.wrapper.errors import YtTokenError

from yt_exactly_once import errors
from yt_exactly_once.config import RetryPolicy
from yt_exactly_once.retrying import run_attempts
from yt_exactly_once.ytsaurus import failures, proofs
from yt_exactly_once.ytsaurus.transaction import TabletTransaction


def nested(code, text="The cause."):
    cause = YtError(text, code=code)
    return YtError("Error committing", inner_errors=[YtError("Inner", inner_errors=[cause])])


def translation(error):
    """Return what becomes of an error of the client."""
    with (
        pytest.raises(errors.ExactlyOnceError) as raised,
        failures.translated("commit", transaction="1-2-3-4"),
    ):
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("code", "kind", "is_certain"),
    [
        (1700, errors.ConflictError, True),
        (1712, errors.ConflictError, True),
        (1729, errors.TransactionTooOldError, True),
        (11000, errors.TransactionLostError, False),
        (11003, errors.TransactionLostError, False),
        (3100, errors.OffsetConflictError, False),
        (3101, errors.ProducerFencedError, False),
        (3102, errors.ProducerFencedError, False),
        (1717, errors.BatchTooLargeError, True),
        (402, errors.ConflictError, False),
        (903, errors.AccessError, False),
        (98_765, errors.RequestRefusedError, False),
        (1702, errors.ClusterUnavailableError, True),
        (3, errors.ClusterUnavailableError, False),
        (100, errors.ClusterUnavailableError, False),
        (105, errors.ClusterUnavailableError, False),
        (11004, errors.ClusterUnavailableError, False),
        (11005, errors.ClusterUnavailableError, False),
        (901, errors.AccessError, True),
        (500, errors.TableNotFoundError, True),
        (307, errors.SchemaMismatchError, True),
        (1, errors.RequestRefusedError, False),
    ],
)
def test_code_is_found_wherever_it_is_nested(code, kind, is_certain):
    """Commit errors arrive wrapped twice; the message is the cause's own.

    A code proves that a commit was not applied only if the server raises it before it commits anything.
    """
    error = translation(nested(code))
    assert type(error) is kind
    assert str(error).startswith("Could not commit: The cause [transaction=1-2-3-4].")
    assert isinstance(error.__cause__, YtError)
    assert proofs.leaves_outcome_unknown(nested(code)) is not is_certain


@pytest.mark.parametrize("answer", [b"", b'{"a"=', b"[1;"])
def test_answer_that_breaks_off_is_no_answer(answer):
    """A proxy that was killed may have carried out the request; other YSON errors are no reason to retry."""
    with pytest.raises(YtError) as broken:
        yson.loads(answer)
    assert type(translation(broken.value)) is errors.ClusterUnavailableError
    assert proofs.leaves_outcome_unknown(broken.value)
    with pytest.raises(YtError) as strange:
        yson.loads(b"}")
    assert type(translation(strange.value)) is errors.RequestRefusedError


class Asked:
    """A client of a user who may write the first table only."""

    def check_permission(self, user, permission, path):
        assert (user, permission) == ("robot", "write")
        return {"action": "allow" if path == "//a" else "deny"}


@pytest.mark.parametrize(
    ("text", "attributes", "where", "path"),
    [
        ("permission for node //t is", {"permission": "write", "path": "//t"}, {}, "//t"),
        ("permission is", {"permission": ["write"]}, {"path": "//t"}, "//t"),
        ("permission is", {"permission": ["write"]}, {"among": ["//a", "//b"]}, "//b"),
        ('permission for account "x" is', {"permission": ["write"]}, {}, "//sys/accounts/x"),
    ],
    ids=["by a master", "by a proxy", "at a commit", "of an account"],
)
def test_missing_permission_is_named_with_its_object_and_remedy(text, attributes, where, path):
    """Whoever says it, and however deep: user, right, path, and the command for an administrator."""
    cause = YtError(
        f"Access denied: {text} not allowed", 901, attributes={"user": "robot", **attributes}
    )
    error = YtError("Error committing", inner_errors=[cause.simplify()])
    with (
        pytest.raises(errors.AccessError) as raised,
        failures.translated("commit", asked=Asked, **where),
    ):
        raise error
    entry = "{action=allow;subjects=[robot];permissions=[write]}"
    assert raised.value.remedy.endswith(f"yt set '{path}/@acl/end' '{entry}'")
    assert path in str(raised.value)


def test_rows_that_an_entry_hides_need_full_read():
    """Who is told so may read the table already."""
    cause = YtError(
        'Access denied for user "robot": row-level ACL is present, but is not supported by this method yet',
        901,
        attributes={"user": "robot", "permission": "read"},
    )
    with pytest.raises(errors.AccessError) as raised, failures.translated("read rows", path="//t"):
        raise cause
    entry = "{action=allow;subjects=[robot];permissions=[full_read]}"
    assert raised.value.remedy.endswith(f"yt set '//t/@acl/end' '{entry}'")


def test_inner_errors_stay_as_the_cluster_tells_them():
    """Without the name and the time of this machine, and without a code that the cluster did not give."""
    inner = {"message": "deep", "attributes": {"path": "//t"}}
    assert failures.codes_in(YtError("outer", 100, inner_errors=[inner])) == [100, 0]
    assert inner["attributes"] == {"path": "//t"}


def test_missing_registration_is_told_from_a_missing_permission():
    """Both have the code 901; only the text differs."""
    error = translation(nested(901, 'Consumer "//c" is not registered for queue "//q"'))
    assert type(error) is errors.ConsumerNotRegisteredError


def test_refused_token_names_the_variable():
    """The remedy is to pass a token."""
    error = translation(YtTokenError("denied"))
    assert type(error) is errors.AccessError
    assert "YT_TOKEN" in str(error)


def test_late_answer_of_a_proxy_without_pings_leaves_the_outcome_open():
    """The cells may have applied the commit, and a new attempt finds out."""
    error = nested(1, "Transaction could not be pinged within timeout and is considered expired")
    assert type(translation(error)) is errors.TransactionLostError
    assert proofs.leaves_outcome_unknown(error)


def test_one_unknown_code_beside_a_proof_leaves_the_outcome_open():
    """Nobody has shown what it means."""
    both = YtError("Error committing", inner_errors=[nested(1700), nested(98_765)])
    assert proofs.leaves_outcome_unknown(both)


EVERY_FAILURE = [
    *(
        pytest.param(failure, nested(code), id=str(code))
        for failure in failures.CODED
        for code in failure.codes
    ),
    pytest.param(
        failures.REFUSED_USER,
        YtError("User validation failed", 1, inner_errors=[nested(500).simplify()]),
        id="unknown user",
    ),
    pytest.param(failures.REFUSED_USER, nested(1, 'User "u" is banned'), id="banned user"),
    pytest.param(failures.NO_ANSWER, TransportError("reset"), id="no answer"),
    pytest.param(failures.NO_CELL, nested(1, "Unknown cell 0-0-0-0"), id="no cell"),
    pytest.param(
        failures.NO_REGISTRATIONS,
        YtError(
            "Queue consumer registration resolution failed", 1, inner_errors=[nested(1).simplify()]
        ),
        id="no registrations",
    ),
    pytest.param(
        failures.NOT_PINGED, nested(1, "... could not be pinged within timeout"), id="no ping"
    ),
    pytest.param(failures.ANYTHING_ELSE, nested(98_765), id="any other"),
]


@pytest.mark.parametrize(("failure", "error"), EVERY_FAILURE)
def test_what_the_table_says_is_what_is_done(failure, error):
    """A failure is repeated exactly when its row says so, and raised as its row says."""
    numbers = []

    def attempt(number):
        numbers.append(number)
        with failures.translated("read rows"):
            raise error

    repeated = issubclass(failure.error, errors.TransientError)
    with pytest.raises(errors.RetriesExhaustedError if repeated else failure.error):
        run_attempts(attempt, RetryPolicy(attempts=2), lambda *_, **__: None, sleep=lambda _: None)
    assert numbers == [1, 2][: 1 + repeated]


IDLE = ThreadPoolExecutor(1)
"""Threads that nothing is given to."""


class Refusing:
    """A sender whose commit fails."""

    def __init__(self, error):
        self.error = error

    client = None

    def send(self, *_sent):
        raise self.error


@pytest.mark.parametrize(("failure", "error"), EVERY_FAILURE)
def test_what_the_table_says_of_a_commit_is_what_is_done(failure, error):
    """The ledger is asked unless the code is a proof."""
    is_proof = not proofs.PROOFS.keys().isdisjoint(failures.codes_in(error))
    with pytest.raises(failure.error if is_proof else errors.CommitOutcomeUnknownError):
        TabletTransaction("1-2-3-4", [Refusing(error)], IDLE, proxy="proxy").commit()


def test_a_proof_is_a_code_of_the_table():
    """The page of retries gives its name."""
    assert proofs.PROOFS.keys() <= {code for row in failures.CODED for code in row.codes}


def test_a_code_is_in_one_row_only():
    """Otherwise the order of the rows would decide what is done about it."""
    codes = [code for failure in failures.CODED for code in failure.codes]
    assert len(codes) == len(set(codes))
