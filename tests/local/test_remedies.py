"""One table of what the product tells people to do, and the case in which a test does it as it is printed.

A text with a command has a row. The case of the row follows the text, and asserts that it did. What cannot be
followed has a reason, and whatever it names must exist.
"""

import ast

import pytest

from tests import remedies
from tests.local.operated import QUEUE_SCHEMA, Operated
from tests.local.test_advice_of_errors import BREAKS, mounts, static, without_atomicity
from tests.tiers import first_of
from yt_exactly_once import advice


def _rows_expire(query):
    for path in (query.queue, query.target):
        query.client.set(f"{path}/@min_data_versions", 0)
        query.client.set(f"{path}/@max_data_ttl", 3_600_000)


def _consumer_expires(query):
    query.client.set(f"{query.consumer}/@expiration_timeout", 3_600_000)


def _beyond_the_end(query):
    query.client.advance_queue_consumer(query.consumer, query.queue, 1, None, 99)


def _consumer_is_a_table(query):
    query.client.remove(query.consumer)
    query.create_table(query.consumer, QUEUE_SCHEMA)


def _column_is_new(query):
    query.columns = ("value", "n")


STARTS = {
    "target lacks a column": _column_is_new,
    "target never created": lambda query: query.client.remove(query.target),
    "target static": static("target"),
    "target without atomicity": without_atomicity("target"),
    "consumer never created": lambda query: query.client.remove(query.consumer),
    "consumer is a table": _consumer_is_a_table,
    "consumer beyond the end": _beyond_the_end,
    "consumer never registered": lambda query: query.client.unregister_queue_consumer(
        query.queue, query.consumer
    ),
    "rows expire": _rows_expire,
    "consumer expires": _consumer_expires,
    "nothing mounted": mounts("unmount_table", "queue", "consumer", "target"),
    "all frozen": mounts("freeze_table", "queue", "consumer", "target"),
}
"""What is wrong before the first start of a query."""

SINK = {
    "mode misspelt": {"mode": "transactionl"},
    "option misspelt": {"conections": 2},
    "dead letters in a mode of tasks": {"mode": "idempotent", "dead_letter_path": "//tmp/letters"},
    "tasks and several transactions": {"sent_by": "tasks", "split_oversized": True},
    "backend misspelt": {"backend": "htp"},
}
TARGET = {
    "upsert into an ordered target": {"write": "upsert"},
    "replace without a query": {"write": "replace"},
    "deletes in an ordered target": {"delete_marker": "gone"},
    "keys of an ordered target": {"unique_keys": True},
    "rule misspelt": {"placement": "partitio"},
    "sums without a query": {"aggregate": ("value",)},
    "replace in a mode of tasks": {"write": "replace"},
}
SOURCE = {
    "source option misspelt": {"max_rows_per_trigger": "5"},
    "no number": {"max_rows_per_partition": "0"},
    "no boolean": {"fail_on_data_loss": "perhaps"},
    "no place": {"starting_offsets": "first"},
}

_ROUNDS = 2
"""The doctor looks at a consumer only where its queue can be read."""

OPTIONS = SINK | TARGET | SOURCE
"""Options that are wrong."""


ELSEWHERE = {
    "more tablets",
    "queue recreated",
    "queue recreated, and trimmed by itself",
    "consumer of two queries",
    "ledger and queue unmounted",
    "fewer tablets for tombstones",
    "tombstones gone",
    "tombstones never end",
    "tombstones of another shape",
    "claims expire too early",
}
"""Cases of tests of their own: here, and in other files of this folder."""


@pytest.fixture
def query(cluster, tmp, tmp_path):
    made = Operated(cluster, tmp, tmp_path / "checkpoint").create()
    made.feed(4)
    return made


@pytest.mark.parametrize("broken", first_of(STARTS, count=2))
def test_query_starts_after_what_doctor_or_the_errors_say(query, broken):
    """Doctor finds all of it, an error only what stops the query."""
    STARTS[broken](query)
    for _ in range(_ROUNDS):
        for repair in query.repairs(levels=("problem ", "warning ")):
            query.follow(repair)
    assert query.repairs() == []
    query.restart_with_advice()
    query.assert_exact()
    assert remedies.unfollowed(broken, query.followed) == []


@pytest.mark.parametrize("broken", first_of(STARTS, count=0))
def test_query_starts_after_what_the_errors_say(query, broken):
    """Without asking anybody."""
    STARTS[broken](query)
    query.restart_with_advice()
    query.assert_exact()


@pytest.mark.parametrize("broken", first_of(OPTIONS, count=3))
def test_option_is_changed_as_the_error_says(query, broken):
    """The program then runs."""
    for given, cases in (
        (query.options, SINK),
        (query.target_options, TARGET),
        (query.source_options, SOURCE),
    ):
        given.update(cases.get(broken, {}))
    if broken == "replace in a mode of tasks":
        query.options["mode"] = "at-least-once"
    assert query.restart_with_advice()
    query.assert_exact()


def test_target_gets_the_tablets_that_are_advised(query):
    """Tasks need one for each Spark partition."""
    query.follow(advice.reshard(query.target, 3))
    assert query.client.get(f"{query.target}/@tablet_count") == 3
    assert query.restart_with_advice() == []
    query.assert_exact()
    assert remedies.unfollowed("more tablets", query.followed) == []


def test_every_command_that_the_product_advises_has_a_row():
    """A new one is followed by a test, or says why it cannot be; a row that is not used is gone."""
    assert [one for one in remedies.of_the_product() if one.commands and not one.row] == []
    assert {one.row for one in remedies.of_the_product()} - {""} == set(remedies.ROWS)
    cases = {*STARTS, *OPTIONS, *BREAKS, *ELSEWHERE}
    assert {how for how in remedies.ROWS.values() if how not in remedies.REASONS} <= cases


def test_first_text_of_a_function_without_a_docstring_is_one_of_its_texts():
    for body in ("'Says it.'\n return 'look at it'", "return 'look at it'"):
        (function,) = ast.parse(f"def advice():\n {body}").body
        assert [each.value for each in remedies._texts(function)] == ["look at it"]


def test_every_command_can_be_typed_as_it_is_printed():
    """In advice and on the pages."""
    commands = [command for one in remedies.of_the_product() for command in one.commands]
    assert [fault for one in commands if (fault := remedies.fault_of(one))] == []


def test_what_advice_names_exists():
    """Options, flags, pages with their sections, extras; and it says what to do."""
    assert {
        one.place: wrong for one in remedies.of_the_product() if (wrong := remedies.unknown(one))
    } == {}


def test_settings_that_the_page_of_causes_names_exist():
    """Spark has them."""
    page = (remedies.ROOT / "docs/how-to/find-the-cause.md").read_text(encoding="utf-8")
    assert (
        remedies.unknown(
            remedies.Advice("page", f"use {' '.join(remedies._SETTING.findall(page))}")
        )
        == []
    )
