"""Persons, auctions and bids, made from a seed as the generator of Nexmark makes them.

Ids, hot keys, prices and proportions follow `nexmark-flink/.../generator` of nexmark/nexmark with its default
settings. The random numbers are others. Two things differ on purpose. An event comes each millisecond, so no
two bids have one time, and the last bid is one row. And a bidder is a person; the original adds the first id
of persons twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Chance = np.random.Generator

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
"""Events that come again and again in this order: a person, three auctions, 46 bids."""

BEGIN_MS = 1_436_918_400_000
"""Of the first event, 2015-07-15."""

FIRST_ID = 1_000
"""Of persons and of auctions."""

MOMENT = pa.timestamp("us", tz="UTC")

_ID_LEAD = 10
"""Ids that do not exist yet and are used all the same."""
_ACTIVE_PERSONS = 1_000
_AUCTIONS_IN_FLIGHT = 100
_HOT = 100
"""Of so many ids one after the other one is hot."""
_HOT_SELLERS, _HOT_BIDDERS, _HOT_AUCTIONS = 4, 4, 2
"""Of so many events all but one are about a hot one."""

_FIRST_CATEGORY, _CATEGORIES = 10, 5
_CHANNELS = 10_000
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)
_TEXT_LENGTH = 1 << 16


@dataclass(frozen=True)
class Events:
    """The three streams, each in the order of its times."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table

    def by_name(self) -> dict[str, pa.Table]:
        """Return the streams by the names that the queries give them."""
        return {"person": self.person, "auction": self.auction, "bid": self.bid}


def generate(count: int, seed: int) -> Events:
    """Make so many events; the same seed makes the same ones."""
    numbers = np.arange(count)
    within = numbers % EPOCH
    # A stream for each kind.
    chances = [np.random.default_rng([seed, kind]) for kind in range(3)]
    return Events(
        _persons(numbers[within < PERSONS], chances[0]),
        _auctions(numbers[(within >= PERSONS) & (within < PERSONS + AUCTIONS)], chances[1]),
        _bids(numbers[within >= PERSONS + AUCTIONS], chances[2]),
    )


def _persons(numbers: Numbers, chance: Chance) -> pa.Table:
    count = len(numbers)
    text = _Text(chance)
    first, last = _choices(_FIRST_NAMES, count, chance), _choices(_LAST_NAMES, count, chance)
    cards = chance.integers(0, 10_000, (count, 4))
    return pa.table(
        {
            "id": _last_person(numbers) + FIRST_ID,
            "name": [f"{one} {other}" for one, other in zip(first, last, strict=True)],
            "emailAddress": [
                f"{name}@{host}.com"
                for name, host in zip(text.some(count, 3, 7), text.some(count, 3, 5), strict=True)
            ],
            "creditCard": [" ".join(f"{part:04d}" for part in card) for card in cards],
            "city": _choices(_CITIES, count, chance),
            "state": _choices(_STATES, count, chance),
            "dateTime": _moments(numbers),
            "extra": text.some(count, 90, 140),
        }
    )


def _auctions(numbers: Numbers, chance: Chance) -> pa.Table:
    count = len(numbers)
    text = _Text(chance)
    hot_seller = _last_person(numbers) // _HOT * _HOT
    is_hot = chance.integers(0, _HOT_SELLERS, count) > 0
    prices = _prices(count, chance)
    # An auction lasts until a hundred others have begun, on average.
    horizon_ms = _AUCTIONS_IN_FLIGHT * EPOCH // AUCTIONS
    lengths = 1 + chance.integers(0, 2 * horizon_ms, count)
    return pa.table(
        {
            "id": _last_auction(numbers) + FIRST_ID,
            "itemName": text.some(count, 3, 20),
            "description": text.some(count, 3, 100),
            "initialBid": prices,
            "reserve": prices + _prices(count, chance),
            "dateTime": _moments(numbers),
            "expires": _moments(numbers + lengths),
            "seller": np.where(is_hot, hot_seller, _any_person(numbers, chance)) + FIRST_ID,
            "category": _FIRST_CATEGORY + chance.integers(0, _CATEGORIES, count),
            "extra": text.some(count, 270, 400),
        }
    )


