"""One transaction: its requests, calls made at the same time, and how it ends."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from types import SimpleNamespace

import pytest
from yt.common import YtError

from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.config import WriteOptions
from yt_exactly_once.errors import AccessError, CommitOutcomeUnknownError, ConflictError
from yt_exactly_once.ytsaurus import transaction
from yt_exactly_once.ytsaurus.sender import Sender
from yt_exactly_once.ytsaurus.transaction import TabletTransaction, TransactionAhead


class Line:
    """A sender that knows its number and how many calls it serves at once."""

    def __init__(self, number):
        self.number = number
        self.busy = threading.Lock()

    def send(self, _command, _parameters, call):
        assert self.busy.acquire(blocking=False), "a sender is not for two threads"
        call(self.number)
        self.busy.release()


@pytest.fixture
def opened():
    with ThreadPoolExecutor(8) as pool:
        yield lambda connections: TabletTransaction(
            "1-2-3-4", [Line(number) for number in range(connections)], pool, proxy="proxy"
        )


def test_calls_meet_each_on_a_sender_of_its_own(opened):
    """None of them could end if they were made one after the other."""
    meeting = threading.Barrier(3, timeout=30)
    used = []

    def meet(number):
        used.append(number)
        meeting.wait()

    payload = SimpleNamespace(data=meet, deletes=False)
    opened(4).side_by_side([lambda sender: sender.write("//t", [payload], "yson")] * 3)
    assert sorted(used) == [0, 1, 2]


def test_lease_is_renewed_until_the_block_ends_whatever_fails(opened):
    """Who writes into the transaction meets its end; the one that waits has nothing to say."""
    pinged = threading.Semaphore(0)

    class Pinged(Line):
        def send(self, *sent):
            assert sent == ("ping_transaction", {"transaction_id": "1-2-3-4"}, None)
            pinged.release()
            raise YtError("told")

    held = opened(1)
    held._senders = [Pinged(0)]
    with held.kept_alive(0.01):
        for _ in range(3):
            assert pinged.acquire(timeout=30)
    while pinged.acquire(blocking=False):
        """Forget those that were under way."""
    assert not pinged.acquire(timeout=0.1)


@pytest.mark.parametrize("connections", [1, 2, 3, 9])
def test_results_come_in_the_order_of_the_calls(opened, connections):
    """However few senders there are."""
    calls = [lambda _, number=number: number for number in range(7)]
    assert opened(connections).side_by_side(calls) == list(range(7))
    assert opened(connections).side_by_side([]) == []


def test_first_failure_is_raised_when_all_calls_have_ended(opened):
    """A call that is still under way could write after the abort."""
    late = threading.Event()
    ended = []

    def fail(_):
        late.set()
        raise ValueError("first")

    def end_later(_):
        assert late.wait(30)
        ended.append(True)
        raise KeyError("second")

    with pytest.raises(ValueError, match="first"):
        opened(2).side_by_side([fail, end_later])
    assert ended == [True]


@pytest.fixture
def interrupted(monkeypatch):
    """Interrupt the first wait, once a call is under way; let the call end when it is waited for again.

    Returns:
        What a call does: it notes when it ends.
    """
    entered, leave, waits = threading.Event(), threading.Event(), []

    def end_later(ended):
        entered.set()
        assert leave.wait(30)
        ended.append("under way")

    def interrupted_once(futures):
        if not waits:
            waits.append(True)
            assert entered.wait(30)
            raise KeyboardInterrupt
        leave.set()
        return wait(futures)

    monkeypatch.setattr(transaction, "wait", interrupted_once)
    return end_later


def test_interrupt_waits_for_the_calls_under_way(opened, interrupted):
    """Whoever aborts then finds no sender at work."""
    ended = []
    with pytest.raises(KeyboardInterrupt):
        opened(2).side_by_side([lambda _: interrupted(ended)] * 2)
    assert ended


def test_interrupt_cancels_the_calls_that_have_not_begun(interrupted):
    """Nobody wants their writes any more."""
    made = []
    with ThreadPoolExecutor(1) as pool:
        opened = TabletTransaction("1-2-3-4", [Line(0), Line(1)], pool, proxy="proxy")
        with pytest.raises(KeyboardInterrupt):
            opened.side_by_side([lambda _: interrupted(made), lambda _: made.append("waiting")])
    assert made == ["under way"]


def test_transaction_ahead_is_read_when_it_has_begun():
    """On another thread, with senders of its own; a failure is raised where the result is wanted."""
    senders = [Line(number) for number in range(3)]
    with ThreadPoolExecutor(1) as thread:
        opened = TabletTransaction("1-2-3-4", senders, thread, proxy="proxy")
        ahead = TransactionAhead(thread, lambda: opened, lambda read: read._senders, 2)
        assert ahead.transaction()._senders == senders[:2]
        assert ahead.read() == senders[2:]

        def fail():
            raise ConflictError("told")

        failed = TransactionAhead(thread, fail, lambda opened: opened, 2)
        for result in (failed.transaction, failed.read):
            with pytest.raises(ConflictError):
                result()


class Recorder:
    """A sender that remembers its commands, and may refuse one.

    Attributes:
        commands: name, parameters, body; a format as its name, and what becomes of null.
    """

    look_up = Sender.look_up
    client = None

    def __init__(self, **answers):
        self.answers, self.commands, self.fails = answers, [], {}

    def send(self, command, parameters, body=None):
        told = {
            name: (str(value), value.attributes.get(CONVERSION)) if "format" in name else value
            for name, value in parameters.items()
        }
        self.commands.append((command, told, body))
        if command in self.fails:
            raise self.fails[command]
        return self.answers.get(command, b"")


CONVERSION = "enable_null_to_yson_entity_conversion"
YSON = ("yson", None)


def recorded(**answers):
    sender = Recorder(start_transaction=b'{transaction_id="1-2-3-4"}', **answers)
    began = TabletTransaction.start([sender], None, timedelta(seconds=2.5), proxy="proxy")
    asked = {"type": "tablet", "sticky": True, "timeout": 2500, "output_format": YSON}
    assert sender.commands.pop() == ("start_transaction", asked, None)
    return sender, began


def test_every_request_goes_into_the_transaction_that_was_started():
    """A tablet transaction with the lease asked for, in milliseconds."""
    sender, began = recorded(lookup_rows=b"{a=1};#;", select_rows=b"rows")
    assert (began.id, began.proxy) == ("1-2-3-4", "proxy")
    assert began.lookup("//t", ({"k": 1}, {"k": 2})) == [{"a": 1}, None]
    began.insert("//t", ({"a": 1},))
    began.delete("//t", ({"k": 1},))
    assert began.select("//t", ["a"], limit=1) == b"rows"
    assert began.lookup_columns("//t", b"{k=1};", ("a",)) == b"{a=1};#;"
    began.commit()
    began.abort()
    assert [parameters["transaction_id"] for _, parameters, _ in sender.commands] == ["1-2-3-4"] * 7


def test_no_keys_are_no_request():
    """Nobody needs the answer."""
    sender, began = recorded()
    assert began.lookup("//t", []) == []
    assert sender.commands == []


@pytest.mark.parametrize(("limit", "read"), [(10, 1_000_000), (1_000_001, 1_000_001)])
def test_select_reads_as_many_rows_as_are_wanted(limit, read):
    """The cluster's own limit is lower."""
    sender, began = recorded()
    began.select("//t", ("a", "b"), limit=limit)
    ((_, parameters, _),) = sender.commands
    assert parameters["query"] == f"[a], [b] from [//t] limit {limit}"
    assert (parameters["input_row_limit"], parameters["output_row_limit"]) == (read, read)


