"""Tasks that fail, workers that die, and the order of rows: what Spark repeats must not show."""

from collections import defaultdict
from dataclasses import replace

import pytest
from pyspark.errors import StreamingQueryException

from tests.flows import AGGREGATION, NUMBERED, Query, Queue, columns, create_table
from tests.integration.streams import failing_once, finish
from tests.tiers import first_of
from yt_exactly_once import Event
from yt_exactly_once.codec.schema import SYSTEM_COLUMNS


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


NAMES = ("c1", "c0", "c10", "order id", "a.b", "ID", "id", "größe")
NAMED = Query(
    name="named",
    types=dict.fromkeys(NAMES, "int64"),
    keys=(),
    output_mode="append",
    build=lambda frame: frame,
    expected=lambda queue, _: [tuple(row[name] for name in NAMES) for row in queue.all_rows()],
)


@pytest.mark.parametrize("mode", first_of(["idempotent", "at-least-once", "transactional"]))
def test_queue_with_columns_of_any_name_is_passed_on_whole(stream, client, tmp, mode):
    """With its system columns. Tasks send the first batch, and the driver the others."""
    path = f"{tmp}/named"
    create_table(client, path, [*columns(NAMED.types), *SYSTEM_COLUMNS], tablet_count=2)
    queue = Queue(client, path, "", [])
    queue.consumer = queue.add_consumer(f"{path}_consumer")
    for tablet in range(2):
        queue.rows.append([
            {name: 1_000 * tablet + 10 * number + place for place, name in enumerate(NAMES)}
            for number in range(30)
        ])  # fmt: skip
        client.insert_rows(path, [{**row, "$tablet_index": tablet} for row in queue.rows[-1]])
    flow = stream(NAMED, queue=queue, rows_per_partition=10, options={"mode": mode})
    heard = flow.run()
    by_tasks = ["tasks"] if mode != "transactional" else []
    sent_by = [told["sent_by"] for told in heard.of(Event.BATCH_COMMITTED)]
    assert sent_by == (by_tasks + ["driver"] * 3)[:3]
    flow.assert_exact()


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
