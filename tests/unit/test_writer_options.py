"""The options of `writeStream.format("yt")`, as Spark hands them over: texts under names in any case."""

from datetime import timedelta

import pytest

from yt_exactly_once import Changes
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import options_of
from yt_exactly_once.spark.doors.writer_options import WRITER_OPTION_NAMES, parse_writer_options
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.target import Target

GIVEN = {"path": "//home/app/result", "checkpointlocation": "/checkpoint", "proxy": "localhost:80"}


def test_every_option_of_a_sink_can_be_given_as_text_or_says_why_not():
    """The format cannot fall behind `TransactionalSink`."""
    for declared in (SinkOptions, Target):
        for name, known in options_of(declared).items():
            if known.only_python:
                with pytest.raises(ConfigError, match="foreachBatch"):
                    parsed(**{name: "x"})
            else:
                assert name in WRITER_OPTION_NAMES


def parsed(**options):
    return parse_writer_options(GIVEN | options)


def test_texts_become_the_values_that_a_sink_takes():
    """Each by its type; names in any case, and those of SPYT and Spark that have no meaning here."""
    sink = parsed(
        Mode="idempotent",
        dyn_batch_size=" 7 ",
        split_oversized="TRUE",
        retry_attempts="3",
        retry_first_wait="20ms",
        accept_incomplete="4-6",
        ledger_attributes='{"primary_medium": "ssd"}',
        client_config='{"proxy": {"retries": 1}}',
        unique_keys="true",
        update_columns="true",
        placement="round_robin",
        write_type_v3="true",
        queryName="orders",
    )
    assert sink.checkpoint_location == "/checkpoint"
    assert (sink.mode, sink.dyn_batch_size, sink.split_oversized) == ("idempotent", 7, True)
    assert (sink.retry.attempts, sink.retry.first_wait) == (3, timedelta(milliseconds=20))
    assert sink.accept_incomplete == (4, 6)
    assert sink.ledger_attributes == {"primary_medium": "ssd"}
    assert sink.cluster.client_config == {"proxy": {"retries": 1}}
    (target,) = sink.targets
    assert (target.path, target.update_columns) == ("//home/app/result", True)
    assert target.unique_keys
    assert target.placement == "round_robin"


def test_changes_are_given_in_parts():
    assert parsed().targets[0].changes is None
    found = parsed(changes_sequence="file, pos", changes_operation="op", changes_tombstone_ttl="2d")
    wanted = Changes(sequence=("file", "pos"), operation="op", tombstone_ttl=timedelta(days=2))
    assert found.targets[0].changes == wanted
    with pytest.raises(ConfigError, match="need a sequence"):
        parsed(changes_operation="op")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": " "}, "path of the target is missing"),
        ({"checkpointlocation": ""}, "no option checkpointLocation"),
        ({"dead_leter_path": "//x"}, "Did you mean dead_letter_path"),
        ({"tokn": "secret"}, "Did you mean token"),
        ({"zzz": "1"}, "The options are: path"),
        ({"accept_incomplete": "7-8-9"}, "no number of a batch"),
        ({"backend": "native"}, "Unknown backend 'native'"),
        ({"transform": "f"}, "foreachBatch"),
        ({"checkpoint_location": "/other"}, "query's own checkpointLocation"),
        ({"dyn_batch_size": "many"}, "not a positive whole number"),
        ({"connections": "0"}, "not a positive whole number"),
        ({"new_ledger": "yes"}, "neither true nor false"),
        ({"retry_deadline": "30"}, "number with its unit"),
        ({"client_config": "[1]"}, "not a JSON object"),
        ({"ledger_attributes": "{"}, "not a JSON object"),
        ({"placement": "id"}, "a list of columns, which only Python can give"),
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
