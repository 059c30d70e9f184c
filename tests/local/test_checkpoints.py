"""The gateway for checkpoints: WebHDFS in, files in Cypress out. Requests are those of Hadoop's client."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import urlencode, urlsplit

import pytest

from yt_exactly_once.checkpoints import checkpoints, gateway_at, server
from yt_exactly_once.checkpoints import webhdfs as front
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.errors import AccessError, ConfigError, RetriesExhaustedError
from yt_exactly_once.local import LocalCluster
from yt_exactly_once.spark.storage import open_storage
from yt_exactly_once.ytsaurus import files
from yt_exactly_once.ytsaurus.client import Connection

SECRET = "0123456789abcdef"


class Answer:
    """Status, headers and body."""

    def __init__(self, answer):
        self.status, self.body = answer.status, answer.read()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}

    @property
    def exception(self):
        return json.loads(self.body)["RemoteException"]

    @property
    def listed(self):
        return {
            file["pathSuffix"]: (file["type"], file["length"])
            for file in json.loads(self.body)["FileStatuses"]["FileStatus"]
        }


class Hadoop:
    """Makes the requests of Hadoop's client for the files of one checkpoint."""

    def __init__(self, location):
        parts = urlsplit(location)
        self.address, self.root = parts.netloc, parts.path

    def ask(self, method, path, body=None, **query):
        target = (
            path if path.startswith("/webhdfs/v1/") else f"/webhdfs/v1{path}?{urlencode(query)}"
        )
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, target, body, encode_chunked=True)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def create(self, name, content, **query):
        first = self.ask("PUT", f"{self.root}/{name}", op="CREATE", **query)
        if first.status != 307:
            return first
        parts = urlsplit(first.headers["location"])
        assert parts.netloc == self.address
        # Of unknown length, as Hadoop sends it.
        return self.ask("PUT", f"{parts.path}?{parts.query}", iter([content[:3], content[3:]]))

    def open(self, name, **query):
        return self.ask("GET", f"{self.root}/{name}", op="OPEN", **query)

    def list(self, name=""):
        return self.ask("GET", f"{self.root}/{name}".rstrip("/"), op="LISTSTATUS")

    def look(self, name):
        return self.ask("GET", f"{self.root}/{name}", op="GETFILELINKSTATUS")

    def delete(self, name, **query):
        return self.ask("DELETE", f"{self.root}/{name}", op="DELETE", **query)

    def rename(self, name, to, options="NONE"):
        chosen = {"renameoptions": options} if options else {}
        return self.ask(
            "PUT", f"{self.root}/{name}", op="RENAME", destination=f"{self.root}/{to}", **chosen
        )


def scratch(name, task=""):
    """Return a name as Spark chooses it for a file that it will rename."""
    folder, _, last = name.rpartition("/")
    return f"{folder}/.{last}.{uuid.uuid4()}{task}.tmp".lstrip("/")


@pytest.fixture
def store(cluster):
    with checkpoints(proxy=cluster.proxy_urls[0], secret=SECRET) as running:
        yield running


@pytest.fixture
def hadoop(store, tmp):
    return Hadoop(store.url(f"{tmp}/q"))


@pytest.fixture
def impatient(monkeypatch):
    """Let the gateway give up soon."""
    policy = RetryPolicy(attempts=2, first_wait=timedelta(milliseconds=1))
    monkeypatch.setattr(files, "_POLICY", policy)


def test_file_appears_as_a_whole_under_its_final_name(hadoop, client, tmp):
    """A written file is renamed once, read whole and in part, listed, and gone after its removal."""
    name = scratch("offsets/0")
    assert hadoop.create(name, b"v1\n{}\n{}").status == 201
    assert hadoop.open("offsets/0").status == 404
    assert hadoop.rename(name, "offsets/0").status == 200
    assert hadoop.open("offsets/0").body == b"v1\n{}\n{}"
    assert hadoop.open("offsets/0", offset=3, length=2).body == b"{}"
    assert hadoop.list("offsets").listed == {"0": ("FILE", 8)}
    assert hadoop.list().listed == {"offsets": ("DIRECTORY", 0)}
    # Hadoop's client in Spark's jars fails on one.
    for answer in (hadoop.list(), hadoop.open("offsets/0"), hadoop.create("a", b"1")):
        assert "content-type" not in answer.headers
    hadoop.delete("a")
    assert client.read_file(f"{tmp}/q/offsets/0").read() == b"v1\n{}\n{}"
    assert json.loads(hadoop.delete("offsets/0").body) == {"boolean": True}
    assert json.loads(hadoop.delete("offsets/0").body) == {"boolean": False}
    assert hadoop.list("offsets").listed == {}