def _bids(numbers: Numbers, chance: Chance) -> pa.Table:
    count = len(numbers)
    text = _Text(chance)
    last = _last_auction(numbers)
    hot_auction = last // _HOT * _HOT
    oldest = np.maximum(last - _AUCTIONS_IN_FLIGHT, 0)
    any_auction = oldest + chance.integers(0, last - oldest + 1 + _ID_LEAD)
    is_hot = chance.integers(0, _HOT_AUCTIONS, count) > 0
    # The second of a hundred, so that hot bidders are not the hot sellers.
    hot_bidder = _last_person(numbers) // _HOT * _HOT + 1
    bids_hot = chance.integers(0, _HOT_BIDDERS, count) > 0
    names, urls = _channels(chance, text)
    # Half of the bids come through one of the first four.
    channel = np.where(
        chance.integers(0, 2, count) > 0,
        chance.integers(0, 4, count),
        4 + chance.integers(0, _CHANNELS, count),
    )
    return pa.table(
        {
            "auction": np.where(is_hot, hot_auction, any_auction) + FIRST_ID,
            "bidder": np.where(bids_hot, hot_bidder, _any_person(numbers, chance)) + FIRST_ID,
            "price": _prices(count, chance),
            "channel": names.take(channel),
            "url": urls.take(channel),
            "dateTime": _moments(numbers),
            "extra": text.some(count, 55, 82),
        }
    )


def _channels(chance: Chance, text: _Text) -> tuple[pa.Array, pa.Array]:
    """Return names and addresses: four that are well known, and others, most of them with an id."""
    folders = [text.some(4 + _CHANNELS, 3, 5) for _ in range(3)]
    has_id = chance.integers(0, 10, _CHANNELS) > 0
    ids = ["", "", "", ""] + [
        f"&channel_id={int(f'{number:032b}'[::-1], 2)}" if known else ""
        for number, known in enumerate(has_id)
    ]
    names = ["Google", "Facebook", "Baidu", "Apple", *(f"channel-{n}" for n in range(_CHANNELS))]
    urls = [
        f"https://www.nexmark.com/{one}/{two}/{three}/item.htm?query=1{channel}"
        for one, two, three, channel in zip(*folders, ids, strict=True)
    ]
    return pa.array(names), pa.array(urls)


class _Text:
    """Pieces of one long text."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._text = _LETTERS[chance.integers(0, 26, _TEXT_LENGTH)].tobytes().decode()

    def some(self, count: int, shortest: int, longest: int) -> list[str]:
        """Return so many pieces, of `shortest` to less than `longest` letters."""
        starts = self._chance.integers(0, _TEXT_LENGTH - longest, count)
        ends = starts + self._chance.integers(shortest, longest, count)
        return [self._text[start:end] for start, end in zip(starts, ends, strict=True)]


def _last_person(numbers: Numbers) -> Numbers:
    """Return the newest person at each event, counted from 0."""
    return numbers // EPOCH * PERSONS


def _any_person(numbers: Numbers, chance: Chance) -> Numbers:
    """Return one of the active persons, or one who comes soon."""
    known = _last_person(numbers) + 1
    active = np.minimum(known, _ACTIVE_PERSONS)
    return known - active + chance.integers(0, active + _ID_LEAD)


def _last_auction(numbers: Numbers) -> Numbers:
    """Return the newest auction at each event that is no person, counted from 0."""
    within = np.minimum(numbers % EPOCH - PERSONS, AUCTIONS - 1)
    return numbers // EPOCH * AUCTIONS + within


def _prices(count: int, chance: Chance) -> Numbers:
    return np.rint(10.0 ** (chance.random(count) * 6.0) * 100.0).astype(np.int64)


def _moments(numbers: Numbers) -> pa.Array:
    return pa.array((BEGIN_MS + numbers) * 1_000, pa.int64()).cast(MOMENT)


def _choices(values: Sequence[str], count: int, chance: Chance) -> list[str]:
    return [values[place] for place in chance.integers(0, len(values), count)]
