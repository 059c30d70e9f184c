"""The check: every row of a result table against the row it must be, with a plain YTsaurus client.

It reads the tables as anybody would and uses nothing of the package under test. Pandas computes what must
come out, from the data set file: the rules of the two queries are written a second time here, on purpose. A
row is lost when it is not there, duplicated when it is there again, and wrong when a value differs or nothing
like it should exist; every one of them is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from yt.wrapper import YsonFormat

from yt_exactly_once.demo.data import MISSING, data_set_file
from yt_exactly_once.demo.layout import DELAYS_TYPES, ENRICHED_TYPES, PARTITIONS

if TYPE_CHECKING:
    from yt.wrapper import YtClient

Types = Mapping[str, pa.DataType]

ROWS_PER_READ = 50_000


@dataclass(frozen=True)
class Outcome:
    """What a comparison found.

    Attributes:
        duplicated: copies of a row beyond the first.
        wrong: rows with a value that differs, and rows nobody asked for.
    """

    expected: int
    found: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def exact(self) -> bool:
        """Whether every row is there once, as it must be."""
        return self.lost == self.duplicated == self.wrong == 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the demo ended.

    Attributes:
        flights: the enriched table against what it must be.
        statistics: the statistics against what they must be.
        consumed: rows the first query's consumer has passed.
        replays: committed batches that Spark replayed and the sink found in the ledger.
    """

    flights: Outcome
    statistics: Outcome
    consumed: int
    kills: int
    replays: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every row of both tables and the consumer's offset are right."""
        return (
            self.flights.exact and self.statistics.exact and self.consumed == self.flights.expected
        )

    def to_json(self) -> dict[str, int | float | bool]:
        """Return the numbers, those of the two tables together where there are two."""
        both = (self.flights, self.statistics)
        return {
            "rows_in": self.flights.expected,
            "rows_out": self.flights.found,
            "lost": sum(outcome.lost for outcome in both),
            "duplicated": sum(outcome.duplicated for outcome in both),
            "wrong": sum(outcome.wrong for outcome in both),
            "kills": self.kills,
            "seconds": round(self.seconds, 1),
            "exact": self.exact,
        }


def compare(actual: pd.DataFrame, expected: pd.DataFrame, key: Sequence[str]) -> Outcome:
    """Compare a table with what it must be, both canonical.

    Args:
        actual: rows found, in any order.
        expected: rows wanted; no key twice.
    """
    names = list(key)
    values = [name for name in expected.columns if name not in names]
    joined = actual.merge(
        expected, on=names, how="outer", suffixes=("", "_expected"), indicator="side"
    )
    both = joined[joined["side"] == "both"]
    differs = pd.Series(data=False, index=both.index)
    for name in values:
        differs |= ~_same(both[name], both[f"{name}_expected"])
    return Outcome(
        expected=len(expected),
        found=len(actual),
        lost=int((joined["side"] == "right_only").sum()),
        duplicated=len(both) - len(both.drop_duplicates(names)),
        wrong=int(differs.sum()) + int((joined["side"] == "left_only").sum()),
    )


def _same(left: pd.Series, right: pd.Series) -> pd.Series:
    return (left == right).fillna(value=False).astype(bool) | (left.isna() & right.isna())


def read_ordered(client: YtClient, path: str, types: Types) -> pd.DataFrame:
    """Return every row of an ordered dynamic table."""
    pages = []
    for tablet in range(client.get(f"{path}/@tablet_count")):
        start = 0
        # A pull reads by index, and may return fewer rows than asked for. A query would take longer.
        while page := list(
            client.pull_queue(path, start, tablet, max_row_count=ROWS_PER_READ, format=YsonFormat())
        ):
            pages.append(page)
            start = page[-1]["$row_index"] + 1
    return _frame(pages, types)


def read_sorted(client: YtClient, path: str, types: Types) -> pd.DataFrame:
    """Return every row of a sorted dynamic table."""
    return _frame([_select(client, f"* from [{path}]")], types)


def consumed_rows(client: YtClient, consumer: str, queue: str) -> int:
    """Return how many rows a consumer has passed, in all queue partitions."""
    rows = _select(client, f'[offset] from [{consumer}] where queue_path = "{queue}"')
    return sum(row["offset"] for row in rows)


def _select(client: YtClient, query: str) -> list[dict[str, Any]]:
    return list(client.select_rows(query, format=YsonFormat()))


def _frame(pages: Sequence[list[dict[str, Any]]], types: Types) -> pd.DataFrame:
    frames = [pd.DataFrame.from_records(page, columns=list(types)) for page in pages or [[]]]
    return pd.concat([canonical(frame, types) for frame in frames], ignore_index=True)


def read_source(rows: int | None = None) -> pd.DataFrame:
    """Return the first flights of the file, or all."""
    return pd.read_csv(
        data_set_file("flights.csv.zip"), nrows=rows, keep_default_na=False, na_values=[MISSING]
    )


def expected_flights(source: pd.DataFrame) -> pd.DataFrame:
    """Return the enriched table as it must be."""
    airlines = pd.read_csv(data_set_file("airlines.csv"), keep_default_na=False)
    flights = source.reset_index(drop=True)
    number = flights.index.to_series()
    delay_class = pd.cut(
        flights["dep_delay"],
        bins=[float("-inf"), 0, 14, 59, float("inf")],
        labels=["on time", "a little late", "late", "very late"],
    )
    instant = pd.to_datetime(flights["time_hour"], utc=True)
    return canonical(
        flights.assign(
            queue_partition=number % PARTITIONS,
            queue_row=number // PARTITIONS,
            time_hour=instant.dt.as_unit("us").astype("int64"),
            carrier_name=flights["carrier"].map(airlines.set_index("carrier")["name"]),
            delay_class=delay_class.astype("object").fillna("cancelled"),
            speed_mph=flights["distance"] * 60.0 / flights["air_time"],
        ),
        ENRICHED_TYPES,
    )


def expected_delays(source: pd.DataFrame) -> pd.DataFrame:
    """Return the statistics as they must be."""
    keys = {"carrier": source["carrier"], "route": source["origin"] + "-" + source["dest"]}
    found = [_statistics(source, key).assign(kind=kind) for kind, key in keys.items()]
    return canonical(pd.concat(found, ignore_index=True), DELAYS_TYPES)


def _statistics(source: pd.DataFrame, key: pd.Series) -> pd.DataFrame:
    groups = source.assign(key=key).groupby("key")
    found = groups.agg(
        flights=("year", "size"), departed=("dep_delay", "count"), arrived=("arr_delay", "count")
    )
    delays = groups[["dep_delay", "arr_delay"]]
    # The sum of nothing is missing, as in SQL.
    known = {"_sum": delays.sum(min_count=1), "_min": delays.min(), "_max": delays.max()}
    return found.join([kept.add_suffix(what) for what, kept in known.items()]).reset_index()


def canonical(frame: pd.DataFrame, types: Types) -> pd.DataFrame:
    """Return the columns of a table, with values from anywhere, in one form that can be compared."""
    return pd.DataFrame(
        {name: pd.array(_plain(frame[name]), dtype=_form(kind)) for name, kind in types.items()}
    )


def _form(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return pd.StringDtype("python")
    return pd.Float64Dtype() if pa.types.is_floating(kind) else pd.Int64Dtype()


def _plain(column: pd.Series) -> Any:
    """Return values that every pandas turns into its nullable types alike."""
    return column if column.dtype != object else column.where(column.notna(), None).to_numpy()
