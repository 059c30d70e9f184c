"""How-to `change.md`, rename a target, in idempotent mode: its sessions are named after the path."""

import pytest

from tests.flows import NUMBERED, STATELESS


@pytest.mark.further
@pytest.mark.parametrize("query", [NUMBERED, STATELESS], ids=["by source", "by position"])
def test_query_continues_after_its_target_was_renamed(stream, query):
    flow = stream(query, rows=300)
    flow.options["mode"] = "idempotent"
    flow.run()
    flow.options |= {"ledger_path": flow.ledger, "producer_path": f"{flow.target}_producer"}
    flow.client.unmount_table(flow.target, sync=True)
    flow.client.move(flow.target, f"{flow.target}_renamed")
    flow.target += "_renamed"
    flow.client.mount_table(flow.target, sync=True)
    for options in ({"new_ledger": True}, {}):
        for partition in range(3):
            flow.queue.append(100, partition)
        flow.run(**options)
    assert flow.wrong() == ""
