"""Key ranges and row limits: what a query reads, and what it may read."""

from collections.abc import Iterator

import pytest

from tests.contract.tables import columns, key_columns
from tests.local.ql_tables import Tables, opened
from yt_exactly_once.local.errors import Code

TABLETS = 3


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with opened() as found:
        rows = [
            {"a": a, "s": s, "v": 1}
            for a in (None, -3, 0, 1, 2**62)
            for s in (None, b"", b"a", b"ab")
        ]
        rows += [{"a": 7, "s": bytes((byte, 0, 255)), "v": 2} for byte in (0, 97, 255)]
        found.create("//sorted", [*key_columns(a="int64", s="string"), *columns(v="int64")], rows)
        found.create(
            "//unsigned",
            [*key_columns(u="uint64"), *columns(v="int64")],
            [{"u": u, "v": 1} for u in (0, 1, 2**63 - 1, 2**63, 2**64 - 1)],
        )
        found.create(
            "//ordered",
            columns(v="int64"),
            [{"v": i, "$tablet_index": i % TABLETS} for i in range(60)],
        )
        (hashed,) = key_columns(h="uint64")
        hashed["expression"] = "farm_hash(k)"
        found.create(
            "//hashed", [hashed, *key_columns(k="int64"), *columns(v="int64")], [{"k": 1, "v": 1}]
        )
        yield found


SEEKING = [
    ("//sorted", "a = 1"),
    ("//sorted", "a = null"),
    ("//sorted", "a is null"),
    ("//sorted", "1 = a and v > 0"),
    ("//sorted", "a > 0"),
    ("//sorted", "a >= 0 and a < 7"),
    ("//sorted", "0 <= a"),
    ("//sorted", "a between -5 and 1"),
    ("//sorted", "a between (-5 and -1, 1 and 6)"),
    ("//sorted", "a in (1, 7, null)"),
    ("//sorted", "a = 7 and s = 'a\\x00\\xff'"),
    ("//sorted", "a = 7 and s >= 'a'"),
    ("//sorted", "a = 0 and s < 'ab'"),
    ("//sorted", "a = 0 and is_prefix('a', s)"),
    ("//sorted", "a = 7 and is_prefix('\\xff', s)"),
    ("//sorted", "(a, s) = (1, 'ab')"),
    ("//sorted", "(a, s) in ((1, 'ab'), (0, null), (5, 'x'))"),
    ("//sorted", "(a, s) > (1, 'a')"),
    ("//sorted", "(a, s) <= (1, 'a') and a >= 0"),
    ("//sorted", "a = 1 or a = 0 and s = 'a'"),
    ("//sorted", "a in (0, 1) and s in ('', 'ab')"),
    ("//unsigned", "u > 9223372036854775807"),
    ("//unsigned", "u >= 9223372036854775808u"),
    ("//unsigned", "u < 9223372036854775808u"),
    ("//unsigned", "u in (0, 18446744073709551615u)"),
    ("//unsigned", "u = -1"),
    ("//ordered", "[$tablet_index] = 0 and [$row_index] between 10 and 15"),
    ("//ordered", "[$tablet_index] = 1 and [$row_index] >= 18"),
    ("//ordered", "[$tablet_index] = 2 and [$row_index] < 2"),
    ("//ordered", "[$tablet_index] = 1"),
    ("//ordered", "[$tablet_index] in (0, 2) and [$row_index] in (3, 5)"),
    ("//ordered", "([$tablet_index], [$row_index]) >= (2, 17)"),
    (
        "//ordered",
        "[$tablet_index] = 0 and [$row_index] > 2 or [$tablet_index] = 1 and [$row_index] = 1",
    ),
    ("//ordered", "[$tablet_index] = 0 and [$row_index] > null"),
    ("//ordered", "[$tablet_index] = -1"),
    ("//ordered", "[$tablet_index] between 1 and 2"),
]


