"""What a sink can say without a batch: the check before the start, and who else moves a consumer."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from tests.contract.tables import create
from yt_exactly_once import Target, TransactionalSink
from yt_exactly_once.commit.batch import MicroBatch, PartitionRange, SourceRange
from yt_exactly_once.commit.consumers import offsets_of
from yt_exactly_once.commit.entry import LedgerEntry
from yt_exactly_once.commit.ledger import LEDGER_SCHEMA, CommitLedger
from yt_exactly_once.commit.notes import Note, NoteKind
from yt_exactly_once.config import ClusterConfig, RetryPolicy
from yt_exactly_once.errors import (
    CheckpointError,
    ClusterUnavailableError,
    ConfigError,
    LedgerError,
    OffsetConflictError,
    SchemaMismatchError,
    TableNotFoundError,
    TableNotMountedError,
)
from yt_exactly_once.spark.engine.look_up import with_other_query
from yt_exactly_once.spark.query.notes import FolderNotes, HadoopNotes, LedgerNotes
from yt_exactly_once.spark.sink.options import SinkOptions
from yt_exactly_once.spark.sink.targets import are_the_same, prepare_target
from yt_exactly_once.spark.storage import open_storage
from yt_exactly_once.ytsaurus.client import Connection
from yt_exactly_once.ytsaurus.tables import ensure_table

SCHEMA = StructType().add("k", LongType(), nullable=False).add("v", StringType())
FRAME = SimpleNamespace(columns=SCHEMA.names, schema=SCHEMA)
"""What the check needs of a DataFrame."""

KEY = {"name": "k", "type": "int64", "sort_order": "ascending", "required": True}
VALUE = {"name": "v", "type": "utf8"}


@pytest.fixture
def sink(cluster, client, tmp):
    """Build a sink on a sorted target that fits."""
    create(client, f"{tmp}/target", [KEY, VALUE])
    return lambda **options: TransactionalSink(
        Target(f"{tmp}/target", write=options.pop("write", None)),
        proxy=options.pop("proxy", cluster.proxy_urls[0]),
        **options,
    )


def test_check_passes_and_creates_nothing(client, tmp, sink):
    """The ledger is for the first batch to make."""
    sink().check(FRAME)
    assert client.list(tmp) == ["target"]


def test_check_says_what_the_first_batch_would(client, tmp, sink):
    """Table, columns, output mode, ledger, address."""
    client.unmount_table(f"{tmp}/target", sync=True)
    with pytest.raises(TableNotMountedError):
        sink().check(FRAME)
    client.mount_table(f"{tmp}/target", sync=True)
    other = StructType().add("k", StringType()).add("v", StringType())
    with pytest.raises(SchemaMismatchError):
        sink().check(SimpleNamespace(columns=other.names, schema=other))
    with pytest.raises(ConfigError, match="is for output mode complete"):
        sink(write="replace").check(FRAME, output_mode="Append")
    sink(write="replace").check(FRAME, output_mode="complete")
    create(client, f"{tmp}/ledger", [KEY, VALUE])
    with pytest.raises(LedgerError):
        sink(ledger_path=f"{tmp}/ledger").check(FRAME)
    with pytest.raises(ConfigError, match="dead-letter"):
        sink(dead_letter_path=f"{tmp}/ledger").check(FRAME)
    with pytest.raises(ClusterUnavailableError, match=r"proxy=http://127.0.0.1:1\]"):
        sink(proxy="127.0.0.1:1").check(FRAME)
    client.remove(f"{tmp}/target")
    with pytest.raises(TableNotFoundError):
        sink().check(FRAME)


def test_notebook_shows_targets_and_options_and_no_secret(sink, tmp):
    """What is as by default is left out, and names are no markup."""
    shown = sink(token="secret-token", dead_letter_path=f"{tmp}/<b>", mode="transactional")
    html = shown._repr_html_()
    assert "secret-token" not in html
    assert "<th>ledger_path</th>" in html
    assert f"<td>{tmp}/&lt;b&gt;</td>" in html
    assert f"<td>{tmp}/target</td>" in html
    assert "split_oversized" not in html


def entry_of(query, target, consumer):
    source = SourceRange("local", "//q", consumer, (PartitionRange(0, 0, 5),))
    batch = MicroBatch(query, 7, "run", (source,))
    return LedgerEntry(query, target, 7, "run", "1-2-3-4", offsets_of(batch))


def test_conflict_names_the_other_query(cluster, tmp):
    """Another query, or another sink of the same one; not those with other consumers."""
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    ledger = CommitLedger(f"{tmp}/ledger", "mine", ["//t"])
    ensure_table(connection, ledger.path, LEDGER_SCHEMA, {})
    delivery = SimpleNamespace(
        ledger=ledger,
        mode=SimpleNamespace(connection=connection),
        batch=MicroBatch("mine", 8, "run"),
    )
    rows = [entry_of("mine", "//t", "//c"), entry_of("stranger", "//s", "//other")]
    connection.reader.insert_rows(ledger.path, [entry.to_row() for entry in rows])

    def named():
        error = OffsetConflictError("The consumer is at row 9", query="mine", consumer="//c")
        found = with_other_query(delivery, error)
        assert set(error.where) == {"query", "consumer"}, "an error is not edited"
        return found

    assert "other_query" not in named().where
    connection.reader.insert_rows(ledger.path, [entry_of("theirs", "//u", "//c").to_row()])
    error = named()
    assert error.where["other_query"] == "theirs"
    assert "Query theirs has moved it too: with batch 7, which it wrote into //u" in str(error)
    connection.reader.delete_rows(ledger.path, [{"query_id": "theirs", "target": "//u"}])
    ours = entry_of("mine", "//u", "//c").to_row()
    for batch, run, said in (
        (7, "another", None),
        (
            8,
            "another",
            "Run another of this very query has moved it: with batch 8, which it wrote into //u",
        ),
        (8, "run", "This run has moved it: with batch 8"),
    ):
        connection.reader.insert_rows(ledger.path, [ours | {"batch_id": batch, "run_id": run}])
        error = named()
        assert error.where.get("other_run") == (said and run)
        assert (said or "at row 9") in str(error)
        assert ("'A checkpoint was copied'" in error.remedy) == (
            said is not None and run == "another"
        )
    delivery.ledger = CommitLedger(f"{tmp}/none", "mine", ["//t"])
    assert str(named()) == str(
        OffsetConflictError("The consumer is at row 9", query="mine", consumer="//c")
    )


def test_ledger_keeps_the_notes_that_the_checkpoint_refuses(cluster, client, tmp, tmp_path):
    """Each query and job has its own, whatever its id; the error of the checkpoint has a type."""
    path = f"{tmp}/ledger"
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    ensure_table(connection, path, LEDGER_SCHEMA, {})
    one, other = (
        LedgerNotes(connection, path, name, RetryPolicy(), lambda *_, **__: None)
        for name in ("query", "application:a/@&*[{b")
    )
    made = [Note.about(kind, "//t", path, 3) for kind in (NoteKind.FAILED, NoteKind.REFUSED)]
    for note in made:
        one.add(note, "why")
    other.add(made[0], "why")
    assert one.look() == (client.get(f"{path}/@id"), tuple(made))
    assert other.all() == (made[0],)

    (tmp_path / "checkpoint").write_text("a file, where a folder should be")
    broken = FolderNotes(open_storage(str(tmp_path / "checkpoint")))
    hadoop = HadoopNotes(MagicMock(), MagicMock(), "checkpoint")
    hadoop._files.create.side_effect = hadoop._files.exists.side_effect = OSError
    for call in (lambda: broken.add(made[0], "why"), hadoop.all, lambda: hadoop.add(made[0], "")):
        with pytest.raises(CheckpointError, match="note"):
            call()


def test_target_stays_the_same_while_nobody_changes_it(cluster, client, tmp):
    """Rows, and being mounted again, do not count; a run would prepare it again and again."""
    path = f"{tmp}/target"
    create(client, path, [KEY, VALUE])
    connection = Connection(ClusterConfig(proxy=cluster.proxy_urls[0]))
    prepared = prepare_target(connection, Target(path), SCHEMA, SinkOptions(path, proxy="none"))
    client.insert_rows(path, [{"k": 1, "v": "a"}])
    for change in (client.freeze_table, client.unmount_table, client.mount_table):
        change(path, sync=True)
        assert are_the_same(connection, [prepared])
