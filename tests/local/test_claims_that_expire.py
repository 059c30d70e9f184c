"""A table of claims that forgets too early: whoever repeats a task would find no owner, and write again."""

from types import SimpleNamespace

import pytest

from tests.fan_out import connect
from yt_exactly_once import RetryPolicy
from yt_exactly_once.commit.claims import CLAIMS_SCHEMA, KEPT
from yt_exactly_once.commit.cluster import OpenTransaction
from yt_exactly_once.errors import TasksRefusedError
from yt_exactly_once.spark.modes.joined import JoinedInsertTask
from yt_exactly_once.spark.modes.transactional import Transactional
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.ytsaurus.tables import ensure_table


@pytest.mark.parametrize("versions", [0, 1])
def test_tasks_send_nothing_while_claims_expire_too_early(cluster, client, tmp, versions):
    """If the table keeps each version of a row, its age does not matter. After the advice it serves."""
    options = SinkOptions(f"{tmp}/target", proxy=cluster.proxy_urls[0])
    connection, opened = connect(cluster.proxy_urls[0]), OpenTransaction("1-2-3-4", "localhost:1")
    attributes = {"min_data_versions": versions, "max_data_ttl": 3_600_000}
    ensure_table(connection, options.claims, CLAIMS_SCHEMA, attributes)
    settings = SimpleNamespace(retry=RetryPolicy())
    task = JoinedInsertTask(settings, opened)
    given = SimpleNamespace(
        batch=None, target=options.targets[0], plan=None, transaction=opened
    )  # fmt: skip

    def claiming():
        return Transactional(options, connection)._claiming(task, given)

    if not versions:
        with pytest.raises(TasksRefusedError, match="removes claims after 3600 s") as raised:
            claiming()
        for command in raised.value.remedy.split("Run: ")[1].split(". Until")[0].split(" && "):
            assert command.startswith(("yt set ", "yt remount-table "))
            _follow(client, command)
        assert client.get(f"{options.claims}/@max_data_ttl") == KEPT.total_seconds() * 1000
    assert claiming().claims.table == options.claims


def _follow(client, command):
    _, verb, *arguments = command.split()
    if verb == "set":
        client.set(arguments[0], int(arguments[1]))
    else:
        client.remount_table(arguments[0])
