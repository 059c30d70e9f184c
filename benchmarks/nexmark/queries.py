"""The queries, each for Spark and for DuckDB, and those that are left out, with the reason.

The texts follow `nexmark-flink/src/main/resources/queries` of nexmark/nexmark. DuckDB reads all events at
once. For it windows are written as arithmetic, so neither engine checks itself.

What Spark computes changes with each batch. With `keys` the newest row of a key counts, and the table ends as
the query over all events. Rows of windows come when the watermark has passed their end, and never change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

STREAMS = {"person": "person", "auction": "auction", "bid": "bid", "bid_too": "bid"}
"""Stream by the name that a query gives it. Who reads one stream twice needs two names: two consumers."""

LATENESS_SECONDS = 4
SIDE_ROWS = 10_000
ORIGIN = ("__spyt_streaming_src_tablet_index", "__spyt_streaming_src_row_index")
"""By these columns idempotent mode numbers the rows of an ordered table."""

_SPARK = {
    "day": "date_format(dateTime, 'yyyy-MM-dd')",
    "minute": "date_format(dateTime, 'HH:mm')",
    "div": "div",
}
_DUCKDB = {
    "day": "strftime(dateTime, '%Y-%m-%d')",
    "minute": "strftime(dateTime, '%H:%M')",
    "div": "//",
}


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query.

    Attributes:
        title: as Nexmark calls it.
        text: for Spark.
        other_text: for DuckDB; empty if it is the same. Where `{watermark}` stands Spark has waited for it.
        keys: of the table; without them it is ordered.
        output_mode: of Spark.
        waits: whether windows are written when the watermark has passed them.
        path: of the table, below that of the run; columns in braces name one table for each value.
        one_to_one: whether a row comes of one row, as idempotent mode needs it.
        compared: what is compared of the table, in DuckDB, if not all of it.
    """

    name: str
    title: str
    text: str
    other_text: str = ""
    keys: tuple[str, ...] = ()
    output_mode: str = "append"
    waits: bool = False
    path: str = "result"
    one_to_one: bool = False
    compared: str = "FROM found"

    @property
    def views(self) -> list[str]:
        """Names of the streams that it reads."""
        return [name for name in STREAMS if re.search(rf"\b(FROM|JOIN) {name}\b", self.text)]

    @property
    def pattern(self) -> bool:
        """Whether each row names its table."""
        return "{" in self.path

    def for_spark(self, *, with_origin: bool) -> str:
        """Return the text for Spark, with the columns that say where a row is from."""
        text = self.text.format(**_SPARK)
        return text.replace("SELECT ", f"SELECT {', '.join(ORIGIN)}, ", 1) if with_origin else text

    def for_duckdb(self, watermark: str) -> str:
        """Return the text for DuckDB, given the last watermark as a literal."""
        return (self.other_text or self.text).format(**_DUCKDB, watermark=watermark)


_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _of_ranks(column: str, count: Callable[[str], str]) -> str:
    return ", ".join(f"{count(when)} AS {rank}_{column}" for rank, when in _RANKS.items())


def _bids(when: str) -> str:
    return f"count(*) FILTER (WHERE {when})"


def _distinct(column: str) -> Callable[[str], str]:
    """Spark has no exact count of distinct values over a stream; it has the set of them."""
    return lambda when: f"CAST(size(collect_set({column}) FILTER (WHERE {when})) AS BIGINT)"


def _distinct_too(column: str) -> Callable[[str], str]:
    return lambda when: f"count(DISTINCT {column}) FILTER (WHERE {when})"


def _statistics(distinct: Callable[[str], Callable[[str], str]]) -> str:
    return ", ".join(
        [
            _of_ranks("bids", _bids),
            _of_ranks("bidders", distinct("bidder")),
            _of_ranks("auctions", distinct("auction")),
        ]
    )


_BID = "auction, bidder, price, channel, url, dateTime, extra"
_COUNTED = """
    SELECT auction, count(*) AS num, window FROM {name}
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')"""
_SLIDING = """
    SELECT auction, count(*) AS num,
        time_bucket(INTERVAL 2 SECONDS, dateTime) - to_seconds(2 * earlier) AS starttime
    FROM bid CROSS JOIN range(5) AS steps(earlier)
    GROUP BY ALL HAVING starttime + INTERVAL 10 SECONDS <= {watermark}"""

