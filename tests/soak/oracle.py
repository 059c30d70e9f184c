"""The judgement: what clients were told against what the cluster holds.

It computes from the records alone and knows nothing of how the cluster works.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.soak.records import ACKED, FAILED
from tests.soak.stage import ACCOUNT_COUNT, BALANCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.soak.records import ClientReport, Write
    from tests.soak.stage import State

_SHOWN = 20


def judge(reports: Sequence[ClientReport], state: State) -> list[str]:
    """Return every broken promise as a sentence, at most a few of each sort."""
    writes = [write for report in reports for write in report.writes]
    found: list[str] = []
    for part in (
        _journal(writes, state),
        _transfers(writes, state),
        _events(reports, state),
        _consumed(writes, state),
        (broken for report in reports for broken in report.broken),
    ):
        found += list(part)[:_SHOWN]
    return found


def row_name(write: str, part: int) -> str:
    """Name a row of a write."""
    return f"{write}/{part}"


def _journal(writes: Sequence[Write], state: State) -> Iterator[str]:
    journal = Counter(name for tablet in state.journal for name in tablet)
    rows = Counter(state.rows)
    expected: set[str] = set()
    for write in writes:
        if write.kind not in {"append", "single"}:
            continue
        names = [row_name(write.name, part) for part in range(write.rows)]
        expected.update(names)
        tables = (
            {"journal": journal, "rows": rows} if write.kind == "append" else {"journal": journal}
        )
        counts = {table: {held[name] for name in names} for table, held in tables.items()}
        yield from _all_or_none(write, counts)
    for name in journal.keys() - expected:
        yield f"journal has {name}, which nobody wrote"


def _all_or_none(write: Write, counts: dict[str, set[int]]) -> Iterator[str]:
    held = set().union(*counts.values())
    if held - {0, 1}:
        yield f"{write.kind} {write.name} ({write.outcome}): rows are there {max(held)} times"
    elif len(held) > 1:
        yield f"{write.kind} {write.name} ({write.outcome}): only a part is there: {counts}"
    elif write.outcome == ACKED and held != {1}:
        yield f"{write.kind} {write.name}: acknowledged and lost"
    elif write.outcome == FAILED and held != {0}:
        yield f"{write.kind} {write.name}: refused and there"


def _transfers(writes: Sequence[Write], state: State) -> Iterator[str]:
    tried = {write.name: write for write in writes if write.kind == "transfer"}
    for name, write in tried.items():
        yield from _all_or_none(write, {"transfers": {int(name in state.transfers)}})
    for name in state.transfers.keys() - tried.keys():
        yield f"transfer {name} is there, which nobody made"
    balances = dict.fromkeys(range(ACCOUNT_COUNT), BALANCE)
    versions: Counter[tuple[int, int]] = Counter()
    for source, target, amount, source_version, target_version in state.transfers.values():
        balances[source] -= amount
        balances[target] += amount
        versions[source, source_version] += 1
        versions[target, target_version] += 1
    for (account, version), count in versions.items():
        if count > 1:
            yield f"account {account}: {count} transfers made version {version}; an update was lost"
    for account, (balance, version) in state.accounts.items():
        if balance != balances[account]:
            yield f"account {account} holds {balance}, its transfers say {balances[account]}"
        made = sum(1 for known, _ in versions if known == account)
        if version != made:
            yield f"account {account} has version {version} after {made} transfers"


def _events(reports: Sequence[ClientReport], state: State) -> Iterator[str]:
    """Events are either consumed, or still in the queue, or both; each is one row of the queue."""
    rows = {(partition, index): name for partition, index, name in state.consumed} | state.events
    for partition, index, name in state.consumed:
        if rows[partition, index] != name:
            yield f"event {partition}/{index} was consumed as {name}, the queue has another row"
    counts = Counter(rows.values())
    known = {name for report in reports for name in (*report.pushed, *report.pending)}
    for name in (name for report in reports for name in report.pushed):
        if counts[name] != 1:
            yield f"event {name}: acknowledged, in the queue {counts[name]} times"
    for name in (name for report in reports for name in report.pending):
        if counts[name] > 1:
            yield f"event {name}: not acknowledged, in the queue {counts[name]} times"
    for partition, index, name in (place for report in reports for place in report.seen):
        # A row that was trimmed without being consumed would be missing here.
        if rows.get((partition, index)) != name:
            yield f"event {name} was seen at {partition}/{index}, where it is not"
    for name in counts.keys() - known:
        yield f"event {name} is in the queue, nobody pushed it"


def _consumed(writes: Sequence[Write], state: State) -> Iterator[str]:
    ranges: dict[int, list[int]] = {}
    for partition, index, _ in state.consumed:
        ranges.setdefault(partition, []).append(index)
    for partition in sorted({*ranges, *state.offsets}):
        indexes = sorted(ranges.get(partition, []))
        offset = state.offsets.get(partition, 0)
        if indexes != list(range(offset)):
            yield (
                f"partition {partition}: offset {offset}, but {len(indexes)} rows were put out, "
                f"{_describe(indexes, offset)}"
            )
    for write in writes:
        if write.kind == "consume" and write.outcome == ACKED:
            partition, end = write.detail["partition"], write.detail["end"]
            if state.offsets.get(partition, 0) < end:
                yield f"consume {write.name}: acknowledged, and the offset is below {end}"


def _describe(indexes: Iterable[int], offset: int) -> str:
    counts = Counter(indexes)
    twice = [index for index, count in counts.items() if count > 1][:5]
    missing = [index for index in range(offset) if index not in counts][:5]
    return f"doubled {twice}, missing {missing}"