def test_first_of_two_drivers_owns_a_batch(hadoop):
    """Of many renames to one name one succeeds; the others get what Spark takes for a second driver."""
    names = [scratch("offsets/7") for _ in range(8)]
    for number, name in enumerate(names):
        assert hadoop.create(name, b"%d" % number).status == 201
    with ThreadPoolExecutor(len(names)) as drivers:
        answers = list(drivers.map(lambda name: hadoop.rename(name, "offsets/7"), names))
    (winner,) = (number for number, answer in enumerate(answers) if answer.status == 200)
    assert hadoop.open("offsets/7").body == b"%d" % winner
    refused = [answer.exception for answer in answers if answer.status != 200]
    assert {error["javaClassName"] for error in refused} == {
        "org.apache.hadoop.fs.FileAlreadyExistsException"
    }
    # The older call of Hadoop knows no exceptions.
    assert json.loads(hadoop.rename(names[winner - 1], "offsets/7", options="").body) == {
        "boolean": False
    }


def test_client_that_dies_while_it_replaces_a_file_leaves_the_old_one(hadoop):
    """Hadoop deletes a file before the rename that replaces it. The gateway does both in the rename."""
    old, new = scratch("state/3.delta"), scratch("state/3.delta", task=".TID17")
    hadoop.create(old, b"old")
    hadoop.rename(old, "state/3.delta")
    hadoop.create(new, b"new")
    assert hadoop.look(new).status == 200
    assert json.loads(hadoop.delete("state/3.delta", recursive="false").body) == {"boolean": True}
    assert hadoop.open("state/3.delta").body == b"old"
    assert hadoop.rename(new, "state/3.delta").status == 200
    assert hadoop.open("state/3.delta").body == b"new"
    # Spark cleans up without such a look.
    assert json.loads(hadoop.delete("state/3.delta").body) == {"boolean": True}
    assert hadoop.open("state/3.delta").status == 404


def test_queries_share_one_gateway(store, tmp):
    """They write and replace files of the same names at the same time, and each finds its own."""

    def run(name):
        query = Hadoop(store.url(f"{tmp}/{name}"))
        for content in (b"old", name.encode()):
            written = scratch("state/1.delta")
            query.create(written, content)
            query.look(written)
            query.delete("state/1.delta", recursive="false")
            assert query.rename(written, "state/1.delta").status == 200
        return query.list("state").listed, query.open("state/1.delta").body.decode()

    names = ["first", "second", "third", "fourth"]
    with ThreadPoolExecutor(len(names)) as queries:
        found = list(queries.map(run, names))
    assert found == [({"1.delta": ("FILE", len(name))}, name) for name in names]


def test_large_file_goes_in_pieces_and_leaves_nothing_when_one_fails(
    hadoop, faulty, monkeypatch, tmp
):
    """Pieces are one transaction; and a file under a final name is complete or absent."""
    for module in (files, front):
        monkeypatch.setattr(module, "PIECE", 1_000)
    content = os.urandom(4_500)
    for name in ("1.zip", scratch("2.zip")):
        assert hadoop.create(name, content).status == 201
        assert hadoop.open(name).body == content
        assert hadoop.open(name, offset=999, length=2_002).body == content[999:3_001]
    assert hadoop.create("1.zip", b"shorter", overwrite="true").status == 201
    assert hadoop.open("1.zip").body == b"shorter"
    assert hadoop.create("1.zip", b"other", overwrite="false").status == 403
    faulty.inject("error", "write_file", after=2, count=None, code=1, message="Disk is on fire")
    with checkpoints(proxy=faulty.proxy_urls[0], secret=SECRET) as failing:
        elsewhere = Hadoop(failing.url(f"{tmp}/q"))
        answer = elsewhere.create("3.zip", content)
        assert answer.status == 403
        assert "Disk is on fire" in answer.exception["message"]
        assert elsewhere.open("3.zip").status == 404


