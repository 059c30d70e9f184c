"""The options of `writeStream.format("yt")`, as Spark hands them over: texts under names in any case."""

from datetime import timedelta

import pytest

from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.writer_options import parse_writer_options

GIVEN = {"path": "//home/app/result", "checkpointlocation": "/checkpoint", "proxy": "localhost:80"}


def parsed(**options):
    return parse_writer_options(GIVEN | options)


def test_texts_become_the_values_that_a_sink_takes():
    """Each by its type; names in any case, and those of SPYT that have no meaning here."""
    sink, checkpoint = parsed(
        Mode="idempotent",
        dyn_batch_size=" 7 ",
        split_oversized="TRUE",
        transaction_timeout="30s",
        retry_attempts="3",
        retry_first_wait="20ms",
        accept_incomplete="4-6",
        ledger_attributes='{"primary_medium": "ssd"}',
        client_config='{"proxy": {"retries": 1}}',
        update_columns="true",
        placement="round_robin",
        write_type_v3="true",
    )
    assert checkpoint == "/checkpoint"
    assert (sink.mode, sink.dyn_batch_size, sink.split_oversized) == ("idempotent", 7, True)
    assert sink.transaction_timeout == timedelta(seconds=30)
    assert (sink.retry.attempts, sink.retry.first_wait) == (3, timedelta(milliseconds=20))
    assert sink.accept_incomplete == (4, 6)
    assert sink.ledger_attributes == {"primary_medium": "ssd"}
    assert sink.cluster.client_config == {"proxy": {"retries": 1}}
    (target,) = sink.targets
    assert (target.path, target.update_columns) == ("//home/app/result", True)
    assert target.placement == "round_robin"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": " "}, "path of the target is missing"),
        ({"checkpointlocation": ""}, "no option checkpointLocation"),
        ({"dead_leter_path": "//x"}, "Did you mean dead_letter_path"),
        ({"tokn": "secret"}, "Did you mean token"),
        ({"zzz": "1"}, "The options are: path"),
        ({"transform": "f"}, "foreachBatch"),
        ({"checkpoint_location": "/other"}, "query's own checkpointLocation"),
        ({"dyn_batch_size": "many"}, "not a whole number"),
        ({"connections": "0"}, "at least 1"),
        ({"new_ledger": "yes"}, "neither true nor false"),
        ({"transaction_timeout": "30"}, "number with its unit"),
        ({"transaction_timeout": "2min"}, "out of range"),
        ({"client_config": "[1]"}, "not a JSON object"),
        ({"ledger_attributes": "{"}, "not a JSON object"),
        ({"placement": "id"}, "placement by columns"),
        ({"accept_incomplete": "6-4"}, "accept_incomplete"),
        ({"mode": ""}, "is empty"),
        ({"mode": "twice"}, "Unknown mode"),
        ({"path": "home/app"}, "not a Cypress path"),
    ],
)
def test_bad_option_is_an_error_with_a_remedy(options, message):
    """It names the option, and shows no secret."""
    with pytest.raises(ConfigError, match=message) as caught:
        parsed(**options)
    assert "secret" not in str(caught.value)
