"""Bad input: one typed error that names the place and the remedy, the query stops, nothing is written."""

from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, STATELESS, columns, create_table
from tests.integration.streams import finish
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.spark.sink import run as query_run


@pytest.fixture
def flow(stream):
    """A query over a few rows, whose target a test spoils."""
    return stream(rows=50)


def retable(flow, types=None, keys=(), **attributes):
    """Put another table in the place of the target."""
    flow.client.remove(flow.target)
    if attributes.get("dynamic", True):
        create_table(
            flow.client, flow.target, columns(types or STATELESS.types, keys), **attributes
        )
    else:
        schema = columns(types or STATELESS.types, keys)
        flow.client.create("table", flow.target, attributes={"schema": schema, **attributes})


def rows_in(flow):
    return flow.client.get(f"{flow.target}/@row_count")


def assert_nothing_done(flow):
    """No row, no ledger entry, and the consumer where it was."""
    assert flow.queue.stored() == {}
    if flow.client.exists(flow.ledger):
        assert list(flow.client.select_rows(f"* from [{flow.ledger}]")) == []


def test_stateful_query_in_idempotent_mode_is_refused(stream):
    """Before anything is created; a replay of such a query may give other rows."""
    flow = stream(AGGREGATION, rows=50)
    assert "mode='transactional'" in flow.fail("ConfigError", mode="idempotent")
    flow.assert_untouched()
    assert not flow.client.exists(flow.ledger)


@pytest.mark.parametrize(
    ("name", "mode"),
    first_of(
        [
            ("__YT_Exactly_Once_Key_Hash_64", "idempotent"),
            ("__yt_exactly_once_partition", "transactional"),
            ("__yt_exactly_once_tablet", "at-least-once"),
        ]
    ),
)
def test_column_with_a_reserved_name_is_refused(flow, name, mode):
    """Spark would replace it without a word, in whatever case it is written."""
    retable(flow, STATELESS.types | {name: "int64?"}, keys=("part", "row"))
    build = STATELESS.build
    flow.query = replace(STATELESS, build=lambda frame: build(frame).selectExpr("*", f"id {name}"))
    assert f"reserved names: {name} " in flow.fail("SchemaMismatchError", mode=mode)
    assert rows_in(flow) == 0
    assert_nothing_done(flow)


@pytest.mark.parametrize("where", first_of(["in the function", "in the query"]))
def test_shuffle_in_idempotent_mode_is_refused_where_rows_have_no_source(flow, where):
    """By its position a row of a repeated task may be another one."""
    if where == "in the query":
        flow.change = lambda frame: frame.repartition(2, "id")
        assert "has a shuffle" in flow.fail("ConfigError", mode="idempotent")
    else:
        sink = flow.sink(mode="idempotent")
        with pytest.raises(StreamingQueryException, match="has a shuffle"):
            finish(flow.start(lambda frame, batch_id: sink(frame.repartition(2, "id"), batch_id)))
    flow.assert_untouched()


def test_target_replaced_under_the_running_query_is_noticed(flow, monkeypatch):
    """Rows that were encoded for the old table are not written into the new one."""
    monkeypatch.setattr(query_run, "LOOK_INTERVAL", 0.0)
    flow.rows_per_partition = 10

    def replace(event, fields):
        if event == Event.BATCH_COMMITTED and fields["batch"] == 1:
            retable(flow, {"id": "int64", "other": "utf8"})

    with pytest.raises(StreamingQueryException, match="SchemaMismatchError"):
        flow.run(replace)
    assert flow.entry().batch_id == 1
    assert rows_in(flow) == 0
