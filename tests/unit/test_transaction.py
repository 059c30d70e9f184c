"""One transaction: its requests, calls made at the same time, and how it ends."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from io import BytesIO

import pytest
from yt.common import YtError

from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.errors import AccessError, CommitOutcomeUnknownError, ConflictError
from yt_exactly_once.ytsaurus import transaction
from yt_exactly_once.ytsaurus.transaction import TabletTransaction, TransactionAhead


class Client:
    """A client that knows its number and how many calls it serves at once."""

    def __init__(self, number):
        self.number = number
        self.busy = threading.Lock()

    def Transaction(self, **_options):  # noqa: N802 - as the client has it
        return contextlib.nullcontext()

    def insert_rows(self, _path, rows, **_options):
        assert self.busy.acquire(blocking=False), "a client is not for two threads"
        rows[0](self.number)
        self.busy.release()


@pytest.fixture
def opened():
    with ThreadPoolExecutor(8) as pool:
        yield lambda clients: TabletTransaction(
            "1-2-3-4", [Client(number) for number in range(clients)], pool, proxy="proxy"
        )


def test_calls_meet_each_on_a_client_of_its_own(opened):
    """None of them could end if they were made one after the other."""
    meeting = threading.Barrier(3, timeout=30)
    used = []

    def meet(number):
        used.append(number)
        meeting.wait()

    opened(4).side_by_side([lambda lane: lane.insert("//t", [meet])] * 3)
    assert sorted(used) == [0, 1, 2]


def test_lease_is_renewed_until_the_block_ends_whatever_fails(opened):
    """Who writes into the transaction meets its end; the one that waits has nothing to say."""
    pinged = threading.Semaphore(0)

    class Pinged(Client):
        def ping_transaction(self, number):
            assert number == "1-2-3-4"
            pinged.release()
            raise YtError("told")

    held = opened(1)
    held._clients = [Pinged(0)]
    with held.kept_alive(0.01):
        for _ in range(3):
            assert pinged.acquire(timeout=30)
    while pinged.acquire(blocking=False):
        """Forget those that were under way."""
    assert not pinged.acquire(timeout=0.1)


@pytest.mark.parametrize("clients", [1, 2, 3, 9])
def test_results_come_in_the_order_of_the_calls(opened, clients):
    """However few clients there are."""
    calls = [lambda _, number=number: number for number in range(7)]
    assert opened(clients).side_by_side(calls) == list(range(7))
    assert opened(clients).side_by_side([]) == []


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


class Joining(Client):
    """A client that knows how many transactions it has joined, and may fail to join."""

    def __init__(self, number, *, fails=False):
        super().__init__(number)
        self.fails = fails
        self.joined = 0

    @contextlib.contextmanager
    def Transaction(self, **_options):  # noqa: N802 - as the client has it
        if self.fails:
            raise KeyboardInterrupt
        self.joined += 1
        try:
            yield
        finally:
            self.joined -= 1


def test_no_client_stays_joined_when_one_cannot_join():
    """The next transaction of that client would go into this one."""
    clients = [Joining(0), Joining(1, fails=True)]
    with pytest.raises(KeyboardInterrupt), ThreadPoolExecutor(1) as pool:
        TabletTransaction("1-2-3-4", clients, pool, proxy="proxy")
    assert clients[0].joined == 0


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
    """Whoever aborts then finds no client at work."""
    ended = []
    with pytest.raises(KeyboardInterrupt):
        opened(2).side_by_side([lambda _: interrupted(ended)] * 2)
    assert ended


def test_interrupt_cancels_the_calls_that_have_not_begun(interrupted):
    """Nobody wants their writes any more."""
    made = []
    with ThreadPoolExecutor(1) as pool:
        opened = TabletTransaction("1-2-3-4", [Client(0), Client(1)], pool, proxy="proxy")
        with pytest.raises(KeyboardInterrupt):
            opened.side_by_side([lambda _: interrupted(made), lambda _: made.append("waiting")])
    assert made == ["under way"]


def test_transaction_ahead_is_read_when_it_has_begun():
    """On another thread, with clients of its own; a failure is raised where the result is wanted."""
    clients = [Client(number) for number in range(3)]
    with ThreadPoolExecutor(1) as thread:
        opened = TabletTransaction("1-2-3-4", clients, thread, proxy="proxy")
        ahead = TransactionAhead(thread, lambda: opened, lambda read: read._clients, 2)
        assert ahead.transaction()._clients == clients[:2]
        assert ahead.read() == clients[2:]

        def fail():
            raise ConflictError("told")

        failed = TransactionAhead(thread, fail, lambda opened: opened, 2)
        for result in (failed.transaction, failed.read):
            with pytest.raises(ConflictError):
                result()


class Recorder:
    """A client that remembers its commands, with the transactions it has joined, and may refuse one.

    Attributes:
        commands: name, arguments, options; the format as its name, and what becomes of null.
        joined: ids of the transactions that commands go into now.
    """

    def __init__(self, **answers):
        self.answers, self.commands, self.joined, self.fails = answers, [], [], {}

    @contextlib.contextmanager
    def Transaction(self, *, transaction_id, ping, acquire):  # noqa: N802 - as the client has it
        assert (ping, acquire) == (False, False)
        self.joined.append(transaction_id)
        yield
        self.joined.remove(transaction_id)

    def __getattr__(self, name):
        def command(*arguments, **options):
            if "format" in options:
                kind = options["format"]
                options["format"] = (kind.name(), kind.attributes.get(CONVERSION))
            arguments = [one.read() if hasattr(one, "read") else one for one in arguments]
            self.commands.append((name, *arguments, options, list(self.joined)))
            if name in self.fails:
                raise self.fails[name]
            return self.answers.get(name)

        return command


CONVERSION = "enable_null_to_yson_entity_conversion"
YSON = ("yson", None)


def recorded(**answers):
    client = Recorder(start_transaction="1-2-3-4", **answers)
    began = TabletTransaction.start([client], None, timedelta(seconds=2.5), proxy="proxy")
    assert client.commands.pop() == (
        "start_transaction", {"type": "tablet", "sticky": True, "timeout": 2500}, []
    )  # fmt: skip
    return client, began


def test_transaction_that_a_task_leaves_lives_on():
    """The client is free for another one, and nothing is sent."""
    client, began = recorded()
    assert client.joined == ["1-2-3-4"]
    began.leave()
    assert (client.joined, client.commands) == ([], [])


def test_every_request_goes_into_the_transaction_that_was_started():
    """A tablet transaction with the lease asked for, in milliseconds."""
    client, began = recorded(lookup_rows=iter([{"a": 1}, None]))
    assert (began.id, began.proxy, client.joined) == ("1-2-3-4", "proxy", ["1-2-3-4"])
    assert began.lookup("//t", ({"k": 1}, {"k": 2})) == [{"a": 1}, None]
    began.insert("//t", ({"a": 1},))
    began.delete("//t", ({"k": 1},))
    assert client.commands == [
        ("lookup_rows", "//t", [{"k": 1}, {"k": 2}],
         {"keep_missing_rows": True, "format": YSON}, ["1-2-3-4"]),
        ("insert_rows", "//t", [{"a": 1}], {"format": YSON}, ["1-2-3-4"]),
        ("delete_rows", "//t", [{"k": 1}], {"format": YSON}, ["1-2-3-4"]),
    ]  # fmt: skip


def test_no_keys_are_no_request():
    """Nobody needs the answer."""
    client, began = recorded()
    assert began.lookup("//t", []) == []
    assert client.commands == []


@pytest.mark.parametrize(("limit", "read"), [(10, 1_000_000), (1_000_001, 1_000_001)])
def test_select_reads_as_many_rows_as_are_wanted(limit, read):
    """The cluster's own limit is lower."""
    client, began = recorded(select_rows=BytesIO(b"rows"))
    assert began.select("//t", ("a", "b"), limit=limit) == b"rows"
    limits = {"input_row_limit": read, "output_row_limit": read}
    assert client.commands == [
        ("select_rows", f"[a], [b] from [//t] limit {limit}",
         {**limits, "format": YSON, "raw": True}, ["1-2-3-4"]),
    ]  # fmt: skip


