"""Generated programs: everything that a user may deploy, mostly with one thing out of the ordinary.

Plain choices come first everywhere, so that an example shrinks to what matters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.callers.mishaps import Death, How, Request
from tests.callers.program import (
    INTERNAL_NAMES,
    Call,
    Function,
    Layout,
    OnError,
    Part,
    Program,
    Run,
    Source,
)
from yt_exactly_once.config import WriteMode
from yt_exactly_once.observability import Event

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

MOST_BATCHES, MOST_ROWS = 3, 5


def rarely(choices: SearchStrategy[object], usual: object, *, one_in: int = 4) -> SearchStrategy:
    """Return the usual choice, and another one now and then."""
    return st.integers(0, one_in - 1).flatmap(
        lambda number: choices if number == one_in - 1 else st.just(usual)
    )


IN_MEMORY = [Layout.AS_READ, Layout.COALESCED, Layout.SHUFFLED, Layout.PERSISTED]

calls = st.builds(
    Call,
    part=rarely(st.sampled_from([Part.EVEN, Part.ODD, Part.NONE]), Part.ALL, one_in=2),
    layout=rarely(st.sampled_from(IN_MEMORY), Layout.AS_READ, one_in=2),
    since=rarely(st.integers(1, MOST_BATCHES - 1), 0),
    sink=rarely(st.sampled_from(["b", "new"]), "a"),
    on_error=rarely(st.sampled_from(OnError), OnError.RAISE, one_in=2),
)

functions = st.one_of(
    st.just(Function()),
    st.builds(lambda call: Function((call,)), calls),
    st.builds(
        Function,
        calls=st.lists(calls, max_size=2).map(tuple),
        threads=rarely(st.sampled_from([1, 2, 3, 100]), 0, one_in=2),
        skips=rarely(st.frozensets(st.integers(0, MOST_BATCHES - 1), max_size=1), frozenset()),
    ),
)

deaths = st.builds(
    Death,
    request=st.sampled_from(Request),
    number=st.integers(0, 6),
    how=st.sampled_from(How),
)

runs = st.builds(
    Run,
    cores=st.integers(1, 3),
    wire=rarely(st.just("yson"), "auto"),
    death=st.one_of(st.none(), deaths),
    unlogged=rarely(st.integers(0, MOST_BATCHES - 1), None),
    batches=rarely(st.integers(1, MOST_BATCHES), None),
    listener=rarely(st.sampled_from([event.value for event in Event]), "", one_in=8),
    ledger_removed=rarely(st.just(True), False, one_in=8),
)  # fmt: skip


@st.composite
def programs(draw: DrawFn) -> Program:
    """Draw a program whose options go together."""
    mode = draw(st.sampled_from(WriteMode))
    function = draw(functions)
    several = tuple(
        replace(
            run,
            mode=draw(rarely(st.sampled_from(WriteMode), mode, one_in=8)),
            function=draw(rarely(functions, function)),
        )
        for run in draw(st.lists(runs, min_size=1, max_size=3))
    )
    transactional = {run.mode for run in several} == {WriteMode.TRANSACTIONAL}
    is_sorted = draw(st.booleans())
    marker = is_sorted and transactional and draw(st.booleans())
    numbered = draw(st.booleans())
    placements = ["partition", "round_robin", *["preserve"] * numbered]
    width = draw(st.integers(1, 2))
    kinds = draw(st.sampled_from([".", ".x"])) if not marker else ".0-Dd"
    texts = st.text(st.sampled_from(kinds), max_size=MOST_ROWS)
    batches = st.lists(st.tuples(*[texts] * width), min_size=1, max_size=MOST_BATCHES)
    return Program(
        runs=several,
        rows=tuple(draw(batches)),
        source=draw(st.sampled_from(Source)),
        numbered=numbered,
        is_sorted=is_sorted,
        tablets=2,
        placement=draw(rarely(st.sampled_from(placements), "partition", one_in=2)),
        rejects=transactional and not is_sorted and draw(st.booleans()),
        marker=marker,
        has_any=draw(rarely(st.just(True), False)),
        old_proxy=draw(st.booleans()),
        internal=draw(rarely(st.sampled_from(INTERNAL_NAMES), "", one_in=8)),
    )


@st.composite
def programs_on_spark(draw: DrawFn) -> Program:
    """Draw a program for Spark: few batches of a fixed width, and layouts that hide shuffles."""
    mode = draw(st.sampled_from([WriteMode.IDEMPOTENT, *WriteMode]))
    laid_out = st.builds(
        Call,
        part=rarely(st.sampled_from([Part.EVEN, Part.ODD]), Part.ALL),
        layout=st.sampled_from(Layout),
        since=st.integers(0, 1),
        on_error=rarely(st.sampled_from(OnError), OnError.RAISE),
    )
    function = draw(
        st.one_of(
            st.builds(lambda call: Function((call,)), laid_out),
            st.builds(Function, st.lists(calls, max_size=2).map(tuple), st.sampled_from([0, 1])),
        )
    )
    dying = st.builds(
        Death,
        request=st.sampled_from([Request.PUSH, Request.COMMIT]),
        number=st.integers(0, 3),
        how=st.sampled_from([How.CRASH_BEFORE, How.CRASH_AFTER]),
    )
    first = Run(
        mode,
        function,
        cores=draw(st.integers(1, 3)),
        death=draw(st.one_of(st.none(), dying)),
        unlogged=draw(rarely(st.just(0), None)),
    )
    # The last one starts once more with the cores of the one before.
    other = replace(first, cores=draw(st.integers(1, 3)), death=None, unlogged=None)
    kinds = draw(rarely(st.just(".x"), "."))
    full = st.text(st.sampled_from(kinds), min_size=MOST_ROWS, max_size=MOST_ROWS)
    rest = st.text(st.sampled_from(kinds), min_size=1, max_size=MOST_ROWS)
    width = draw(st.integers(1, 2))
    return Program(
        runs=(first,) if other.cores == first.cores else (first, other),
        rows=(draw(st.tuples(*[full] * width)), draw(st.tuples(*[rest] * width))),
        source=draw(st.sampled_from(Source)),
        numbered=draw(st.booleans()),
        is_sorted=draw(rarely(st.just(True), False)),
    )
