"""Generated programs: everything that a user may deploy, with one or two things out of the ordinary.

Plain choices come first everywhere, so that an example shrinks to what matters.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.callers.mishaps import Death, How, Request
from tests.callers.program import (
    INTERNAL_NAMES,
    SPARK_NAMES,
    SYSTEM_NAMES,
    Call,
    Function,
    Layout,
    OnError,
    Part,
    Program,
    Run,
    Source,
)
from yt_exactly_once.config import DeliveryMode
from yt_exactly_once.observability import Event

MOST_BATCHES, MOST_ROWS = 3, 5


class Theme(StrEnum):
    """What is out of the ordinary in a program; all of it at once would show nothing but errors."""

    CALLS = "how often and from where the sinks are called"
    ERRORS = "what the function does about errors"
    LAYOUT = "where the rows lie, and in which order"
    REJECTS = "rows that go to a table of their own"
    ZEROS = "keys that are equal and look different"
    ANY = "what an older proxy makes of a column"
    NAMES = "names of columns"
    LEDGER = "a ledger that is gone"
    LISTENER = "a metrics hook that raises"
    EMPTY = "batches without rows before the first ones, and restarts"
    TARGET = "a target that changes"
    PARTS = "batches in parts, and Arrow batches of other sizes"
    NEWER = "what a newer version of the package has left"


def rarely(choices: SearchStrategy[Any], usual: Any, *, one_in: int = 4) -> SearchStrategy[Any]:
    """Return the usual choice, and another one now and then."""
    return st.integers(0, one_in - 1).flatmap(
        lambda number: choices if number == one_in - 1 else st.just(usual)
    )


def calls_of(themes: Collection[Theme]) -> SearchStrategy[Call]:
    """Return calls in which nothing but the themes is out of the ordinary."""
    parts = [Part.EVEN, Part.ODD, Part.NONE]
    choices: dict[str, SearchStrategy[Any]] = {}
    if Theme.CALLS in themes:
        choices["part"] = rarely(st.sampled_from(parts), Part.ALL, one_in=2)
        choices["sink"] = rarely(st.sampled_from(["b", "new"]), "a", one_in=2)
    if Theme.ZEROS in themes:
        choices["layout"] = st.sampled_from([Layout.AS_READ, Layout.LOCAL])
    if Theme.LAYOUT in themes:
        choices["part"] = rarely(st.sampled_from(parts), Part.ALL)
        choices["layout"] = st.sampled_from(Layout)
        choices["since"] = rarely(st.integers(1, MOST_BATCHES - 1), 0)
    if Theme.ERRORS in themes:
        choices["on_error"] = st.sampled_from(OnError)
    return st.builds(Call, **choices)


def functions_of(themes: Collection[Theme]) -> SearchStrategy[Function]:
    """Return functions in which nothing but the themes is out of the ordinary."""
    calls = calls_of(themes)
    empty = rarely(st.just(value=True), usual=False, one_in=1 if Theme.EMPTY in themes else 4)
    one = st.builds(lambda call, skips: Function((call,), skips_empty=skips), calls, empty)
    if Theme.CALLS not in themes:
        return one
    several = st.builds(
        Function,
        calls=st.lists(calls, max_size=2).map(tuple),
        threads=rarely(st.sampled_from([1, 2, 3, 100]), 0, one_in=2),
        skips=rarely(st.frozensets(st.integers(0, MOST_BATCHES - 1), max_size=1), frozenset()),
    )
    return st.one_of(one, several)


names = st.one_of(
    st.lists(st.sampled_from(SPARK_NAMES + SYSTEM_NAMES), max_size=4, unique=True).map(tuple),
    st.sampled_from(INTERNAL_NAMES).map(lambda name: (name,)),
)

deaths = st.builds(
    Death,
    request=st.sampled_from([Request.PUSH, Request.COMMIT, *Request]),
    number=st.one_of(st.integers(0, 3), st.integers(0, 6)),
    how=st.sampled_from(How),
)


def runs_of(themes: Collection[Theme]) -> SearchStrategy[Run]:
    """Return runs, without mode and function."""
    events = [event.value for event in Event]
    errors = Theme.ERRORS in themes and Theme.LEDGER not in themes
    listener = rarely(st.sampled_from(events), "", one_in=2)
    return st.builds(
        Run,
        cores=st.integers(1, 3),
        wire=rarely(st.just("yson"), "auto"),
        death=st.one_of(st.none(), deaths),
        unlogged=rarely(
            st.integers(0, MOST_BATCHES - 1), None, one_in=2 if Theme.LEDGER in themes else 4
        ),
        batches=rarely(
            st.integers(1, MOST_BATCHES), None, one_in=2 if Theme.EMPTY in themes else 4
        ),
        listener=listener if Theme.LISTENER in themes else st.just(""),
        ledger_removed=st.booleans() if Theme.LEDGER in themes else st.just(value=False),
        ledger_restored=st.booleans() if Theme.LEDGER in themes else st.just(value=False),
        put_back=rarely(st.integers(0, MOST_BATCHES - 2), None, one_in=3)
        if Theme.LEDGER in themes
        else st.none(),
        sessions_lost=rarely(st.just(value=True), usual=False, one_in=3)
        if Theme.LEDGER in themes
        else st.just(value=False),
        # An error that is swallowed while nothing is noted, and the driver's end after it.
        read_only=st.booleans() if errors else st.just(value=False),
        accepts=rarely(st.integers(0, MOST_BATCHES - 1), None),
        newer=st.sampled_from(["", "entry", "offset"]) if Theme.NEWER in themes else st.just(""),
        looks=st.booleans() if Theme.TARGET in themes else st.just(value=False),
        tablets=st.sampled_from([None, 1, 3]) if Theme.TARGET in themes else st.none(),
        retyped=st.booleans() if Theme.TARGET in themes else st.just(value=False),
        arrow_rows=st.sampled_from([10_000, 4, 3, 1]) if Theme.PARTS in themes else st.just(10_000),
    )


@st.composite
def programs(draw: DrawFn) -> Program:
    """Draw a program whose options go together."""
    themes = draw(st.sets(st.sampled_from(Theme), min_size=1, max_size=2))
    modes = st.sampled_from(DeliveryMode)
    if not themes.isdisjoint({Theme.REJECTS, Theme.ZEROS, Theme.PARTS}):
        modes = st.just(DeliveryMode.TRANSACTIONAL)
    elif Theme.LAYOUT in themes:
        modes = st.sampled_from([DeliveryMode.IDEMPOTENT, DeliveryMode.IDEMPOTENT, *DeliveryMode])
    mode, functions = draw(modes), functions_of(themes)
    function = draw(functions)
    several = tuple(
        replace(
            run,
            mode=draw(rarely(modes, mode, one_in=8)),
            function=draw(rarely(functions, function)),
        )
        for run in draw(st.lists(runs_of(themes), min_size=1, max_size=3))
    )
    is_sorted = Theme.ZEROS in themes or draw(rarely(st.just(value=True), usual=False, one_in=3))
    numbered = draw(st.booleans())
    placements = ["partition", "round_robin", *["preserve"] * numbered]
    kinds = "." if themes.isdisjoint({Theme.REJECTS, Theme.ERRORS}) else ".x"
    texts = st.text(
        st.sampled_from(".0-Dd" if Theme.ZEROS in themes else kinds),
        min_size=draw(st.sampled_from([0, MOST_ROWS - 1])),
        max_size=MOST_ROWS,
    )
    width = draw(st.integers(1, 2))
    batches = st.lists(st.tuples(*[texts] * width), min_size=1, max_size=MOST_BATCHES)
    rows = draw(batches)
    if Theme.EMPTY in themes:
        rows = [*[("",) * width] * draw(st.integers(1, 2)), *rows]
    return Program(
        runs=several,
        rows=tuple(rows),
        source=draw(st.sampled_from(Source)),
        numbered=numbered,
        is_sorted=is_sorted,
        placement=draw(rarely(st.sampled_from(placements), "partition", one_in=2)),
        rejects=Theme.REJECTS in themes and Theme.ZEROS not in themes,
        marker=Theme.ZEROS in themes,
        has_any=not themes.isdisjoint({Theme.ANY, Theme.PARTS}),
        parts=Theme.PARTS in themes,
        old_proxy=Theme.ANY in themes and draw(st.booleans()),
        names=draw(names) if Theme.NAMES in themes else (),
    )


@st.composite
def programs_in_format(draw: DrawFn) -> Program:
    """Draw a program for the format: short runs, one call, modes that change."""
    modes = st.sampled_from(
        [DeliveryMode.TRANSACTIONAL, DeliveryMode.IDEMPOTENT] * 3 + [*DeliveryMode]
    )
    parts = rarely(st.sampled_from([Part.EVEN, Part.ODD]), Part.ALL)
    refused = st.builds(Death, st.just(Request.COMMIT), st.integers(0, 1), st.just(How.REFUSED))
    runs = st.builds(
        Run,
        mode=modes,
        function=st.builds(lambda part: Function((Call(part),)), parts),
        death=st.one_of(st.none(), refused, refused, deaths),
        unlogged=rarely(st.integers(0, MOST_BATCHES - 1), None),
        batches=st.sampled_from([1, None]),
        ledger_restored=rarely(st.just(value=True), usual=False, one_in=8),
    )
    width = draw(st.integers(1, 2))
    texts = st.text(".", min_size=1, max_size=3)
    rows = draw(st.lists(st.tuples(*[texts] * width), min_size=2, max_size=MOST_BATCHES))
    return Program(
        runs=tuple(draw(st.lists(runs, min_size=2, max_size=5))),
        rows=tuple(rows),
        source=draw(st.sampled_from([Source.CONSUMER, Source.QUEUE])),
        numbered=True,
        is_sorted=draw(rarely(st.just(value=True), usual=False)),
        names=draw(rarely(names, ())),
    )
