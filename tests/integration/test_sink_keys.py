"""Keys of sorted targets that Spark and YTsaurus must take for equal, or for different, alike."""

from __future__ import annotations

import pytest

from tests.flows import columns, create_table
from tests.integration.streams import finish

ZEROS = "cast(if(id % 2 = 0, -0.0D, 0.0D) as double) as k"


@pytest.fixture
def flow(stream, client):
    """Two rows per batch, of one partition, into a table by key."""

    def build(types, keys, frame):
        flow = stream(rows=2, partitions=1)
        flow.target = create_table(client, f"{flow.target}_by_key", columns(types, keys))
        flow.frame_of = lambda: frame(flow.frame())
        return flow

    return build


def run(flow, **options):
    finish(
        flow.frame_of()
        .writeStream.foreachBatch(flow.sink(**options))
        .option("checkpointLocation", str(flow.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_delete_finds_the_row_whichever_zero_its_key_has(flow, client):
    """The first row of the batch is written, the second one deletes it."""
    flow = flow(
        {"k": "double", "v": "int64"}, ["k"],
        lambda frame: frame.selectExpr(ZEROS, "id as v", "id = 1 as gone"),
    )  # fmt: skip
    client.insert_rows(flow.target, [{"k": -0.0, "v": 9}, {"k": 1.0, "v": 9}])
    run(flow, delete_marker="gone")
    assert list(client.select_rows(f"* from [{flow.target}]")) == [{"k": 1.0, "v": 9}]