@pytest.mark.parametrize("action", ["lose_answer", "lose_request"])
@pytest.mark.parametrize(
    "command", ["create", "write_file", "move", "commit_transaction", "remove"]
)
def test_lost_requests_and_answers_are_repeated_without_harm(faulty, tmp, action, command):
    """Each operation has its effect once, and its client sees a success."""
    with checkpoints(proxy=faulty.proxy_urls[0], secret=SECRET) as running:
        hadoop = Hadoop(running.url(f"{tmp}/q"))
        faulty.inject(action, command, count=2)
        name = scratch("offsets/0")
        assert hadoop.create(name, b"content").status == 201
        assert hadoop.rename(name, "offsets/0").status == 200
        assert hadoop.create("whole.sst", b"content", overwrite="false").status == 201
        assert json.loads(hadoop.delete("whole.sst").body) == {"boolean": True}
        assert hadoop.open("offsets/0").body == b"content"
        assert hadoop.list("offsets").listed == {"0": ("FILE", 7)}


def test_rename_whose_answer_was_lost_for_good_is_recognised(hadoop):
    """A client that repeats a rename of its own file, after the gateway gave up, finds it done."""
    name = scratch("commits/4")
    hadoop.create(name, b"{}")
    assert hadoop.rename(name, "commits/4").status == 200
    assert hadoop.rename(name, "commits/4").status == 200
    other = scratch("commits/4")
    assert hadoop.rename(other, "commits/4").status == 404


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("/wrong-secret-0123/tmp/x", "AccessControlException", "does not have the secret"),
        ("/", "AccessControlException", "does not have the secret"),
        (f"/secret-{SECRET}/tmp/elsewhere", "AccessControlException", "does not serve this path"),
        (f"/secret-{SECRET}/tmp/../sys", "AccessControlException", "does not serve this path"),
    ],
)
def test_strangers_and_paths_outside_are_refused(hadoop, client, path, error, message):
    """The error becomes one of Hadoop with the cause and the remedy, and nothing is written."""
    for method, op in (("GET", "LISTSTATUS"), ("PUT", "MKDIRS"), ("PUT", "CREATE")):
        answer = hadoop.ask(method, path, op=op)
        assert (answer.status, answer.exception["exception"]) == (403, error)
        assert message in answer.exception["message"]
        assert SECRET not in answer.exception["message"]
    hadoop.create("a", b"1")
    answer = hadoop.ask("PUT", f"{hadoop.root}/a", op="RENAME", destination=path)
    assert answer.exception["exception"] == error
    assert hadoop.open("a").body == b"1"
    assert not client.exists("//tmp/elsewhere")


def test_unknown_operations_and_other_protocols_are_refused(hadoop):
    """The message says what the gateway is for."""
    answer = hadoop.ask("POST", hadoop.root, op="APPEND")
    assert (answer.status, answer.exception["exception"]) == (403, "IOException")
    assert "no operation APPEND" in answer.exception["message"]
    connection = http.client.HTTPConnection(hadoop.address, timeout=60)
    connection.request("GET", "/api/v4/list")
    assert "WebHDFS only" in Answer(connection.getresponse()).exception["message"]
    connection.close()