@pytest.mark.parametrize(("path", "condition"), SEEKING)
def test_condition_on_the_key_seeks_and_finds_the_same_rows(
    tables: Tables, path: str, condition: str
) -> None:
    """A range saves the scan and changes nothing about the answer."""
    scan = f"* from [{path}] where if(v < 0, true, {condition})"
    query = f"* from [{path}] where {condition}"
    assert tables.select(query, allow_full_scan=False) == tables.select(scan)
    assert not tables.scans(lambda: tables.select(query))


@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("//sorted", "v = 1"),
        ("//sorted", "s = 'a'"),
        ("//sorted", "a + 1 = 2"),
        ("//sorted", "a != 1"),
        ("//sorted", "a = 1 or v = 1"),
        ("//sorted", "not a = 1"),
        ("//ordered", "[$row_index] = 1"),
        ("//ordered", "v = 1"),
        ("//hashed", "v = 1"),
        ("//ordered", "true"),
    ],
)
def test_full_scan_is_refused_when_forbidden(tables: Tables, path: str, condition: str) -> None:
    """Without a condition on the leading key column every row would be read."""
    query = f"v from [{path}] where {condition}"
    assert tables.select(query)
    error = tables.refusal(query, allow_full_scan=False)
    assert error.message.startswith("Primary table key is not used in the where clause (full scan)")


@pytest.mark.parametrize("condition", ["a > 5 and a < 3", "false", "a = 1 and a in (2, 3)"])
def test_impossible_condition_reads_nothing(tables: Tables, condition: str) -> None:
    """Ranges that contradict each other are empty."""
    assert tables.column(f"v from [//sorted] where {condition}", input_row_limit=1) == []


def test_many_ranges_are_found_through_the_key(tables: Tables) -> None:
    """A long list of keys is neither a scan nor a statement that SQLite refuses."""
    wanted = ", ".join(f"({index % TABLETS}, {index})" for index in range(3000))
    query = f"v from [//ordered] where ([$tablet_index], [$row_index]) in ({wanted})"
    rows = sorted((index % TABLETS, index) for index in range(20))
    assert tables.column(query) == [index * TABLETS + tablet for tablet, index in rows]


@pytest.mark.parametrize(
    ("query", "option", "limit", "code", "count"),
    [
        # Rows that are read count, whether they qualify or not.
        ("v from [//ordered] where v = 1", "input_row_limit", 60, Code.QUERY_INPUT_ROW_LIMIT_EXCEEDED, 1),
        ("v from [//ordered]", "output_row_limit", 59, Code.QUERY_OUTPUT_ROW_LIMIT_EXCEEDED, 60),
    ],
)  # fmt: skip
def test_rows_over_a_limit_fail_with_its_code(
    tables: Tables, query: str, option: str, limit: int, code: Code, count: int
) -> None:
    """An answer that does not fit is an error, not a shorter answer."""
    error = tables.refusal(query, **{option: limit})
    assert (error.code, error.attributes) == (code, {option: limit})
    assert len(tables.column(query, **{option: limit + 1})) == count


def test_input_limit_counts_rows_in_the_key_range_only(tables: Tables) -> None:
    """What is not read is not counted."""
    condition = "[$tablet_index] = 0 and [$row_index] < 3"
    assert tables.column(f"v from [//ordered] where {condition}", input_row_limit=4) == [0, 3, 6]
    assert tables.column("v from [//ordered] limit 2", input_row_limit=2) == [0, 3]


def test_incomplete_answer_is_accepted_on_request(tables: Tables) -> None:
    """It is then made of the first rows."""
    query, partial = "sum(1) as n from [//ordered] group by 1", {"fail_on_incomplete_result": False}
    assert tables.column(query, input_row_limit=10, **partial) == [10]
    error = tables.refusal(query, output_row_limit=-1)
    assert error.message == "Negative output row limit is forbidden"


def test_computed_column_is_fixed_by_its_arguments(tables: Tables) -> None:
    """A point of the arguments is a point of the key, so that one row is read."""
    query = "v from [//hashed] where k in (1, 2) and v > 0"
    assert tables.column(query, input_row_limit=2, allow_full_scan=False) == [1]
    assert not tables.scans(lambda: tables.select(query))
