"""The tables of the soak: how they are made and how they are read at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROOT = "//home/soak"
JOURNAL = f"{ROOT}/journal"
ROWS = f"{ROOT}/rows"
ACCOUNTS = f"{ROOT}/accounts"
TRANSFERS = f"{ROOT}/transfers"
EVENTS = f"{ROOT}/events"
PRODUCER = f"{ROOT}/producer"
CONSUMER = f"{ROOT}/consumer"
CONSUMED = f"{ROOT}/consumed"

PARTITIONS = 4
ACCOUNT_COUNT = 32
BALANCE = 1000
_PAGE = 50_000


@dataclass
class State:
    """What the cluster holds after the soak.

    Attributes:
        journal: names of the rows of the journal, tablet by tablet in order.
        rows: names of the rows of the sorted table.
        accounts: balance and version by account.
        transfers: applied transfers by name: source, target, amount, both new versions.
        events: names of the events that are left, by partition and row index.
        consumed: output of the consumer: partition, row index, name.
        offsets: stored offset by partition.
    """

    journal: list[list[str]] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    accounts: dict[int, tuple[int, int]] = field(default_factory=dict)
    transfers: dict[str, tuple[int, int, int, int, int]] = field(default_factory=dict)
    events: dict[tuple[int, int], str] = field(default_factory=dict)
    consumed: list[tuple[int, int, str]] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


def build(client: Any) -> None:
    """Create the tables and fill the accounts."""
    text = {"name": "name", "type": "string"}
    _table(client, JOURNAL, [text], tablet_count=PARTITIONS)
    _table(client, ROWS, [{**text, "sort_order": "ascending"}, _column("part")])
    _table(
        client,
        ACCOUNTS,
        [_column("account", key=True), _column("balance"), _column("version")],
        pivot_keys=[[], [ACCOUNT_COUNT // 2]],
    )
    numbers = ("source", "target", "amount", "source_version", "target_version")
    _table(client, TRANSFERS, [{**text, "sort_order": "ascending"}, *map(_column, numbers)])
    system = [
        {"name": "$timestamp", "type": "uint64"},
        {"name": "$cumulative_data_weight", "type": "int64"},
    ]
    _table(
        client,
        EVENTS,
        [text, *system],
        tablet_count=PARTITIONS,
        auto_trim_config={"enable": True},
    )
    output = [_column("partition"), _column("row"), text]
    _table(client, CONSUMED, output, tablet_count=2)
    client.create("queue_producer", PRODUCER)
    client.create("queue_consumer", CONSUMER)
    client.register_queue_consumer(EVENTS, CONSUMER, vital=True)
    client.insert_rows(
        ACCOUNTS,
        [{"account": n, "balance": BALANCE, "version": 0} for n in range(ACCOUNT_COUNT)],
    )


def read(client: Any) -> State:
    """Read everything back."""
    state = State()
    for tablet in range(PARTITIONS):
        state.journal.append([row["name"] for row in _ordered(client, JOURNAL, tablet)])
        for row in _ordered(client, EVENTS, tablet):
            state.events[tablet, row["$row_index"]] = row["name"]
    for tablet in range(2):
        for row in _ordered(client, CONSUMED, tablet):
            state.consumed.append((row["partition"], row["row"], row["name"]))
    state.rows = [row["name"] for row in client.select_rows(f"name from [{ROWS}]")]
    for row in client.select_rows(f"* from [{ACCOUNTS}]"):
        state.accounts[row["account"]] = (row["balance"], row["version"])
    for row in client.select_rows(f"* from [{TRANSFERS}]"):
        state.transfers[row["name"]] = (
            row["source"],
            row["target"],
            row["amount"],
            row["source_version"],
            row["target_version"],
        )
    for row in client.select_rows(f"partition_index, [offset] from [{CONSUMER}]"):
        state.offsets[int(row["partition_index"])] = int(row["offset"])
    return state


def _ordered(client: Any, path: str, tablet: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        page = list(client.pull_queue(path, offset, tablet, max_row_count=_PAGE))
        if not page:
            return found
        found += page
        offset = page[-1]["$row_index"] + 1


def _column(name: str, *, key: bool = False) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": "int64"}
    return {**column, "sort_order": "ascending"} if key else column


def _table(client: Any, path: str, schema: list[dict[str, Any]], **attributes: Any) -> None:
    ordered = not any("sort_order" in column for column in schema)
    given: Any = schema
    if not ordered:
        from yt.yson import YsonList

        given = YsonList(schema)
        given.attributes["unique_keys"] = True
    client.create(
        "table",
        path,
        recursive=True,
        attributes={"dynamic": True, "schema": given, **attributes},
    )
    client.mount_table(path, sync=True)