@pytest.mark.usefixtures("impatient")
def test_gateway_without_its_cluster_answers_with_the_cause(faulty, tmp):
    """The error in Spark names the operation and the remedy."""
    limits = {"secret": SECRET, "request_timeout": timedelta(seconds=1)}
    with checkpoints(proxy=faulty.proxy_urls[0], **limits) as running:
        hadoop = Hadoop(running.url(f"{tmp}/q"))
        faulty.inject("unavailable", "*", count=None)
        answer = hadoop.create(scratch("offsets/0"), b"x")
    assert answer.status == 503
    assert "Could not look at the path" in answer.exception["message"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secret": "short"}, "secret of the checkpoint gateway"),
        ({"secret": "with/slash-0123456789"}, "secret of the checkpoint gateway"),
        ({"host": "0.0.0.0"}, "no address to connect to"),
        ({"host": "192.0.2.1"}, "cannot listen on 192.0.2.1"),
        ({"roots": ["/home"]}, "not a Cypress path"),
        ({"roots": ["//home/[1]"]}, "a checkpoint cannot have"),
    ],
)
def test_impossible_options_are_refused_at_once(cluster, options, message):
    with (
        pytest.raises(ConfigError, match="(?s)" + message.replace("[", r"\[")),
        checkpoints(proxy=cluster.proxy_urls[0], **options),
    ):
        pass


@pytest.mark.usefixtures("impatient")
def test_wrong_cluster_and_wrong_token_fail_before_spark_starts(tmp_path):
    """A gateway starts only if its cluster answers it."""
    with (
        pytest.raises(RetriesExhaustedError, match="Check the address of the proxy"),
        checkpoints(proxy="127.0.0.1:1", request_timeout=timedelta(seconds=1)),
    ):
        pass
    with (
        LocalCluster(tmp_path / "d", token="right") as guarded,
        pytest.raises(AccessError, match="token"),
        checkpoints(proxy=guarded.proxy_urls[0], token="wrong"),
    ):
        pass


@pytest.mark.parametrize("by_gateway", [True, False])
def test_process_without_a_jvm_reads_and_writes_the_same_files(
    store, cluster, tmp, hadoop, by_gateway
):
    """The sink reads the offset log and keeps its notes where Spark keeps its files."""
    connection = Connection(ClusterConfig.resolve(cluster.proxy_urls[0], None))
    location = store.url(f"{tmp}/q") if by_gateway else f"yt:///{tmp[2:]}/q"
    folder = open_storage(location, connection)
    assert folder.names("offsets") == []
    hadoop.create("offsets/0", "v1\ngröße".encode())
    assert folder.read("offsets/0") == "v1\ngröße"
    assert (folder.names(""), folder.names("offsets")) == (["offsets"], ["0"])
    folder.write("notes/failed-0", b"first")
    folder.write("notes/failed-0", b"second")
    assert hadoop.open("notes/failed-0").body == b"second"
    with pytest.raises(FileNotFoundError):
        folder.read("metadata")


def test_gateway_of_another_process_is_asked_before_spark(cluster, tmp):
    """Its absence, a wrong secret and a path outside are typed errors, without the secret."""
    with checkpoints(proxy=cluster.proxy_urls[0], secret=SECRET, roots=[tmp]) as store:
        location = store.url(tmp)
        assert gateway_at(location).url(f"{tmp}/q") == f"{location}/q"
        with pytest.raises(AccessError, match="does not serve this path"):
            gateway_at(location).url("//tmp/elsewhere")
        with pytest.raises(AccessError, match="does not have the secret") as raised:
            gateway_at(location.replace(SECRET, "guessed-1234567890")).url(tmp)
        assert "guessed" not in str(raised.value)
    with pytest.raises(RetriesExhaustedError, match="yt-exactly-once checkpoints"):
        gateway_at(location).url(tmp)
    with pytest.raises(ConfigError, match="no location of a gateway"):
        gateway_at("hdfs://host/path")


def test_paths_outside_the_roots_get_no_location(cluster):
    """With roots the gateway serves these only; without, what `url` was asked for."""
    with checkpoints(proxy=cluster.proxy_urls[0], roots=["//tmp/a"]) as store:
        assert store.url("//tmp/a/q").endswith("/tmp/a/q")
        assert SECRET not in repr(store)
        with pytest.raises(ConfigError, match="outside the roots"):
            store.url("//tmp/ab")
        with pytest.raises(ConfigError, match=r"'\.\.'"):
            store.url("//tmp/a/../b")


