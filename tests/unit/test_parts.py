"""Cutting a batch into parts: the limit holds, nothing is lost, order stays, digests tell."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yt_exactly_once.commit.cluster import Payload
from yt_exactly_once.commit.parts import TargetRows, digest_of, digest_of_rows, split, whole
from yt_exactly_once.commit.tally import RowDigest, SentBy, TableRows, Tally


def rows(groups, *, group_is_tablet=True):
    payloads = [
        [Payload(count, f"{group}/{place}".encode()) for place, count in enumerate(counts)]
        for group, counts in enumerate(groups)
    ]
    total = sum(sum(counts) for counts in groups)
    return TargetRows("//t", payloads, "yson", total, group_is_tablet=group_is_tablet)


def cut(target, limit):
    return [
        [[p.data.decode() for p in group] for group in part.targets[0].groups]
        for part in split([target], limit)
    ]


def test_batch_that_fits_has_one_part_without_digest():
    """The usual case costs nothing."""
    (part,) = split([rows([[40, 60], [100]])], 100)
    assert (part.number, part.count, part.digests, part.is_last) == (1, 1, (), True)


def test_bytes_of_a_target_are_those_of_its_payloads():
    assert rows([[40, 60], [100]]).byte_count == len("0/00/11/0")


def test_bytes_that_tasks_have_sent_are_bytes_of_the_target():
    """The ledger says who sent them."""
    (part,) = whole([TargetRows("//t", (), "yson", 3, sent_bytes=7, sent_by=SentBy.TASKS)])
    assert part.written() == {"//t": Tally(3, bytes=7, sent_by=SentBy.TASKS)}


def test_parts_tell_the_ledger_what_they_write_into_each_target():
    """Rejected rows are those of the target that could not take them, and each part has its digest."""
    target = digested([7, 2**64 - 1, 5])
    dead = TargetRows("//dead", [[Payload(2, b"x")]], "yson", 2, rejected_by="//t")
    first, second, third = split([target, dead], 10)
    assert first.written() == {"//t": Tally(10, rejected_rows=2, bytes=1, digest=RowDigest(7))}
    assert second.written() == {"//t": Tally(10, bytes=1, digest=RowDigest(2**64 - 1))}
    assert third.written() == {"//t": Tally(10, bytes=1, digest=RowDigest(5))}
    (alone,) = whole([target])
    assert alone.written() == {"//t": Tally(30, bytes=3, digest=RowDigest(11))}
    (both,) = whole([TargetRows("//u", (), "yson", 0, rejected_by="//t"), rows([[1]])])
    assert both.written() == {"//t": Tally(1, bytes=3)}
    (rejected,) = whole([dead])
    assert rejected.written() == {"//t": Tally(rejected_rows=2)}


def test_tables_of_a_pattern_are_one_target_of_the_ledger():
    """Which names them with their rows."""
    dead = TargetRows("//dead", [[Payload(2, b"x")]], "yson", 2, rejected_by="//{a}")
    tables = [TargetRows(path, (), "yson", 3, sent_bytes=7, pattern="//{a}") for path in "xy"]
    (both,) = whole([*tables, dead, TargetRows("//t", (), "yson", 1)])
    named = {"x": TableRows(3, 3), "y": TableRows(3, 3)}
    assert both.written() == {
        "//{a}": Tally(6, rejected_rows=2, bytes=14, tables=named),
        "//t": Tally(1),
    }


def digested(digests):
    groups = [[Payload(10, b"x", digest=digest) for digest in digests]]
    total = digest_of_rows(groups)
    return TargetRows("//t", groups, "yson", 10 * len(digests), group_is_tablet=True, digest=total)


def test_every_tablet_has_a_budget_of_its_own():
    """Groups that are tablets are cut side by side."""
    assert cut(rows([[60, 60, 60], [60]]), 100) == [
        [["0/0"], ["1/0"]],
        [["0/1"], []],
        [["0/2"], []],
    ]


def test_every_part_has_the_whole_budget():
    """The second as the first; one row more begins the next."""
    parts = [[["0/0"]], [["0/1", "0/2"]], [["0/3"]]]
    assert cut(rows([[100, 60, 40, 1]]), 100) == parts


def test_groups_without_tablets_share_one_budget():
    """Where keys choose the tablets, all rows may meet in one."""
    assert cut(rows([[60, 40], [60, 60]], group_is_tablet=False), 100) == [
        [["0/0", "0/1"], []],
        [[], ["1/0"]],
        [[], ["1/1"]],
    ]


def test_digests_grow_with_the_parts_and_see_a_changed_byte():
    """A replay that differs anywhere in what is written already is noticed."""
    first, second = split([rows([[60, 60]])], 100)
    assert first.digests == second.digests[:1]
    other = TargetRows(
        "//t", [[Payload(60, b"0/0"), Payload(60, b"changed")]], "yson", 120, group_is_tablet=True
    )
    changed = split([other], 100)
    assert changed[0].digests == first.digests
    assert changed[1].digests != second.digests


def test_deleted_keys_are_cut_and_told_as_what_they_are():
    """They count as rows, stay in their place, and differ from writes of the same bytes."""

    def changes(*deletes):
        group = [Payload(60, b"same", deletes=one) for one in deletes]
        return TargetRows("//t", [group], "yson", 60 * len(deletes))

    parts = split([changes(True, False)], 100)
    assert [part.targets[0].groups[0][0].deletes for part in parts] == [True, False]
    other = split([changes(False, True)], 100)
    assert parts[0].digests != other[0].digests


def test_digest_sees_changes_that_are_compared_in_the_transaction():
    one, other = (
        replace(rows([]), compared=SimpleNamespace(digest=text, beside="//t_tombstones"))
        for text in (b"a", b"b")
    )
    assert digest_of([one]) != digest_of([other])


def test_digest_sees_which_tables_rows_have_named():
    """They may lack the column that names them."""
    one, other = (TargetRows(path, [], "yson", 2, pattern="//{a}") for path in ("//t", "//u"))
    assert digest_of([one]) != digest_of([other])


def test_digest_stays_the_same_over_releases():
    """A replay after an update compares it with the one in the ledger."""
    group = [Payload(1, b"write"), Payload(1, b"delete", deletes=True)]
    found = digest_of([TargetRows("//t", [group], "yson", 2)])
    assert found == hashlib.sha256(b"+write-delete").hexdigest()


def test_batch_without_targets_has_one_part():
    """Its commit still advances the consumers and records the batch."""
    assert split([], 5) == whole([])


def test_targets_are_cut_together():
    """The parts of a batch cover all its targets; a small one is done earlier."""
    parts = split([rows([[60, 60]]), rows([[10]])], 100)
    assert [[target.row_count for target in part.targets] for part in parts] == [[60, 10], [60]]


@given(
    groups=st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=1, max_size=4),
    group_is_tablet=st.booleans(),
)
def test_no_part_exceeds_the_limit_and_no_payload_moves_or_is_lost(groups, group_is_tablet):
    """Whatever the sizes: limit, completeness and order within each group."""
    target = rows(groups, group_is_tablet=group_is_tablet)
    parts = split([target], 50)
    for part in parts:
        (piece,) = part.targets
        by_group = [sum(payload.row_count for payload in group) for group in piece.groups]
        assert max(by_group if group_is_tablet else [sum(by_group)], default=0) <= 50
        assert piece.row_count == sum(by_group)
    joined = [
        [payload for part in parts for payload in part.targets[0].groups[group]]
        for group in range(len(groups))
    ]
    assert joined == [list(group) for group in target.groups]


@pytest.mark.parametrize("groups", [[], [[]]])
def test_rows_that_tasks_wrote_are_one_part(groups):
    """Modes that write from tasks have nothing to cut."""
    target = TargetRows("//t", groups, "yson", 1_000_000)
    assert [one.row_count for part in split([target], 100) for one in part.targets] == [1_000_000]
