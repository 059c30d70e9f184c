"""The HTML page about queries: what it shows, and that it needs nothing else."""

import re
from html.parser import HTMLParser

import pytest

from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.operations import query_status
from yt_exactly_once.operations.ledgers import LedgerRow
from yt_exactly_once.operations.report import Happening, History, Mark, page, round_ticks

VOID = {"meta", "line", "polyline"}


def query(batch=3, delivered=7, path="//t", problem="", name="flights"):
    part = query_status.PartitionStatus(0, delivered, delivered, delivered, 0, 10, 2.0)
    queue = query_status.QueueStatus("c", "//q", "//c", True, True, False, (part,), problem=problem)
    target = query_status.TargetStatus(
        path=path, rows=4, total_rows=14_000, total_batches=batch + 1
    )
    entry = LedgerEntry(
        "query-12345",
        path,
        batch,
        "run",
        "tx",
        {},
        mode="transactional",
        seconds=0.5,
        query_name=name,
    )
    return query_status.QueryStatus(LedgerRow("//l", entry), 5.0, (target,), (queue,))


class Balanced(HTMLParser):
    """Fails on a tag that is not closed, and notes what the page would load."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attrs):
        self.loads += [value for name, value in attrs if name in {"src", "href"}]
        assert tag != "script"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def checked(made):
    parser = Balanced()
    parser.feed(made)
    assert (parser.open, parser.loads) == ([], [])
    return made


def test_page_shows_verdict_time_line_lag_and_offsets():
    """It is one well-formed document that loads nothing."""
    history = History()
    history.marks += [
        Mark(100.0, Happening.STARTED),
        Mark(101.0, Happening.REPLAYED, "flights", 2),
        Mark(102.0, Happening.KILLED, note="in a commit"),
    ]
    history.look([query(batch=2, delivered=3)], 100.5)
    history.look([query()], 103.0)
    history.look([query(batch=1234)], 104.0)
    made = checked(page("Demo", history, facts=[("kills", "1")], verdict="Exactly once"))
    for shown in (
        "Exactly once",
        "Time line",
        "flights, replayed and skipped, batch 2",
        "killed, in a commit",
        "flights, committed, batch 3, 4 rows",
        "<polyline",
        "//q",
        "14,000",
        ">1234<",
    ):
        assert shown in made
    assert [mark.what for mark in history.marks][-1] is Happening.COMMITTED
    assert history.lags == {"flights": [(100.5, 7), (103.0, 3), (104.0, 3)]}


def test_lines_and_ticks_differ():
    """With many queries, and in a watch of a few seconds."""
    history = History()
    for at in (1.0, 6.0):
        history.look([query(path=f"//t{n}", name=f"q{n}") for n in range(7)], at)
    made = checked(page("Queries", history))
    lines = re.findall(r'<polyline stroke="([^"]+)"', made)
    assert len(set(lines)) == 7
    assert re.findall(r'text-anchor="middle">([^<]+)<', made)[:6] == [
        *("0 s", "1 s", "2 s", "3 s", "4 s", "5 s")
    ]


@pytest.mark.parametrize(
    ("span", "ticks"),
    [
        (1, "0 0.2 0.4 0.6 0.8 1"),
        (7.3, "0 2 4 6"),
        (61, "0 10 20 30 40 50 60"),
        (900, "0 200 400 600 800"),
    ],
)
def test_ticks_are_round(span, ticks):
    """Numbers that a reader adds up at a glance."""
    assert " ".join(f"{tick:g}" for tick in round_ticks(span)) == ticks


def test_page_of_one_look_has_no_time_line():
    """There is nothing to draw; problems are said, and text of others is no markup."""
    history = History()
    history.look([query(path="//t<b>\u202e", problem="is <gone>")], 5.0)
    made = checked(page("Queries", history))
    assert "Time line" not in made
    assert "//t&lt;b&gt;\ufffd" in made
    assert "is &lt;gone&gt;" in made


def test_page_without_queries_says_so_and_failed_verdict_is_marked():
    made = checked(page("Queries", History(), verdict="NOT exact", is_good=False))
    assert "verdict bad" in made