def test_command_keeps_its_secret_between_starts(cluster, tmp, tmp_path):
    """A gateway of its own prints the locations; with a file for the secret they stay the same."""
    file = tmp_path / "secret"
    command = [sys.executable, "-m", "yt_exactly_once", "checkpoints", "--port", "0"]
    command += ["--proxy", cluster.proxy_urls[0], "--root", tmp, "--secret-file", str(file)]
    paths = []
    for _ in range(2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gateway:
            root, location = gateway.stdout.readline().split()
            assert root == tmp
            hadoop = Hadoop(location)
            assert hadoop.create("q/metadata", b"{}", overwrite="true").status == 201
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(30) == 0
        paths.append(hadoop.root)
    assert paths[0] == paths[1]
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o644)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "chmod 600" in done.stderr


class _Hadoop(dict):
    """Settings of Hadoop in a JVM, and the file systems that it has closed."""

    def __init__(self):
        super().__init__()
        self.closed = []
        self.set = self.__setitem__

    def hadoopConfiguration(self):  # noqa: N802 - name of Spark's
        return self

    @property
    def session(self):
        file_system = SimpleNamespace(get=lambda uri, _hadoop: SimpleNamespace(close=uri.note))
        hadoop = SimpleNamespace(fs=SimpleNamespace(FileSystem=file_system))
        uri = lambda text: SimpleNamespace(note=lambda: self.closed.append(text))  # noqa: E731
        jvm = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)),
            java=SimpleNamespace(net=SimpleNamespace(URI=uri)),
        )
        return SimpleNamespace(_jsc=self, _jvm=jvm)


def test_running_session_finds_locations_without_address_and_secret(store, cluster, tmp):
    """Hadoop mounts the roots under yt:, and forgets the file system of an earlier gateway."""
    settings = _Hadoop()
    store.configure(settings.session)
    assert not any(".yt." in name or "viewfs" in name for name in settings)
    mount = f"fs.viewfs.mounttable.default.link./{tmp[2:]}"
    for _ in range(2):
        store.configure(settings.session, tmp)
        assert settings[mount] == store.url(tmp)
        assert settings["fs.yt.impl"].endswith("ViewFileSystemOverloadScheme")
        assert settings.closed == []
    with checkpoints(proxy=cluster.proxy_urls[0]) as other:
        other.configure(settings.session, tmp)
    assert settings.closed == ["yt:///"]
    with pytest.raises(ConfigError, match="not a Cypress path"):
        store.configure(settings.session, "home/app")
    # A builder: what it gets is on the command line of the JVM. Connect has no JVM in this process.
    with pytest.raises(ConfigError, match="getOrCreate"):
        store.configure(SimpleNamespace(config=None), tmp)


def test_body_of_a_stranger_is_not_read(hadoop, store):
    """Who does not know the secret is answered after the head of the request, whatever follows."""
    for path in ("/secret-guessed-0123456789/tmp/x", f"/secret-{SECRET}/tmp/elsewhere"):
        with _connection(store.address) as stranger:
            stranger.sendall(
                f"PUT /webhdfs/v1{path}?op=CREATE&data=true HTTP/1.1\r\nHost: x\r\n"
                f"Content-Length: {1 << 40}\r\n\r\n".encode()
            )
            answer = b"".join(iter(lambda: stranger.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 403")
        assert b"AccessControlException" in answer
    assert hadoop.create("a", b"1").status == 201


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([b"PUT /webhdfs/v1/"], id="half a request line"),
        pytest.param([b"GET / HTTP/1.1\r\nX: "] + [b"x" * 65_536] * 4, id="endless header"),
    ],
)
def test_head_of_a_request_has_limits_of_time_and_size(store, monkeypatch, sent):
    """What is no request yet is cut off."""
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.2 if len(sent) == 1 else 60.0)
    with _connection(store.address) as stranger:
        stranger.settimeout(30)
        with suppress(ConnectionError):
            for piece in sent:
                stranger.sendall(piece)
            assert stranger.recv(1) == b""


