"""What a rehearsal makes of its batches, and the checkpoint that it cuts; no driver."""

import pytest
from pyspark.sql import DataFrameWriter

from yt_exactly_once import TransactionalSink
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.testing import Judgement, OtherRowsError, Rehearsal, Rehearsed
from yt_exactly_once.testing.capture import replace_sinks
from yt_exactly_once.testing.new_code import cut


def names(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_copy_is_the_checkpoint_before_a_batch_had_run(tmp_path):
    """With the state that the batch begins with, in every form in which Spark keeps one."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    kept = {
        "metadata",
        *(f"{folder}/{name}" for folder in ("offsets", "commits") for name in ("0", ".0.crc", "1")),
        "offsets/2",
        "offsets/.2.crc",
        "sources/0/7",
        "state/0/0/1.delta",
        "state/0/0/2.delta",
        "state/0/0/.2.delta.crc",
        "state/0/1/2.zip",
        "state/0/1/2_5d0b.changelog",
        "state/0/1/SSTs/000008-5d0b.sst",
        "state/0/_metadata/metadata",
    }
    later = {
        "commits/2",
        "commits/.2.crc",
        "offsets/3",
        "state/0/0/3.delta",
        "state/0/1/3_5d0b.zip",
    }
    for name in kept | later:
        (original / name).parent.mkdir(parents=True, exist_ok=True)
        (original / name).write_text(name)
    cut(original, copy, 2)
    assert names(copy) == kept
    assert names(original) == kept | later


def batch(judgement, **more):
    return Rehearsed(4, "//out", judgement, old_rows=2, new_rows=1, **more)


@pytest.mark.parametrize(
    ("judgements", "worst", "in_idempotent"),
    [
        ([Judgement.SAME], Judgement.SAME, True),
        ([Judgement.SAME, Judgement.UNPROVEN], Judgement.UNPROVEN, None),
        ([Judgement.UNREADABLE, Judgement.SAME], Judgement.UNREADABLE, None),
        ([Judgement.SAME, Judgement.OTHER, Judgement.UNREADABLE], Judgement.OTHER, False),
        ([Judgement.OTHER, Judgement.REFUSED], Judgement.REFUSED, False),
        ([], Judgement.UNPROVEN, None),
    ],
)
def test_worst_batch_decides(judgements, worst, in_idempotent):
    """In transactional mode nothing of an unfinished batch is visible: any code that runs may replay it."""
    found = Rehearsal([batch(one) for one in judgements], "idempotent")
    assert found.judgement is worst
    assert found.same == (worst is Judgement.SAME)
    assert found.may_change_in_mid_batch is in_idempotent
    in_transactional = Rehearsal(found.batches, "transactional").may_change_in_mid_batch
    assert in_transactional is (worst is not Judgement.REFUSED)
    in_parts = Rehearsal(found.batches, "transactional", split_oversized=True)
    assert in_parts.may_change_in_mid_batch is in_idempotent, "parts of the batch are visible"


def test_report_shows_rows_side_by_side():
    examples = (({"id": 1}, {"id": 2}), (None, {"id": 3}))
    found = Rehearsal(
        [
            batch(
                Judgement.OTHER,
                by="the digest in the ledger",
                only_old=1,
                only_new=2,
                examples=examples,
            ),
            batch(Judgement.UNREADABLE, reason="trimmed"),
        ],
        "idempotent",
        unfinished=5,
    )
    assert str(found).splitlines() == [
        "other rows (1 other rows, 1 cannot be read)",
        "batch 4 of //out: other rows (2 rows before, 1 now, by the digest in the ledger)",
        "  only before: 1, only now: 2",
        "  - {'id': 1}",
        "  + {'id': 2}",
        "  - no such row",
        "  + {'id': 3}",
        "batch 4 of //out: cannot be read (2 rows before, 1 now)",
        "  trimmed",
        (
            "Do not change the code while a batch is unfinished: let the old code finish it, with "
            "trigger(availableNow=True). Batch 5 is such a batch now."
        ),
    ]
    with pytest.raises(OtherRowsError, match="no such row"):
        found.assert_same()
    assert found.to_json()["batches"][0]["examples"][0] == ({"id": 1}, {"id": 2})
    Rehearsal([batch(Judgement.SAME)]).assert_same()


def test_function_that_writes_with_the_format_is_refused(monkeypatch):
    """Its rows would be in the target of the real query. What it writes elsewhere is not ours."""
    monkeypatch.setattr(TransactionalSink, "__call__", TransactionalSink.__call__)
    monkeypatch.setattr(DataFrameWriter, "format", lambda _, source: source)
    replace_sinks()
    writer = DataFrameWriter.__new__(DataFrameWriter)
    assert writer.format("parquet") == "parquet"
    for name in ("yt", "yt_exactly_once"):
        with pytest.raises(ConfigError, match="a rehearsal writes nothing"):
            writer.format(name)
