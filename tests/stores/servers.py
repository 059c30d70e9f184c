"""Servers that keep checkpoints: S3Proxy and HDFS. Each is a process that runs until its block ends."""

import http.client
import http.server
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

BUCKET = "checkpoints"

_JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PATIENCE_SECONDS = 120
_LOOK_SECONDS = 0.2

_S3PROXY = """
s3proxy.authorization=none
s3proxy.endpoint=http://127.0.0.1:{port}
jclouds.provider=filesystem-nio2
jclouds.identity=local
jclouds.credential=local
jclouds.filesystem.basedir={folder}
"""


@dataclass
class Store:
    """A file system for checkpoints.

    Attributes:
        root: location of the folder for checkpoints.
        submit: arguments of Spark's launcher.
        on_rename: called with the key that a rename is about to make, and again when it is made; says whether
            to go on. S3 has no rename: its client copies, and deletes then.
    """

    root: str
    submit: str
    on_rename: Callable[[str, bool], bool] = lambda _key, _is_done: True


@contextmanager
def s3(server: Path, client: Path, folder: Path) -> Iterator[Store]:
    """Run S3Proxy on a folder, behind a front that sees each request.

    Args:
        server: folder with its JARs.
        client: folder with the JARs of Hadoop's client for S3.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "buckets" / BUCKET).mkdir(parents=True)
    settings = folder / "s3proxy.conf"
    settings.write_text(_S3PROXY.format(port=port, folder=folder / "buckets"))
    main = "org.gaul.s3proxy.Main"
    command = [*_JAVA, "-cp", f"{server}/*", main, "--properties", str(settings)]
    log = folder / "s3proxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Front)
    front.daemon_threads = True
    try:
        _wait_for(port, process, log)
        address = f"http://127.0.0.1:{front.server_port}"
        store = Store(f"s3a://{BUCKET}/queries", _submit(client, address))
        _Front.port, _Front.store = port, store
        threading.Thread(target=front.serve_forever, daemon=True).start()
        yield store
    finally:
        front.shutdown()
        process.send_signal(signal.SIGKILL)
        process.wait()


def _submit(client: Path, address: str) -> str:
    conf = {
        "fs.s3a.endpoint": address,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": "local",
        "fs.s3a.secret.key": "local",
    }
    settings = " ".join(f"--conf spark.hadoop.{name}={value}" for name, value in conf.items())
    of_spark = {_artifact(jar) for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    jars = (str(jar) for jar in client.iterdir() if _artifact(jar) not in of_spark)
    return f"--driver-class-path {':'.join(sorted(jars))} {settings} pyspark-shell"


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.name)


@contextmanager
def hdfs(server: Path, folder: Path) -> Iterator[Store]:
    """Run a name node and a data node."""
    program = Path(__file__).with_name("Hdfs.java")
    command = [*_JAVA, "-cp", f"{server}/*", str(program), str(folder / "data")]
    with (
        (folder / "hdfs.log").open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder
        ) as process,
    ):
        assert process.stdout is not None
        lines = (line.decode().split() for line in process.stdout)
        port = next((words[1] for words in lines if words[:1] == ["port"]), None)
        assert port, (folder / "hdfs.log").read_text()[-2_000:]
        submit = "--conf spark.hadoop.dfs.replication=1 pyspark-shell"
        try:
            yield Store(f"hdfs://127.0.0.1:{port}/queries", submit)
        finally:
            process.kill()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_LOOK_SECONDS)
        else:
            return
    raise AssertionError(log.read_text()[-2_000:])


class _Front(http.server.BaseHTTPRequestHandler):
    """Passes requests on, and says which ones are renames."""

    protocol_version = "HTTP/1.1"
    port: int
    store: Store

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        is_rename = "x-amz-copy-source" in self.headers
        key = re.sub(rf"^/{BUCKET}/", "", self.path)
        if is_rename and not self.store.on_rename(key, False):
            self.close_connection = True
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        dropped = {"Connection", "Expect"}
        headers = {name: value for name, value in self.headers.items() if name not in dropped}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if is_rename and not self.store.on_rename(key, True):
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {
                "transfer-encoding",
                "connection",
                "content-length",
                "date",
                "server",
            }:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815 - its names

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
