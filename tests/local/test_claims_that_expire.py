"""A table of claims that forgets too early: whoever repeats a task would find no owner, and write again."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest

from tests.fan_out import connect
from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit.claims import CLAIMS_SCHEMA, KEPT, Claims
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.errors import TasksRefusedError
from yt_exactly_once.spark.modes.joined import JoinedInsertTask
from yt_exactly_once.spark.modes.transactional import Transactional
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.ytsaurus.tables import ensure_table


@pytest.mark.parametrize("versions", [0, 1])
def test_tasks_send_nothing_while_claims_expire_too_early(cluster, client, tmp, versions):
    """If the table keeps each version of a row, its age does not matter. After the advice it serves.

    Each batch asks for that, but only the first one of a run whether this user can claim.
    """
    options = SinkOptions(f"{tmp}/target", proxy=cluster.proxy_urls[0])
    connection, opened = connect(cluster.proxy_urls[0]), OpenTransaction("1-2-3-4", "localhost:1")
    attributes = {"min_data_versions": versions, "max_data_ttl": 3_600_000}
    ensure_table(connection, options.claims, CLAIMS_SCHEMA, attributes)
    settings = SimpleNamespace(retry=RetryPolicy())
    task = JoinedInsertTask(settings, opened)
    mode = Transactional(options, connection)

    def claiming(run="run"):
        batch, target = SimpleNamespace(run_id=run), options.targets[0]
        given = SimpleNamespace(batch=batch, target=target, plan=None, transaction=opened)
        return mode._claiming(task, given)

    if not versions:
        client.set(f"{options.claims}/@max_data_ttl", int(KEPT.total_seconds() * 1000))
        claiming()
        client.set(f"{options.claims}/@max_data_ttl", 3_600_000)
        with pytest.raises(TasksRefusedError, match="removes claims after 3600 s") as raised:
            claiming()
        for command in raised.value.remedy.split("Run: ")[1].split(". Until")[0].split(" && "):
            assert command.startswith(("yt set ", "yt remount-table "))
            _follow(client, command)
        assert client.get(f"{options.claims}/@max_data_ttl") == KEPT.total_seconds() * 1000
    with patch.object(Claims, "try_out") as try_out:
        for run in ("another run", "another run"):
            assert claiming(run).claims.table == options.claims
        try_out.assert_called_once()


def _follow(client, command):
    _, verb, *arguments = command.split()
    if verb == "set":
        client.set(arguments[0], int(arguments[1]))
    else:
        client.remount_table(arguments[0])