def test_body_has_limits_of_time_and_size(store, hadoop, monkeypatch, client, tmp):
    """A client that stops in the middle is cut off, a file that is too large is refused by name."""
    monkeypatch.setattr(server, "_BODY_SECONDS", 0.2)
    with _connection(store.address) as slow:
        slow.settimeout(30)
        slow.sendall(
            f"PUT /webhdfs/v1{hadoop.root}/a?op=CREATE&data=true HTTP/1.1\r\nHost: x\r\n"
            "Content-Length: 2\r\n\r\n1".encode()
        )
        with suppress(ConnectionError):
            assert slow.recv(1) == b""
    monkeypatch.setattr(server, "_LARGEST_BODY", 3)
    assert "takes no larger one" in hadoop.create("a", b"1234").exception["message"]
    assert hadoop.create("b", b"123").status == 201
    assert client.list(f"{tmp}/q") == ["b"]


_CROWD = """
import resource, socket, sys
from tests.local.test_checkpoints import SECRET, Hadoop
from yt_exactly_once.checkpoints import checkpoints
with checkpoints(proxy=sys.argv[1], secret=SECRET) as store:
    # The strangers' ends are in this process too, and need files of their own.
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    host, port = store.address.split(":")
    strangers = []
    for _ in range(300):
        strangers.append(socket.create_connection((host, int(port))))
        strangers[-1].sendall(b"PUT /webhdfs/v1/")
    hadoop = Hadoop(store.url(sys.argv[2]))
    assert hadoop.create("a", b"1").status == 201
    assert hadoop.open("a").body == b"1"
    left = 0
    for one in strangers:
        one.settimeout(0.01)
        try:
            one.recv(1)
        except TimeoutError:
            left += 1
        except ConnectionError:
            pass
    print(left)
"""


def test_crowd_of_half_requests_does_not_lock_the_gateway(cluster, tmp):
    """With 256 files, 300 strangers get no more than the places that are left."""
    command = f'ulimit -S -n 256 && exec {sys.executable} -c "$0" {cluster.proxy_urls[0]} {tmp}/q'
    done = subprocess.run(
        ["sh", "-c", command, _CROWD], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) <= (256 - 96) // 2


@pytest.mark.parametrize("name", ["link", "link/inner"])
def test_links_do_not_lead_out_of_a_root(hadoop, client, tmp, name):
    """Whoever may write into a root gets no further with the token of the gateway."""
    client.create("map_node", f"{tmp}/outside/inner", recursive=True)
    client.write_file(f"{tmp}/outside/inner/a", b"secret")
    assert hadoop.create("first", b"1").status == 201
    client.link(f"{tmp}/outside", f"{tmp}/q/link")
    for answer in (
        hadoop.list(name),
        hadoop.look(name),
        hadoop.open(f"{name}/a"),
        hadoop.create(f"{name}/a", b"2", overwrite="true"),
        hadoop.create(scratch(f"{name}/a"), b"2"),
        hadoop.rename("first", f"{name}/b"),
        hadoop.delete(f"{name}/a"),
        hadoop.delete(name, recursive="true"),
    ):
        assert answer.exception["exception"] == "AccessControlException"
        assert "does not follow links" in answer.exception["message"]
    assert client.read_file(f"{tmp}/outside/inner/a").read() == b"secret"
    assert client.list(f"{tmp}/outside") == ["inner"]


def test_no_request_takes_a_root_away(cluster, client, tmp):
    """Not alone, and not with a folder around it: the next query would begin again in its place."""
    roots = [tmp, f"{tmp}/a/q"]
    with checkpoints(proxy=cluster.proxy_urls[0], secret=SECRET, roots=roots) as store:
        outer = Hadoop(store.url(tmp))
        assert outer.create("a/q/offsets", b"1").status == 201
        assert outer.create("other/x", b"1").status == 201
        for answer in (
            outer.delete("", recursive="true"),
            outer.delete("a/q", recursive="true"),
            outer.delete("a", recursive="true"),
            outer.rename("a/q", "b"),
            outer.rename("other", "a", "OVERWRITE"),
            outer.create("", b"2", overwrite="true"),
        ):
            assert answer.status >= 400
        assert client.read_file(f"{tmp}/a/q/offsets").read() == b"1"
        assert outer.delete("other", recursive="true").status == 200
        assert not client.exists(f"{tmp}/other")


def _connection(address):
    host, port = address.split(":")
    return socket.create_connection((host, int(port)))
