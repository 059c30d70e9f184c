"""Answers that are sent while they are made: bounded memory, one moment, errors as trailers."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from yt import yson
from yt.common import YtResponseError
from yt.wrapper import JsonFormat, YsonFormat

from tests.contract.tables import columns, create
from yt_exactly_once.local import LocalCluster

ROWS = 20_000
_PARTS, _ROWS_PER_PART = 6, 16_000


@pytest.fixture
def table(client, tmp):
    """A static table of several pieces, with a NaN near its end."""
    path = f"{tmp}/table"
    schema = [{"name": "n", "type": "int64"}, {"name": "d", "type": "double"}]
    client.create("table", path, attributes={"schema": schema})
    client.write_table(path, [{"n": n, "d": 0.5} for n in range(ROWS)], format=YsonFormat())
    client.write_table(f"<append=%true>{path}", [{"n": ROWS, "d": float("nan")}])
    return path


def _read(raw, path, headers=""):
    """Return all bytes of an answer, framing of HTTP included."""
    parameters = json.dumps({"path": path})
    request = (
        f"GET /api/v4/read_table HTTP/1.1\r\nHost: localhost\r\nX-YT-Parameters: {parameters}\r\n"
        f"Accept: application/json\r\nConnection: close\r\n{headers}\r\n"
    )
    return raw.exchange(request.encode())


def test_late_error_arrives_as_trailers(raw, table):
    """The status was 200 when it happened; the end of the body says what went wrong."""
    answer = _read(raw, table)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"Trailer: X-YT-Error, X-YT-Response-Code, X-YT-Response-Message".lower() in head.lower()
    assert b'{"n":1234,"d":0.5}' in body
    trailers = body.rpartition(b"\r\n0\r\n")[2].decode().split("\r\n")
    assert trailers[-2:] == ["", ""]
    found = dict(line.split(": ", 1) for line in trailers[:-2])
    assert json.loads(found["X-YT-Error"])["code"] == int(found["X-YT-Response-Code"]) == 1
    assert "NaN" in found["X-YT-Response-Message"]


def test_client_raises_what_the_trailers_say(client, table):
    """Rows that came before are no success; the next request gets a connection of its own, unnoticed."""
    for _ in range(3):
        with pytest.raises(YtResponseError, match="NaN"):
            client.read_table(table, format=JsonFormat(), raw=True).read()
        assert client.exists(table)
    assert len(list(client.read_table(table, format=YsonFormat()))) == ROWS + 1


def test_trailers_are_not_announced_to_those_who_refuse_them(raw, table):
    """Some HTTP libraries stumble over them."""
    for headers, announced in (("", True), ("X-YT-Omit-Trailers: 1\r\n", False)):
        assert (b"trailer:" in _read(raw, f"{table}[:#3]", headers).lower()) == announced


def test_old_http_gets_the_answer_in_one_piece(raw, table):
    """It knows no chunks, so an error can only be the whole answer."""
    for path, status in ((f"{table}[:#{ROWS}]", b"200"), (table, b"400")):
        target = f"/api/v4/read_table?path={quote(path)}&output_format=json"
        found = raw.exchange(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        head, _, body = found.partition(b"\r\n\r\n")
        assert head.split(b" ")[1] == status
        assert f"content-length: {len(body)}".encode() in head.lower()
        assert b"transfer-encoding" not in head.lower()


def test_early_error_is_still_an_ordinary_one(raw, client, tmp):
    """Nothing has been sent yet, so the status can say it."""
    path = f"{tmp}/short"
    client.create("table", path, attributes={"schema": [{"name": "d", "type": "double"}]})
    client.write_table(path, [{"d": float("nan")}])
    answer = raw("GET", f"/api/v4/read_table?path={path}", {"Accept": "application/json"})
    assert answer.status == 400
    assert "trailer" not in answer.headers
    assert "NaN" in answer.error["message"]


def test_answer_is_of_one_moment(client, table):
    """What is written while an answer is on its way is not in it."""
    rows = client.read_table(table, format=YsonFormat(), raw=True)
    first = rows.read(10)
    client.remove(table)
    client.create("table", table)
    whole = first + rows.read()
    assert sum(1 for _ in yson.loads(whole, yson_type="list_fragment")) == ROWS + 1


def _peak(cluster):
    """Return the largest memory of the proxy so far, in megabytes."""
    for line in Path(f"/proc/{cluster.proxy_pids[0]}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    raise LookupError


@pytest.mark.nightly
def test_memory_is_bounded_by_the_request():
    """A file, a table and a queue of 96 MB each are read without being loaded."""
    with LocalCluster() as cluster:
        client = cluster.client(proxy={"content_encoding": "identity"})
        client.create("file", "//tmp/file")
        client.create("table", "//tmp/table")
        create(client, "//tmp/queue", columns(s="string"))
        body = yson.dumps([{"s": "x" * 1000}] * _ROWS_PER_PART, yson_type="list_fragment")
        form = YsonFormat()
        for _ in range(_PARTS):
            client.write_file("<append=%true>//tmp/file", body)
            client.write_table("<append=%true>//tmp/table", [body], raw=True, format=form)
            client.insert_rows("//tmp/queue", [body], raw=True, format=form)
        cluster.restart_proxy()
        assert sum(1 for _ in client.pull_queue("//tmp/queue", 5, 0, max_row_count=10)) == 10
        before = _peak(cluster)
        read = (
            client.read_file("//tmp/file"),
            client.read_table("//tmp/table", raw=True, format=form),
            client.read_table("//tmp/queue", raw=True, format=form),
        )
        assert [sum(map(len, answer.chunk_iter())) for answer in read] == [_PARTS * len(body)] * 3
        pulled = client.pull_queue("//tmp/queue", 90_000, 0, max_row_count=1000)
        assert sum(1 for _ in pulled) == 1000
        counted = client.select_rows("sum(1) as c, max(s) as m from [//tmp/queue] group by 1")
        assert next(iter(counted))["c"] == _PARTS * _ROWS_PER_PART
        assert _peak(cluster) - before < 96


@pytest.mark.parametrize("size", [(1 << 18) - 9, (1 << 18) + 1, 3 << 18])
def test_long_answer_comes_whole(client, tmp, size):
    """It is sent in slices, whether it has a length or comes in chunks."""
    text = bytes(n * n % 251 for n in range(size)).hex()[:size]
    # No single string of Cypress is so long.
    parts = [text[start : start + (1 << 15)] for start in range(0, size, 1 << 15)]
    client.set(f"{tmp}/long", parts)
    client.write_file(f"{tmp}/file", text.encode())
    assert client.get(f"{tmp}/long") == parts
    assert client.read_file(f"{tmp}/file").read() == text.encode()
