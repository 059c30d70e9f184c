"""Tasks that fail, workers that die, and the order of rows: what Spark repeats must not show."""

from collections import defaultdict
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, NUMBERED
from tests.integration.streams import failing_once, finish
from tests.tiers import first_of
from yt_exactly_once import Event


@pytest.mark.parametrize("how", first_of(["task fails", "worker is killed"]))
def test_task_broken_down_in_the_middle_leaves_an_ordered_target_right(stream, how, tmp_path):
    """The rows of the broken attempt and those of the next one are the same rows, and come once."""
    change = failing_once(str(tmp_path / "failed"), how)
    flow = stream(rows=4_000, rows_per_partition=2_000, change=change)
    told = flow.run(dyn_batch_size=300)
    assert told.count(Event.BATCH_COMMITTED) == 2
    flow.assert_exact()


@pytest.mark.parametrize("mode", first_of(["transactional", "at-least-once", "idempotent"]))
def test_rows_keep_the_tablet_and_the_order_they_had_in_the_queue(stream, mode):
    """Though one Spark partition has the rows of all, and a batch is replayed."""
    in_one = replace(NUMBERED, build=lambda frame: NUMBERED.build(frame).coalesce(1))
    flow = stream(in_one, rows=600, rows_per_partition=400)
    flow.options = {"placement": "preserve", "mode": mode}
    flow.run()
    flow.forget_last_batch()
    flow.run()
    flow.assert_exact()
    found = defaultdict(list)
    names = "[$tablet_index] as tablet, [$row_index] as index, part, row"
    rows = flow.client.select_rows(f"{names} from [{flow.target}]")
    for row in sorted(rows, key=lambda row: (row["tablet"], row["index"])):
        found[row["tablet"]].append((row["part"], row["row"]))
    assert found == {tablet: [(tablet, number) for number in range(600)] for tablet in range(3)}


def test_stateful_query_in_idempotent_mode_is_refused(stream):
    """Before anything is created; a replay of such a query may give other rows."""
    flow = stream(AGGREGATION, rows=50)
    assert "mode='transactional'" in flow.fail("ConfigError", mode="idempotent")
    flow.assert_untouched()
    assert not flow.client.exists(flow.ledger)


@pytest.mark.parametrize("where", first_of(["in the function", "in the query"]))
def test_shuffle_in_idempotent_mode_is_refused_where_rows_have_no_source(stream, where):
    """By its position a row of a repeated task may be another one."""
    flow = stream(rows=50)
    if where == "in the query":
        flow.change = lambda frame: frame.repartition(2, "id")
        assert "has a shuffle" in flow.fail("ConfigError", mode="idempotent")
    else:
        sink = flow.sink(mode="idempotent")
        with pytest.raises(StreamingQueryException, match="has a shuffle"):
            finish(flow.start(lambda frame, batch_id: sink(frame.repartition(2, "id"), batch_id)))
    flow.assert_untouched()