@pytest.mark.parametrize("wire", ["arrow", "yson"])
@pytest.mark.parametrize("asked", [False, True])
def test_payloads_are_written_and_deleted_in_their_order(wire, asked):
    """Keys are YSON in either wire format; options that were not asked for are left to the cluster."""
    client, began = recorded()
    payloads = [
        Payload(1, b"old", deletes=True),
        Payload(2, b"new"),
        Payload(1, b"key", deletes=True),
    ]
    began.write("//t", payloads, wire, **({"update": True, "aggregate": True} if asked else {}))
    options = {"update": asked or None, "aggregate": asked or None}
    assert [command[:4] for command in client.commands] == [
        ("delete_rows", "//t", b"old", {"format": YSON, "raw": True}),
        ("insert_rows", "//t", b"new", {"format": (wire, False), "raw": True, **options}),
        ("delete_rows", "//t", b"key", {"format": YSON, "raw": True}),
    ]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_ended_transaction_leaves_its_clients_to_the_next_one(end):
    """They leave it before the request that ends it, which names it."""
    client, began = recorded()
    getattr(began, end)()
    assert client.commands == [(f"{end}_transaction", "1-2-3-4", {}, [])]
    assert client.joined == []


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
    client, began = recorded()
    client.fails["commit_transaction"] = failure
    with pytest.raises(error) as caught:
        began.commit()
    assert caught.value.where["transaction"] == "1-2-3-4"
    assert caught.value.where["proxy"] == "proxy"


def test_an_abort_that_fails_is_quiet():
    """The error that led to it matters more."""
    client, began = recorded()
    client.fails["abort_transaction"] = ConnectionResetError("told")
    began.abort()
    assert len(client.commands) == 1


def test_an_error_inside_the_transaction_names_it():
    """And the table."""
    client, began = recorded()
    client.fails["insert_rows"] = YtError("told", code=1700)
    with pytest.raises(ConflictError) as caught:
        began.insert("//t", [{}])
    assert caught.value.where == {"transaction": "1-2-3-4", "proxy": "proxy", "path": "//t"}
