"""The cluster as processes: durable, sharing one store, ending with its parent."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yt.wrapper as yt

from yt_exactly_once.local import LocalCluster, LocalClusterError

SCHEMA = [{"name": "n", "type": "int64"}]


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_killed_proxy_loses_no_acknowledged_write():
    """What was answered is there after SIGKILL in the middle of a stream of writes."""
    with LocalCluster() as cluster:
        client = cluster.client(proxy={"retries": {"enable": False}})
        client.create("table", "//home/q", attributes={"dynamic": True, "schema": SCHEMA})
        client.mount_table("//home/q", sync=True)
        acknowledged = []
        enough = threading.Event()

        def write():
            number = 0
            while True:
                try:
                    client.insert_rows("//home/q", [{"n": number}])
                    client.set(f"//home/@w{number}", number)
                except Exception:  # noqa: BLE001 - the proxy is gone
                    return
                acknowledged.append(number)
                number += 1
                if number == 20:
                    enough.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert enough.wait(60)
        cluster.kill_proxy()
        writer.join()
        cluster.restart_proxy()
        client = cluster.client()
        rows = {row["n"] for row in client.read_table("//home/q")}
        assert rows >= set(acknowledged)
        assert len(rows) <= len(acknowledged) + 1
        assert all(client.exists(f"//home/@w{number}") for number in acknowledged)


def test_restarted_proxy_keeps_its_port_and_forgets_transactions():
    """Clients find it where it was; its sticky transactions are gone."""
    with LocalCluster(proxies=2) as cluster:
        client = cluster.client()
        transaction_id = client.start_transaction(type="tablet")
        master_id = client.start_transaction(type="master")
        urls = cluster.proxy_urls
        cluster.kill_proxy()
        assert not cluster.is_alive(0)
        hosts = cluster.client(1).list("//sys/http_proxies")
        assert hosts == [urls[1].removeprefix("http://")]
        assert cluster.client(1).list("//sys/rpc_proxies") == cluster.rpc_addresses[1:]
        cluster.restart_proxy()
        assert cluster.proxy_urls == urls
        client.ping_transaction(master_id)
        with pytest.raises(yt.YtResponseError) as caught:
            client.ping_transaction(transaction_id)
        assert caught.value.contains_code(11000)


def test_directory_is_a_cluster(tmp_path):
    """Its data survive; a temporary one, where none is given, does not."""
    with LocalCluster(tmp_path / "data") as cluster:
        cluster.client().set("//home/x", 1)
    with LocalCluster(tmp_path / "data") as again:
        assert again.client().get("//home/x") == 1
    with LocalCluster() as cluster:
        directory = cluster.data_dir
        assert directory.exists()
    assert not directory.exists()


@pytest.mark.parametrize("was_there", [False, True], ids=["new directory", "open directory"])
def test_data_are_for_this_user_only(tmp_path, was_there):
    """Others read neither rows nor logs. A directory that was there keeps its rights."""
    folder = tmp_path / "data"
    if was_there:
        folder.mkdir(mode=0o755)
    with LocalCluster(folder) as running:
        running.client().set("//tmp/@x", 1)
        assert folder.stat().st_mode & 0o777 == (0o755 if was_there else 0o700)
        opened = [path for path in folder.rglob("*") if path.stat().st_mode & 0o077]
    assert opened == []


_PARENT = """
import json, sys, threading
from yt_exactly_once.local import LocalCluster
cluster = LocalCluster(sys.argv[1], proxies=2).start()
print(json.dumps(cluster.proxy_pids), flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_children_end_with_their_parent(tmp_path, number):
    """However the parent ends, no proxy is left running."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "data")], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = json.loads(parent.stdout.readline())
    assert all(_is_running(pid) for pid in pids)
    os.kill(parent.pid, number)
    parent.wait()
    parent.stdout.close()
    while any(_is_running(pid) for pid in pids):
        pass


def test_stop_ends_the_processes():
    """Nothing runs after the block, and stopping twice is harmless."""
    cluster = LocalCluster(proxies=2).start()
    pids = cluster.proxy_pids
    cluster.stop()
    cluster.stop()
    assert not any(_is_running(pid) for pid in pids)


def test_stopping_proxy_answers_what_it_has_begun():
    """SIGTERM is not an excuse to lose an answer."""
    with LocalCluster() as cluster:
        client = cluster.client(proxy={"retries": {"enable": False}})
        cluster.inject("delay", "set", seconds=0.5)
        outcome = []
        writer = threading.Thread(target=lambda: outcome.append(client.set("//home/x", 1)))
        writer.start()
        while not cluster.faults()[0]["hits"]:
            pass
        os.kill(cluster.proxy_pids[0], signal.SIGTERM)
        writer.join()
        assert len(outcome) == 1
        cluster.restart_proxy()
        assert cluster.client().get("//home/x") == 1


@pytest.mark.parametrize("front", ["http", "rpc"])
def test_chosen_port_is_used_and_a_taken_one_is_named(front):
    """Consecutive ports from the first one on."""
    name, addresses = {"http": ("port", "proxy_urls"), "rpc": ("rpc_port", "rpc_addresses")}[front]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError, match=f"Port {port} is in use"):
            LocalCluster(**{name: port}).start()
    with LocalCluster(**{name: port}) as cluster:
        (address,) = getattr(cluster, addresses)
        assert address.removeprefix("http://") == f"127.0.0.1:{port}"


def test_directory_that_cannot_be_used_is_said_so(tmp_path):
    """Two clusters cannot share their data by accident, and a file is no directory."""
    with LocalCluster(tmp_path), pytest.raises(LocalClusterError, match="used by another cluster"):
        LocalCluster(tmp_path).start()
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalClusterError, match="not writable"):
        LocalCluster(tmp_path / "file" / "data").start()


def test_broken_store_is_reported_with_the_log(tmp_path):
    """A proxy that cannot start leaves its reason in the error."""
    (tmp_path / "store.sqlite3").write_bytes(b"this is not a database" * 100)
    with pytest.raises(LocalClusterError, match="file is not a database"):
        LocalCluster(tmp_path).start()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: LocalCluster(proxies=0), "at least one proxy"),
        (lambda _: LocalCluster(trim_every=0), "every 0 seconds"),
        (lambda cluster: cluster.client(7), "There is no proxy 7"),
    ],
)
def test_impossible_arguments_are_refused(cluster, call, message):
    """Before anything is started; indexes count from zero, and no period would be a busy loop."""
    with pytest.raises(LocalClusterError, match=message):
        call(cluster)


def test_missing_extra_is_named(monkeypatch, tmp_path):
    """The error says what to install."""
    (tmp_path / "lark.py").write_text("import no_such_package")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(
        LocalClusterError, match=r"'no_such_package'\); install yt-exactly-once\[local\]"
    ):
        LocalCluster().start()


def test_stopped_cluster_says_what_to_do():
    """Using it too early or too late is no riddle."""
    cluster = LocalCluster()
    for call in (cluster.client, cluster.kill_proxy, cluster.faults, lambda: cluster.data_dir):
        with pytest.raises(LocalClusterError, match=r"start|restart"):
            call()


def test_requests_are_counted_by_path(cluster, client):
    """Every request counts, on whichever proxy, and those that ask for the counts do not."""
    before = cluster.request_counts()
    client.exists("//tmp")
    cluster.client(1).exists("//tmp")
    with pytest.raises(yt.YtError):
        client.get("//no/such/node")
    met = cluster.request_counts() - before
    assert met["/api/v4/exists"] == 2
    assert met["/api/v4/get"] == 1
    assert not any(path.startswith("/local") for path in met)


def test_data_of_another_version_are_refused(tmp_path):
    """The error names the directory, both formats and what to do."""
    with contextlib.closing(sqlite3.connect(tmp_path / "store.sqlite3")) as store:
        store.execute("CREATE TABLE clock (id INTEGER PRIMARY KEY, last INTEGER NOT NULL)")
        store.commit()
    with pytest.raises(LocalClusterError, match="choose an empty directory") as caught:
        LocalCluster(data_dir=tmp_path).start()
    for said in (str(tmp_path), "format 1", "format 6"):
        assert said in str(caught.value)