QUERIES = (
    Query(
        name="q0",
        title="pass through",
        text="SELECT auction, bidder, price, dateTime, extra FROM bid",
        one_to_one=True,
    ),
    Query(
        name="q1",
        title="currency conversion",
        text="SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, dateTime, extra "
        "FROM bid",
        one_to_one=True,
    ),
    Query(
        name="q2",
        title="selection",
        text="SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
        one_to_one=True,
    ),
    Query(
        name="q3",
        title="local item suggestion",
        text="SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
        "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    ),
    Query(
        name="q5",
        title="hot items",
        text=f"""WITH counts AS ({_COUNTED.format(name="bid")}),
        maxes AS (
            SELECT window, max(num) AS maxn FROM ({_COUNTED.format(name="bid_too")}) GROUP BY window)
        SELECT auction, num FROM counts JOIN maxes
        ON counts.window = maxes.window AND counts.num >= maxes.maxn""",
        other_text=f"""WITH counts AS ({_SLIDING})
        SELECT auction, num FROM counts QUALIFY num = max(num) OVER (PARTITION BY starttime)""",
        waits=True,
    ),
    Query(
        name="q7",
        title="highest bid",
        text="""SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
            SELECT max(price) AS maxprice, window.end AS ends FROM bid_too
            GROUP BY window(dateTime, '10 seconds')) M
        ON B.price = M.maxprice
        AND B.dateTime BETWEEN M.ends - INTERVAL '10' SECOND AND M.ends""",
        other_text="""SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (
            SELECT max(price) AS maxprice,
                time_bucket(INTERVAL 10 SECONDS, dateTime) + INTERVAL 10 SECONDS AS ends
            FROM bid GROUP BY ends HAVING ends <= {watermark}) M
        ON B.price = M.maxprice
        AND B.dateTime BETWEEN M.ends - INTERVAL '10' SECOND AND M.ends""",
        waits=True,
    ),
    Query(
        name="q8",
        title="monitor new users",
        text="""SELECT P.id, P.name, P.window.start AS stime FROM (
            SELECT id, name, window FROM person
            GROUP BY id, name, window(dateTime, '10 seconds')) P
        JOIN (
            SELECT seller, window FROM auction GROUP BY seller, window(dateTime, '10 seconds')) A
        ON P.id = A.seller AND P.window = A.window""",
        other_text="""SELECT DISTINCT P.id, P.name, time_bucket(INTERVAL 10 SECONDS, P.dateTime) AS stime
        FROM person P JOIN auction A ON P.id = A.seller
        WHERE stime = time_bucket(INTERVAL 10 SECONDS, A.dateTime)
        AND stime + INTERVAL 10 SECONDS <= {watermark}""",
        waits=True,
    ),
    Query(
        name="q9",
        title="winning bids",
        text="""SELECT id, best.* FROM (
            SELECT A.id, max_by(
                struct(itemName, description, initialBid, reserve, A.dateTime, expires, seller, category,
                    A.extra, auction, bidder, price, B.dateTime AS bid_dateTime, B.extra AS bid_extra),
                struct(price, -unix_micros(B.dateTime))) AS best
            FROM auction A JOIN bid B ON A.id = B.auction
            WHERE B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id)""",
        other_text="""SELECT A.*, auction, bidder, price, B.dateTime AS bid_dateTime, B.extra AS bid_extra
        FROM auction A JOIN bid B ON A.id = B.auction
        WHERE B.dateTime BETWEEN A.dateTime AND A.expires
        QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY price DESC, B.dateTime) = 1""",
        keys=("id",),
        output_mode="update",
    ),
    Query(
        name="q10",
        title="log, one table for each minute",
        text="SELECT auction, bidder, price, dateTime, extra, {day} AS dt, {minute} AS hm FROM bid",
        path="{dt}/{hm}",
        one_to_one=True,
    ),
    Query(
        name="q11",
        title="user sessions",
        text="""SELECT bidder, bid_count, session.start AS starttime, session.end AS endtime FROM (
            SELECT bidder, count(*) AS bid_count, session_window AS session FROM bid
            GROUP BY bidder, session_window(dateTime, '10 seconds'))""",
        other_text="""WITH begun AS (
            SELECT bidder, dateTime, coalesce(dateTime - lag(dateTime) OVER mine >= INTERVAL 10 SECONDS,
                true) AS begins FROM bid WINDOW mine AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (
            SELECT bidder, dateTime, count(*) FILTER (WHERE begins) OVER (
                PARTITION BY bidder ORDER BY dateTime) AS session FROM begun)
        SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
            max(dateTime) + INTERVAL 10 SECONDS AS endtime
        FROM numbered GROUP BY bidder, session HAVING endtime <= {watermark}""",
        waits=True,
    ),
    Query(
        name="q12",
        title="windows of processing time",
        text="""SELECT bidder, bid_count, window.start AS starttime, window.end AS endtime FROM (
            SELECT bidder, count(*) AS bid_count, window FROM bid
            GROUP BY bidder, window(current_timestamp(), '10 seconds'))""",
        other_text="SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder",
        keys=("bidder", "starttime"),
        output_mode="update",
        # Which window a bid is in depends on when it was read. That it is in one does not.
        compared="SELECT bidder, sum(bid_count) AS bid_count FROM found GROUP BY bidder",
    ),
    Query(
        name="q13",
        title="join with a bounded side input",
        text="SELECT B.auction, B.bidder, B.price, B.dateTime, S.value FROM bid B "
        "JOIN side_input S ON mod(B.auction, 10000) = S.key",
        one_to_one=True,
    ),
    Query(
        name="q14",
        title="calculation",
        text="""SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
            CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
                WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime' END AS bidTimeType,
            dateTime, extra,
            CAST(length(extra) - length(replace(extra, 'c', '')) AS BIGINT) AS c_counts
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        one_to_one=True,
    ),
    Query(
        name="q15",
        title="statistics of bids by day",
        text=f"SELECT {{day}} AS day, {_statistics(_distinct)} FROM bid GROUP BY {{day}}",
        other_text=f"SELECT {{day}} AS day, {_statistics(_distinct_too)} FROM bid GROUP BY {{day}}",
        keys=("day",),
        output_mode="update",
    ),
    Query(
        name="q16",
        title="statistics of channels by day",
        text=f"SELECT channel, {{day}} AS day, max({{minute}}) AS minute, {_statistics(_distinct)} "
        "FROM bid GROUP BY channel, {day}",
        other_text=f"SELECT channel, {{day}} AS day, max({{minute}}) AS minute, "
        f"{_statistics(_distinct_too)} FROM bid GROUP BY channel, {{day}}",
        keys=("channel", "day"),
        output_mode="update",
    ),
    Query(
        name="q17",
        title="statistics of auctions by day",
        text=f"SELECT auction, {{day}} AS day, {_of_ranks('bids', _bids)}, min(price) AS min_price, "
        "max(price) AS max_price, CAST(sum(price) {div} count(*) AS BIGINT) AS avg_price, "
        "CAST(sum(price) AS BIGINT) AS sum_price "
        "FROM bid GROUP BY auction, {day}",
        keys=("auction", "day"),
        output_mode="update",
    ),
    Query(
        name="q18",
        title="last bid",
        text=f"""SELECT last.* FROM (
            SELECT bidder, auction, max_by(struct({_BID}), dateTime) AS last
            FROM bid GROUP BY bidder, auction)""",
        other_text=f"""SELECT {_BID} FROM bid
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) = 1""",
        keys=("bidder", "auction"),
        output_mode="update",
    ),
    Query(
        name="q19",
        title="ten highest prices of an auction",
        text=f"""SELECT one.bid.*, CAST(place + 1 AS BIGINT) AS rank_number FROM (
            SELECT auction, slice(sort_array(collect_list(struct(
                price, -unix_micros(dateTime) AS before, struct({_BID}) AS bid)), false), 1, 10) AS best
            FROM bid GROUP BY auction) LATERAL VIEW posexplode(best) AS place, one""",
        other_text=f"""SELECT {_BID}, row_number() OVER (
            PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number
        FROM bid QUALIFY rank_number <= 10""",
        keys=("auction", "rank_number"),
        output_mode="update",
    ),
    Query(
        name="q20",
        title="bids with their auctions",
        text="""SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime,
            B.extra AS bid_extra, itemName, description, initialBid, reserve,
            A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
        FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    ),
    Query(
        name="q21",
        title="channel ids",
        text="""SELECT auction, bidder, price, channel, CASE lower(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
        OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        one_to_one=True,
    ),
    Query(
        name="q22",
        title="directories of the address",
        text="SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, "
        "split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid",
        one_to_one=True,
    ),
    Query(
        name="q23",
        title="bids with their persons and auctions",
        text="""SELECT bidder, price, channel, url, B.extra AS bid_extra, P.id AS person_id, name,
            emailAddress, creditCard, city, state, P.extra AS person_extra, itemName, description,
            initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category,
            A.extra AS auction_extra
        FROM bid B JOIN person P ON P.id = B.bidder JOIN auction A ON A.seller = B.bidder""",
    ),
)
BY_NAME = {query.name: query for query in QUERIES}

LEFT_OUT = {
    "q4": "its mean over the highest bids of all auctions is an aggregate of an aggregate without windows. "
    'Spark refuses it in output mode update ("possible correctness issue due to global watermark"). In '
    "output mode complete it refuses the join of two streams",
    "q6": "its mean over the last sales of a seller is a window of rows. Spark refuses that over a stream "
    "(NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING). Nexmark says that Flink cannot run it either",
}
"""Queries that Spark cannot express, by name, with the reason."""
