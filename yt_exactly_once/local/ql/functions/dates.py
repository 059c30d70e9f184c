"""Functions on timestamps, which are seconds since the epoch.

After `yt/yt/library/query/engine/time/dates.cpp`: without a suffix in UTC, with
`_tz` in a named time zone. The `_localtime` forms do not exist here: a cluster has no location.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from zoneinfo import ZoneInfo

from yt_exactly_once.local.errors import YtError
from yt_exactly_once.local.ql.functions.signatures import declare, function
from yt_exactly_once.local.ql.value_types import Type

_MIN_TIMESTAMP = -62135596800
_MAX_TIMESTAMP = 253402300799
_MAX_FORMAT_LENGTH = 30


def _moment(timestamp: int, zone: tzinfo) -> datetime:
    if not _MIN_TIMESTAMP <= timestamp <= _MAX_TIMESTAMP:
        side, limit, sign = (
            ("smaller than minimal", _MIN_TIMESTAMP, "<")
            if timestamp < _MIN_TIMESTAMP
            else ("greater than maximal", _MAX_TIMESTAMP, ">")
        )
        raise YtError(f"Timestamp is {side} value: got {timestamp} {sign} {limit} ")
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=timestamp)).astimezone(zone)


@lru_cache(maxsize=64)
def _zone(name: bytes) -> tzinfo:
    try:
        return ZoneInfo(name.decode())
    except (KeyError, ValueError, OSError) as error:
        raise YtError(f'Unknown time zone "{name.decode(errors="replace")}"') from error


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, fold=0)


_FLOORS: dict[str, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment.replace(minute=0, second=0),
    "day": _midnight,
    "week": lambda moment: _midnight(moment) - timedelta(days=moment.weekday()),
    "month": lambda moment: _midnight(moment).replace(day=1),
    "quarter": lambda moment: _midnight(moment).replace(
        day=1, month=(moment.month - 1) // 3 * 3 + 1
    ),
    "year": lambda moment: _midnight(moment).replace(day=1, month=1),
}


def _floor(floor: Callable[[datetime], datetime], timestamp: int, zone: bytes | None = None) -> int:
    moment = _moment(timestamp, UTC if zone is None else _zone(zone))
    return int(floor(moment).timestamp())


for _unit, _to_floor in _FLOORS.items():
    for _suffix, _parameters in (("", (Type.INT64,)), ("_tz", (Type.INT64, Type.STRING))):
        _name = f"timestamp_floor_{_unit}{_suffix}"
        declare(_name, _parameters, Type.INT64, python=partial(_floor, _to_floor))


def _format(timestamp: int, zone: tzinfo, template: bytes) -> bytes:
    if len(template) > _MAX_FORMAT_LENGTH:
        raise YtError(f"Format string is too long: {len(template)} > {_MAX_FORMAT_LENGTH}")
    moment = _moment(timestamp, zone)
    text = time.strftime(template.decode(errors="surrogateescape"), moment.timetuple())
    return text.encode(errors="surrogateescape")


@function("format_timestamp", (Type.INT64, Type.STRING), Type.STRING)
def _format_utc(timestamp: int, template: bytes) -> bytes:
    return _format(timestamp, UTC, template)


@function("format_timestamp_tz", (Type.INT64, Type.STRING, Type.STRING), Type.STRING)
def _format_zone(timestamp: int, zone: bytes, template: bytes) -> bytes:
    return _format(timestamp, _zone(zone), template)