@pytest.mark.parametrize("wire", ["arrow", "yson"])
@pytest.mark.parametrize("asked", [False, True])
def test_payloads_are_written_and_deleted_in_their_order(wire, asked):
    """Keys are YSON in either wire format; options that were not asked for are left to the cluster."""
    sender, began = recorded()
    payloads = [
        Payload(1, b"old", deletes=True),
        Payload(2, b"new"),
        Payload(1, b"key", deletes=True),
    ]
    began.write("//t", payloads, wire, WriteOptions(update=asked, aggregate=asked))
    options = dict.fromkeys(("update", "aggregate"), True) if asked else {}
    there = {"path": "//t", "transaction_id": "1-2-3-4"}
    assert sender.commands == [
        ("delete_rows", {**there, "input_format": YSON}, b"old"),
        ("insert_rows", {**there, "input_format": (wire, False), **options}, b"new"),
        ("delete_rows", {**there, "input_format": YSON}, b"key"),
    ]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (YtError("told", code=1700), ConflictError),
        (YtError("told", code=901), AccessError),
        (YtError("told", code=105), CommitOutcomeUnknownError),
        (ConnectionResetError("told"), CommitOutcomeUnknownError),
        (YtError("told", code=11000), CommitOutcomeUnknownError),
    ],
)
def test_a_failed_commit_is_refused_or_unknown(failure, error):
    """Unknown unless the answer proves that nothing was applied."""
    sender, began = recorded()
    sender.fails["commit_transaction"] = failure
    with pytest.raises(error) as caught:
        began.commit()
    assert caught.value.where["transaction"] == "1-2-3-4"
    assert caught.value.where["proxy"] == "proxy"


def test_an_abort_that_fails_is_quiet():
    """The error that led to it matters more."""
    sender, began = recorded()
    sender.fails["abort_transaction"] = ConnectionResetError("told")
    began.abort()
    assert len(sender.commands) == 1


def test_an_error_inside_the_transaction_names_it():
    """And the table."""
    sender, began = recorded()
    sender.fails["insert_rows"] = YtError("told", code=1700)
    with pytest.raises(ConflictError) as caught:
        began.insert("//t", [{}])
    assert caught.value.where == {"transaction": "1-2-3-4", "proxy": "proxy", "path": "//t"}
