"""The options of `select_rows` on their way from the client to the query language and back."""

from typing import Any

import pytest
from yt import yson
from yt.wrapper import YtResponseError

from yt_exactly_once.local.errors import Code

ROWS = [{"k": k, "v": None if k % 2 else k} for k in range(4)]


@pytest.fixture
def table(client: Any, tmp: str) -> str:
    path = f"{tmp}/t"
    schema = [
        {"name": "k", "type": "int64", "sort_order": "ascending"},
        {"name": "v", "type": "int64"},
    ]
    client.create("table", path, attributes={"dynamic": True, "schema": schema})
    client.mount_table(path, sync=True)
    client.insert_rows(path, ROWS)
    return path


def test_unsigned_result_arrives_unsigned(client: Any, table: str) -> None:
    """The type of a computed column survives the format."""
    ((row),) = client.select_rows(f"uint64(k) - 1u as x from [{table}] where k = 0")
    assert row["x"] == 2**64 - 1
    assert isinstance(row["x"], yson.YsonUint64)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"input_row_limit": 4}, Code.QUERY_INPUT_ROW_LIMIT_EXCEEDED),
        ({"output_row_limit": 3}, Code.QUERY_OUTPUT_ROW_LIMIT_EXCEEDED),
    ],
)
def test_limit_is_an_error_with_its_code_unless_allowed(
    client: Any, table: str, options: dict[str, int], code: Code
) -> None:
    """An incomplete answer must be asked for."""
    query = f"k from [{table}]"
    with pytest.raises(YtResponseError) as caught:
        list(client.select_rows(query, **options))
    assert caught.value.contains_code(code)
    allowed = client.select_rows(query, fail_on_incomplete_result=False, **options)
    assert [row["k"] for row in allowed] == list(range(max(options.values())))[:4]


def test_full_scan_can_be_forbidden(client: Any, table: str) -> None:
    """The refusal is made before anything is read."""
    with pytest.raises(YtResponseError, match="full scan"):
        client.select_rows(f"k from [{table}] where v = 1", allow_full_scan=False)
    found = client.select_rows(f"k from [{table}] where k = 1", allow_full_scan=False)
    assert list(found) == [{"k": 1}]


def test_statistics_come_on_request(client: Any, table: str) -> None:
    """They tell how long it took, what was returned, and whether a limit cut it."""
    told: dict[str, Any] = {}
    list(client.select_rows(f"k from [{table}] where k > 0", response_parameters=told))
    assert told.pop("read_time") == told.pop("execute_time") >= 0
    assert told == {"rows_written": 3, "incomplete_input": False, "incomplete_output": False}
    cut: dict[str, Any] = {}
    query = f"k from [{table}]"
    limits = {"output_row_limit": 2, "fail_on_incomplete_result": False}
    assert len(list(client.select_rows(query, response_parameters=cut, **limits))) == 2
    cut = {name: value for name, value in cut.items() if not name.endswith("_time")}
    assert cut == {"rows_written": 2, "incomplete_input": False, "incomplete_output": True}


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"versioned_read_options": {"read_mode": "latest_timestamp"}}, "look the rows up"),
        ({"use_canonical_null_relations": True}, "say is_null"),
        ({"merge_versioned_rows": False}, "look the rows up"),
    ],
)
def test_option_that_is_lacking_is_refused(
    client: Any, table: str, options: dict[str, Any], remedy: str
) -> None:
    """The error says what to do without it."""
    with pytest.raises(YtResponseError, match=remedy):
        client.select_rows(f"* from [{table}]", **options)
