"""`create-queue`, `create-consumer` and `create-table`, without a JVM."""

import subprocess
import sys

import pytest

from yt_exactly_once.codec.schema import SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN


def test_queue_and_consumer_are_created_once(client, told, tmp):
    """With the columns that lag in seconds needs; a second call changes nothing."""
    queue = [
        "create-queue",
        f"{tmp}/q",
        "--schema",
        "id bigint, note string",
        "--tablet-count",
        "3",
    ]
    assert told(*queue, "--auto-trim") == (0, f"created: {tmp}/q\n")
    assert told(*queue) == (0, f"exists and fits: {tmp}/q\n")
    names = [column["name"] for column in client.get(f"{tmp}/q/@schema")]
    assert names == ["id", "note", "$timestamp", "$cumulative_data_weight"]
    assert client.get(f"{tmp}/q/@tablet_count") == 3
    assert client.get(f"{tmp}/q/@auto_trim_config/enable")
    consumer = ["create-consumer", f"{tmp}/deep/c", f"{tmp}/q"]
    _, made = told(*consumer, "--json")
    assert made == {
        "path": f"{tmp}/deep/c",
        "queue": f"{tmp}/q",
        "created": True,
        "registered": True,
    }
    code, text = told(*consumer)
    assert (code, "was registered" in text) == (0, True)
    told(*consumer, "--not-vital")
    (found,) = client.list_queue_consumer_registrations(queue_path=f"{tmp}/q")
    assert not found["vital"]
    assert client.get(f"{tmp}/deep/c/@tablet_state") == "mounted"


def test_what_is_in_the_way_is_refused(client, told, tmp):
    """And left as it is."""
    assert told("create-table", f"{tmp}/t", "--schema", "id bigint, n int", "--key", "id")[0] == 0
    assert told("create-queue", f"{tmp}/q", "--like", f"{tmp}/t")[0] == 0
    for arguments, message in (
        (["create-queue", f"{tmp}/t", "--schema", "id bigint, n int"], "the key id"),
        (["create-queue", f"{tmp}/q", "--like", f"{tmp}/t", "--tablet-count", "2"], "1 tablets"),
        (["create-queue", f"{tmp}/q", "--schema", "id string"], "fit the table"),
        (["create-consumer", f"{tmp}/c", f"{tmp}/t"], "is sorted"),
        (["create-consumer", f"{tmp}/t", f"{tmp}/q"], "no consumer"),
        (["create-consumer", f"{tmp}/c", f"{tmp}/none"], "no such table"),
        (["create-queue", f"{tmp}/q"], "Give one of --like and --schema"),
    ):
        code, text = told(*arguments)
        assert (code, message in text) == (2, True), text
    assert not client.exists(f"{tmp}/c")


@pytest.mark.further
def test_commands_that_work_on_a_cluster_load_no_spark(cluster, tmp):
    """They work on a machine without Java, and start in the time the client takes."""
    code = (
        "import sys\nfrom yt_exactly_once.cli import main\n"
        f"assert main(['create-table', '{tmp}/t', '--schema', 'a bigint, b string']) == 0\n"
        f"assert main(['status', '{tmp}']) == 0\n"
        "assert not {'pyspark', 'py4j', 'uvicorn'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"YT_PROXY": cluster.proxy_urls[0], "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_table_has_the_columns_that_an_audit_by_source_needs(client, told, tmp):
    """And the bundle and the medium that were asked for."""
    command = ["create-table", f"{tmp}/table", "--schema", "value bigint", "--service-columns"]
    assert told(*command, "--bundle", "default", "--medium", "default")[0] == 0
    names = [column["name"] for column in client.get(f"{tmp}/table/@schema")]
    assert names == ["value", *SOURCE_COLUMNS, SOURCE_QUEUE_COLUMN]
    assert client.get(f"{tmp}/table/@tablet_cell_bundle") == "default"
    assert client.get(f"{tmp}/table/@primary_medium") == "default"
