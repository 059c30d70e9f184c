"""The newest by sequence wins: changes of two writers in any order, against pandas; and each clause off."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from yt import yson

from tests import flows
from yt_exactly_once.codec import newest
from yt_exactly_once.codec.newest import ChangeRule, LatestChanges
from yt_exactly_once.codec.rows import WireFormat
from yt_exactly_once.codec.schema import TableSchema, arrow_schema_of, check_frame
from yt_exactly_once.spark.sink.newest import NewestChanges, changed_rows

TARGET, BESIDE = "//t", "//t_tombstones"
TABLE = TableSchema.from_yt(
    flows.columns({"k": "int64", "lsn": "int64", "pos": "int64", "v": "utf8?"}, ["k"])
)
FRAME = arrow_schema_of(TABLE)
RULE = ChangeRule(
    check_frame(FRAME, TABLE, target=TARGET, sorted=True), ("lsn", "pos"), "op", ("d",), ("u",)
)


class ConflictError(Exception):
    """Raised by a commit that wrote a row which another one has written since its start."""


class Tables:
    """The target and its tombstones, as a cluster has them: of writers of one row the first one wins."""

    def __init__(self):
        self.rows, self.written, self.moment = {TARGET: {}, BESIDE: {}}, {}, 0


class Snapshot:
    """A transaction."""

    def __init__(self, tables):
        self.tables, self.began, self.changes = tables, tables.moment, {}
        self.rows = {path: dict(rows) for path, rows in tables.rows.items()}

    def side_by_side(self, calls):
        return [call(self) for call in calls]

    def lookup_columns(self, path, keys, columns):
        wanted = [key["k"] for key in yson.loads(keys, yson_type="list_fragment")]
        there = [self.rows[path][key] for key in wanted if key in self.rows[path]]
        rows = [{name: row[name] for name in columns} for row in there]
        return yson.dumps(rows, yson_type="list_fragment", yson_format="binary")

    def write(self, targets):
        for target in targets:
            for payload in (each for group in target.groups for each in group):
                for row in yson.loads(bytes(payload.data), yson_type="list_fragment"):
                    self.changes[target.path, row["k"]] = None if payload.deletes else dict(row)

    def commit(self):
        """Apply what was written, or raise `ConflictError`."""
        tables = self.tables
        if any(tables.written.get(place, 0) > self.began for place in self.changes):
            raise ConflictError
        tables.moment += 1
        for (path, key), row in self.changes.items():
            tables.written[path, key] = tables.moment
            tables.rows[path].pop(key, None)
            if row is not None:
                tables.rows[path][key] = row


class Writer:
    """A query: it writes its batches one after the other, each again until it is committed."""

    def __init__(self, tables, batches):
        self.tables, self.batches, self.open = tables, list(batches), None

    def step(self):
        """Begin an attempt at the next batch, or commit the one that is open; return whether any is left."""
        if self.open is not None:
            transaction, self.open = self.open, None
            try:
                transaction.commit()
            except ConflictError:
                return True
            self.batches.pop(0)
        elif self.batches:
            self.open = Snapshot(self.tables)
            batch = self.batches[0]
            self.open.write(batch.effective(self.open))
        return bool(self.batches)


def batch_of(changes):
    """Return the changes of a batch, for the commit."""
    columns_of = list(zip(*changes, strict=True))
    schema = FRAME.append(pa.field("op", pa.string()))
    rows = pa.record_batch(
        [pa.array(each, kind) for each, kind in zip(columns_of, schema.types, strict=True)], schema
    )
    target = SimpleNamespace(
        rule=RULE, dyn_batch_size=3, path=TARGET, wire=WireFormat.YSON, require_room=lambda _: None,
        rows_per_tablet_limit=len(changes),
    )  # fmt: skip
    return changed_rows(None, target, [rows]).compared


def in_order(changes):
    """Return the table after all changes, by pandas."""
    frame = pd.DataFrame(changes, columns=["k", "lsn", "pos", "v", "op"])
    last = frame.sort_values(["lsn", "pos"]).groupby("k").last()
    return last[last["op"] == "u"]["v"].to_dict()


CHANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from("uud")), min_size=1, max_size=10
)


def check(find: bool = False) -> Callable[[], None]:
    """Return the property; to find a fault it looks longer, and does not make it small."""
    phases = [Phase.generate] if find else list(Phase)

    @settings(
        phases=phases,
        derandomize=True,
        database=None,
        max_examples=2_000 if find else 80,
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(data=st.data(), drawn=CHANGES)
    def holds(data, drawn):
        changes = [(key, lsn, pos, f"{lsn}.{pos}", op) for pos, (key, lsn, op) in enumerate(drawn)]
        again = data.draw(st.lists(st.sampled_from(changes), max_size=4))
        tables, arriving = Tables(), data.draw(st.permutations([*changes, *again]))
        writers = []
        for share in (arriving[::2], arriving[1::2]):
            size = data.draw(st.integers(1, 4))
            pieces = [share[first : first + size] for first in range(0, len(share), size)]
            writers.append(Writer(tables, map(batch_of, pieces)))
        while any(writer.batches for writer in writers):
            writers[data.draw(st.integers(0, 1))].step()
            for writer in writers:
                if not any(other.batches for other in writers if other is not writer):
                    writer.step()
        found = {key: row["v"] for key, row in tables.rows[TARGET].items()}
        assert found == in_order(changes)

    return holds


def test_any_order_of_two_writers_leaves_what_the_sequence_says():
    check()()


def _first_of_a_key(put):
    def of(batches, rule):
        rows = pa.concat_batches(list(batches))
        keys = rows.column("k").to_pylist()
        first = pa.array([keys.index(key) for key in dict.fromkeys(keys)])
        kept = rows.take(first)
        return LatestChanges(
            rule, kept, newest.row_fragments(kept, rule.plan.keys), rule.deletes(kept)
        )

    put(LatestChanges, "of", of)


def _looks_up(path):
    def apply(put):
        real = NewestChanges._stored

        def stored(self, transaction):
            hidden = SimpleNamespace(
                side_by_side=lambda calls: [
                    call(transaction) for call in calls if call.keywords["path"] == path
                ]
            )
            return real(self, hidden)

        put(NewestChanges, "_stored", stored)

    return apply


def _writes(kept):
    """Change what an attempt writes, given the target's part, the tombstones' part, and the transaction."""

    def apply(put):
        real = NewestChanges.effective
        put(NewestChanges, "effective", lambda self, t: kept(*real(self, t), t))

    return apply


def _without_deletes_of_absent_rows(target, beside, transaction):
    """Leave the key of a row that is not there alone: nothing then shows a writer that inserts it."""

    def there(payload):
        keys = list(yson.loads(bytes(payload.data), yson_type="list_fragment"))
        return not payload.deletes or any(key["k"] in transaction.rows[TARGET] for key in keys)

    groups = [[each for each in group if there(each)] for group in target.groups]
    return [replace(target, groups=groups), beside]


def _compares_once(put):
    real = NewestChanges.effective
    known = {}

    def effective(self, transaction):
        return known.setdefault(id(self), (self, real(self, transaction)))[1]

    put(NewestChanges, "effective", effective)


def _first_column_decides(put):
    real = ChangeRule.newer
    put(
        ChangeRule,
        "newer",
        lambda self, rows, keys, stored: real(replace(self, sequence=("lsn",)), rows, keys, stored),
    )


REMOVALS = {
    "the newest of a key in a batch": _first_of_a_key,
    "the comparison with the row": _looks_up(BESIDE),
    "the comparison with the tombstone": _looks_up(TARGET),
    "the tombstone": _writes(lambda target, *_: [target]),
    "the delete of a row that is not there": _writes(_without_deletes_of_absent_rows),
    "the comparison in each attempt": _compares_once,
    "the further columns of the sequence": _first_column_decides,
}


@pytest.mark.parametrize("clause", REMOVALS)
def test_each_clause_is_needed(clause, monkeypatch):
    """Without it the property finds a table that is wrong."""
    REMOVALS[clause](monkeypatch.setattr)
    with pytest.raises(AssertionError):
        check(find=True)()


def test_conflict_of_two_writers_is_met_by_the_property():
    """Otherwise it would say nothing about them."""
    tables = Tables()
    one, two = (Writer(tables, [batch_of([(1, lsn, 0, "x", "u")])]) for lsn in (1, 2))
    for writer in (one, two, two, one):
        writer.step()
    assert one.batches
    assert np.all([one.step(), not one.step()])
    assert tables.rows[TARGET][1]["lsn"] == 2
