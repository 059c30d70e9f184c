"""The options of `writeStream.format("yt")`: those of a sink and of its target, read from text.

Names are those of `SinkOptions` and `Target`. Their checks are made there; here texts become values.
"""

from __future__ import annotations

import difflib
import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from yt_exactly_once.config import DEFAULT_DYN_BATCH_SIZE, RetryPolicy
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.spark.sink.options import SinkOptions, Target
from yt_exactly_once.spark.sink.placement import PLACEMENTS
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHECKPOINT_OPTION = "checkpointlocation"
"""How Spark spells its option for a data source."""

_BOOLEANS = {"true": True, "false": False}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min)")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0}


class WriterOptions(NamedTuple):
    """What a streaming writer is told.

    Attributes:
        sink: the options of the sink.
        checkpoint: location of the query's checkpoint.
    """

    sink: SinkOptions
    checkpoint: str


def parse_writer_options(options: Mapping[str, str]) -> WriterOptions:
    """Read the options as Spark hands them over.

    Args:
        options: names in any case, values as strings.

    Raises:
        ConfigError: an option is unknown, missing, malformed or contradicts another one.
    """
    given = {name.lower(): value.strip() for name, value in options.items()}
    _require_known(given)
    if not given.get("path"):
        raise ConfigError(
            "The path of the target is missing",
            remedy="Give it: start('//home/app/result')",
            option="path",
        )
    checkpoint = given.get(CHECKPOINT_OPTION)
    if not checkpoint:
        raise ConfigError(
            "The writer has no option checkpointLocation, and does not see Spark's conf",
            remedy="Give it to the query itself: .option('checkpointLocation', '...')",
            option="checkpointLocation",
        )
    target = {name: read(name, given[name]) for name, read in _TARGET.items() if name in given}
    sink = {name: read(name, given[name]) for name, read in _SINK.items() if name in given}
    sink.setdefault("dyn_batch_size", DEFAULT_DYN_BATCH_SIZE)
    config = sink.get("client_config", {})
    if "backend" in given:
        config = {**config, "backend": given["backend"].lower()}
    check_backend(config)
    retry = {
        name.removeprefix("retry_"): read(name, given[name])
        for name, read in _RETRY.items()
        if name in given
    }
    return WriterOptions(
        SinkOptions(
            Target(given["path"], **target),
            **{**sink, "client_config": config},
            retry=RetryPolicy(**retry),
        ),
        checkpoint,
    )


def _require_known(given: Mapping[str, str]) -> None:
    for name in sorted(given):
        if name in _ONLY_IN_PYTHON:
            raise ConfigError(
                f"The format yt cannot take {name}: {_ONLY_IN_PYTHON[name]}",
                remedy="Use writeStream.foreachBatch(TransactionalSink(...))",
                option=name,
            )
        if name not in WRITER_OPTION_NAMES:
            near = difflib.get_close_matches(name, WRITER_OPTION_NAMES, n=1, cutoff=0.5)
            # The value stays out of the message: a misspelt `token` is a token nevertheless.
            remedy = f"Did you mean {near[0]}?" if near else "Remove it."
            raise ConfigError(
                f"The format yt has no option {name} for writing",
                remedy=f"{remedy} The options are: {', '.join(WRITER_OPTION_NAMES)}",
                option=name,
            )


def _text(name: str, text: str) -> str:
    if not text:
        raise ConfigError(
            f"The option {name} is empty", remedy="Give a value, or leave it out", option=name
        )
    return text


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ConfigError(
            f"{name}={text!r} is neither true nor false", remedy="Use true or false", option=name
        )
    return _BOOLEANS[text.lower()]


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(
            f"{name}={text!r} is not a whole number",
            remedy="Give a number of 1 or more",
            option=name,
        )
    return int(text)


def _duration(name: str, text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{name}={text!r} is not a duration",
            remedy="Give a number with its unit: 500ms, 30s, 5min",
            option=name,
        )
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # The value stays out of the message: it may hold a token.
        raise ConfigError(
            f"{name} is not a JSON object", remedy="Write it as '{\"key\": ...}'", option=name
        )
    return value


def _placement(name: str, text: str) -> str:
    if text not in PLACEMENTS:
        raise ConfigError(
            f"{name}={text!r} is not possible in the format yt",
            remedy=f"Use one of: {', '.join(PLACEMENTS)}. For placement by columns use "
            "foreachBatch(TransactionalSink(Target(..., placement=[...])))",
            option=name,
        )
    return text


def _batches(name: str, text: str) -> int | tuple[int, int]:
    first, separator, last = text.partition("-")
    if not separator:
        return _number(name, text)
    return _number(name, first.strip()), _number(name, last.strip())


_TARGET: dict[str, Callable[[str, str], Any]] = {
    "write": _text,
    "update_columns": _boolean,
    "delete_marker": _text,
    "aggregate": _boolean,
    "placement": _placement,
    "digest": _boolean,
}

_SINK: dict[str, Callable[[str, str], Any]] = {
    "mode": _text,
    "proxy": _text,
    "token": _text,
    "client_config": _object,
    "ledger_path": _text,
    "ledger_attributes": _object,
    "producer_path": _text,
    "dead_letter_path": _text,
    "show_values": _boolean,
    "advance_consumer": _boolean,
    "dyn_batch_size": _number,
    "split_oversized": _boolean,
    "transaction_timeout": _duration,
    "connections": _number,
    "rows_per_tablet_limit": _number,
    "wire_format": _text,
    "accept_incomplete": _batches,
    "new_ledger": _boolean,
}

_RETRY: dict[str, Callable[[str, str], Any]] = {
    "retry_attempts": _number,
    "retry_deadline": _duration,
    "retry_first_wait": _duration,
    "retry_max_wait": _duration,
}

_OF_SPYT = ("write_type_v3",)
"""Taken and without effect: the schema of the target decides."""

_ONLY_IN_PYTHON = {
    "transform": "it is a function",
    "listener": "it is a function",
    "retry": "it is an object. The options retry_attempts, retry_deadline, retry_first_wait and "
    "retry_max_wait have its parts",
    "checkpoint_location": "the writer takes the query's own checkpointLocation",
}

WRITER_OPTION_NAMES = (
    "path",
    CHECKPOINT_OPTION,
    "backend",
    *_TARGET,
    *_SINK,
    *_RETRY,
    *_OF_SPYT,
)
"""Every option of the writer."""
