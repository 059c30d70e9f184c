"""The options of `select_rows` on their way from the client to the query language and back."""

from typing import Any

import pytest
from yt import yson
from yt.wrapper import YtResponseError

from tests.contract.tables import create


@pytest.fixture
def table(client: Any, tmp: str) -> str:
    path: str = create(client, f"{tmp}/t")
    client.insert_rows(path, [{"k": k} for k in range(4)])
    return path


def test_unsigned_result_arrives_unsigned(client: Any, table: str) -> None:
    """The type of a computed column survives the format."""
    ((row),) = client.select_rows(f"uint64(k) - 1u as x from [{table}] where k = 0")
    assert row["x"] == 2**64 - 1
    assert isinstance(row["x"], yson.YsonUint64)


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
        ({"versioned_read_options": {"read_mode": "latest_timestamp"}}, "versioned=True"),
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
