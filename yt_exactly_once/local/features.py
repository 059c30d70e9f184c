"""What differs between versions and moments of YTsaurus, and which of it the embedded cluster shows.

Owns the names, defaults and checks of features. Those that act are read from `Proxy.features`.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Feature:
    """One behaviour that a user may choose.

    Attributes:
        name: how it is called in Python and on the command line.
        kind: what values it takes: flag, seconds or number.
        default: its value when nothing is said.
        meaning: what it does, as the documentation says it.
    """

    name: str
    kind: str
    default: Any
    meaning: str

    def check(self, value: Any) -> Any:
        """Return the value in its type.

        Raises:
            ValueError: it does not fit the kind; the text says what fits.
        """
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self.kind == "seconds" and number and math.isfinite(value) and value >= 0:
            return float(value)
        if self.kind == "number" and (value is None or (number and value == int(value))):
            return value
        wanted = {"flag": "true or false", "seconds": "a number of seconds, 0 or more"}
        raise ValueError(
            f"Feature {self.name} is {value!r}; give it {wanted.get(self.kind, 'an integer')}"
        )


# A line for each: name, kind, default as JSON, meaning.
_TABLE = """
producer_regress_on_skipped flag true: A push whose rows are all skipped, or without rows, stores its \
    last number, so that the session goes back. Servers of 2024 do so.
producer_session_mutation_dedup flag true: A repeated request to create a session gets the first answer. \
    Older servers raise the epoch again.
registration_lag_seconds seconds 0.0: How long proxies do not know of a new registration, nor of its \
    removal. Real ones refresh a cache: up to 10 s, newer ones up to 25 s.
list_all_registrations flag true: `list_queue_consumer_registrations` lists all if it names neither queue \
    nor consumer. Newer servers may refuse that.
chunk_index_counts_trimmed flag false: Numbers of chunks in ranges of an ordered table count those that are \
    trimmed. Servers of 2023 do so.
visibility_delay_seconds seconds 0.0: How long rows of ordered tables stay invisible after the commit was \
    answered.
random_tablet_seed number null: Makes the choice of a tablet for rows without `$tablet_index` repeatable.
max_transaction_timeout_seconds seconds 60.0: Longest lease of a tablet transaction; longer ones are cut \
    (`max_transaction_timeout` of tablet nodes).
max_transaction_duration_seconds seconds 600.0: Age at which a transaction can no longer write to sorted \
    tables, error 1729. YTsaurus promises one minute.
max_master_transaction_timeout_seconds seconds 3600.0: Longest lease of a master transaction; longer ones \
    are cut (`max_transaction_timeout` of masters).
arrow_any_as_string flag false: Arrow rows: bytes for an `any` column are stored as a string of YSON, as \
    older proxies do.
arrow_wide_decimal_as_text flag false: Arrow rows: a decimal of more than 35 digits is stored as its \
    text, as older proxies do.
"""


def _read(line: str) -> Feature:
    head, _, meaning = line.partition(": ")
    name, kind, default = head.split()
    return Feature(name, kind, json.loads(default), " ".join(meaning.split()))


FEATURES = {each.name: each for each in map(_read, _TABLE.strip().splitlines())}


def check(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return features in their types.

    Raises:
        ValueError: an unknown name, or a value that does not fit.
    """
    checked = {}
    for name, value in given.items():
        if name not in FEATURES:
            close = difflib.get_close_matches(name, FEATURES, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ValueError(
                f"There is no feature {name!r}; {hint}The features are {', '.join(FEATURES)}"
            )
        checked[name] = FEATURES[name].check(value)
    return checked


def parse(texts: Iterable[str]) -> dict[str, Any]:
    """Read features from a command line: `NAME=VALUE`, or `NAME` for a flag that is on; see `check`."""
    given: dict[str, Any] = {}
    for text in texts:
        name, found, value = text.partition("=")
        try:
            given[name] = json.loads(value) if found else True
        except ValueError:
            given[name] = value
    return check(given)
