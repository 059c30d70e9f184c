"""Files of a checkpoint, read without a JVM."""

import traceback
from types import SimpleNamespace

import pytest
from pyarrow import fs

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.compat.checkpoint import CheckpointFiles, WriterFiles
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.storage import WebHdfsFolder, open_storage
from yt_exactly_once.ytsaurus.client import Connection


def test_what_is_written_is_found(tmp_path):
    """On a disk, through PyArrow as on HDFS and S3."""
    files = open_storage(str(tmp_path))
    assert files.names("folder") == []
    with pytest.raises(FileNotFoundError):
        files.read("folder/file")
    files.write("folder/file", "ё".encode())
    assert files.read("folder/file") == "ё"
    assert files.names("folder") == ["file"]
    assert files.names("") == ["folder"]


STRANGE = "a%20b c?d=1#e:ё"
"""Every character of a name stands for itself, also in a URL."""


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_names_in_a_location_are_those_that_spark_writes_to(tmp_path, scheme):
    """Hadoop unquotes nothing, and knows no query and no fragment."""
    open_storage(f"{scheme}{tmp_path}/{STRANGE}").write("folder", b"content")
    assert (tmp_path / STRANGE / "folder").read_bytes() == b"content"


def test_pyarrow_gets_the_same_names(tmp_path, monkeypatch):
    """It unquotes them."""
    from_uri, asked = fs.FileSystem.from_uri, []

    def local(url):
        asked.append(url)
        return from_uri(url.replace("hdfs://host:1", "file://"))

    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=local))
    (tmp_path / STRANGE).mkdir()
    open_storage(f"hdfs://host:1{tmp_path}/{STRANGE}").write("file", b"content")
    assert asked[0].startswith("hdfs://host:1/")
    assert (tmp_path / STRANGE / "file").read_bytes() == b"content"


@pytest.mark.parametrize("location", ["yt:///home/app", "dbfs:/checkpoint"])
def test_file_system_that_pyarrow_does_not_read_is_named(location):
    """Before anything is read."""
    with pytest.raises(ConfigError, match=r"cannot be read without a JVM.*foreachBatch"):
        open_storage(location)


def test_cypress_path_with_two_slashes_is_refused_with_three():
    """What would be a host is the first name of the path."""
    connection = Connection(ClusterConfig.resolve("localhost:80", None))
    with pytest.raises(ConfigError, match="Write three slashes: yt:///home/app"):
        open_storage("yt://home/app", connection)


@pytest.mark.parametrize(
    "location",
    [
        "webhdfs://host:9870/SECRET/home/app/q",
        "webhdfs://host:9870/SECRET",
        "swebhdfs://host/SECRET/home/app/q",
        "webhdfs://host:port/SECRET/home/app/q",
        "webhdfs:///SECRET/host",
        "dbfs://name:SECRET@host/home",
        # PyArrow takes no slash in a key, and quotes the whole URL.
        "s3a://KEY:SEC/SECRET@host/home?region=SECRET",
        "s3a://KEY:SECRET SECRET@host/home",
    ],
)
def test_nothing_shows_the_secret_of_a_location(monkeypatch, location):
    """Who knows it can change the checkpoint, and errors and options end up in logs."""
    monkeypatch.setattr(WebHdfsFolder, "_ask", absent)
    with pytest.raises(ConfigError, match="host") as caught:
        WriterFiles(location).newest()
    with pytest.raises(ConfigError, match="host") as also_caught:
        CheckpointFiles(location).locate(None, 3)
    told = traceback.format_exception(caught.value) + traceback.format_exception(also_caught.value)
    options = SinkOptions(
        "//t", proxy="p", client_config={"token": "SECRET"}, checkpoint_location=location
    )
    assert "SECRET" not in f"{caught.value!r}{''.join(told)}{options!r}{options.cluster!r}"


def absent(*_arguments):
    raise FileNotFoundError


def checkpoint(root):
    (root / "offsets").mkdir()
    (root / "metadata").write_text('{"id":"the-query"}')
    for number in (0, 1, 10):
        (root / "offsets" / str(number)).write_text("v1\n{}\n7")
    (root / "offsets" / ".10.crc").touch()
    return WriterFiles(root.as_uri(), output_mode="complete")


def test_writer_finds_the_batch_that_runs(tmp_path):
    """Its number is the newest one logged; run and mode come from Spark, and its rows are read again."""
    files = checkpoint(tmp_path)
    assert files.newest() == 10
    place = files.locate(None, 10)
    assert (place.query_id, place.batch_id) == ("the-query", 10)
    batch = files.identify(files.locate(None, 1))
    assert (batch.output_mode, batch.stateful, batch.needs_its_rows) == ("complete", False, True)
    assert not files.has_ended(place)


def test_checkpoint_without_a_batch_is_refused(tmp_path):
    """It is the wrong folder."""
    with pytest.raises(ConfigError, match="has no batch"):
        WriterFiles(str(tmp_path / "elsewhere")).newest()
