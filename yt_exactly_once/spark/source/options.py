"""The options of the source: every one declared, read and checked before a query starts.

It reads strings and returns typed values; it never talks to a cluster. Option names are those of SPYT
where SPYT has the option. A name it does not know is refused, since a misspelt option that is silently
ignored changes what a query reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from yt_exactly_once.config import BACKEND, CLIENT_CONFIG, PROXY, TOKEN, ClusterConfig, Secret
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.options import Group, documented, options_of, read_texts, require_known
from yt_exactly_once.ytsaurus.backends import check_backend


class StartingPoint(StrEnum):
    """Where a query without a checkpoint begins, for all partitions alike."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


def _read_path(name: str, text: str) -> str:
    what = "consumer" if name == "consumer_path" else "queue"
    if not text:
        how = (
            "load('//path/to/queue')"
            if name == "path"
            else f"option('{name}', '//path/to/consumer')"
        )
        raise ConfigError(
            f"The path of the {what} is missing", remedy=f"Give it: {how}", option=name
        )
    if not text.startswith("//") or text.endswith("/") or "@" in text or "[" in text:
        raise ConfigError(
            f"{text!r} is not the plain Cypress path of a {what}",
            remedy="Write it as //home/project/name, without a cluster, attributes, ranges or a "
            "closing slash",
            option=name,
        )
    return text


def rows_by_partition(name: str, text: str, remedy: str) -> dict[int, int]:
    """Return what a JSON object says of some partitions; `remedy` is for another text."""

    def refusal(why: str) -> ConfigError:
        return ConfigError(f"{name}={text!r} is not understood{why}", remedy=remedy, option=name)

    try:
        pairs: Any = json.loads(text)
    except ValueError as error:
        is_json = text.lstrip().startswith("{")
        raise refusal(f" ({error})" if is_json else "") from error
    if not isinstance(pairs, dict):
        raise refusal("")
    rows = {int(key): row for key, row in pairs.items() if key.isascii() and key.isdigit()}
    if (
        not rows
        or len(rows) != len(pairs)
        or not all(type(row) is int and row >= 0 for row in rows.values())
    ):
        raise refusal("")
    return rows


def _read_start(name: str, text: str) -> StartingPoint | dict[int, int]:
    if text.lower() in set(StartingPoint):
        return StartingPoint(text.lower())
    remedy = "Use committed, earliest, latest, or the first row of every partition as JSON: "
    return rows_by_partition(name, text, remedy + '{"0": 120, "1": 0}')


def _read_binary_strings(name: str, text: str) -> bool | tuple[str, ...]:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    names = tuple(column.strip() for column in text.split(","))
    if not all(names):
        raise ConfigError(
            f"{name}={text!r} names no column",
            remedy="Use true, false, or names of columns: payload,raw",
            option=name,
        )
    return names


@documented
@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one source of one query: an attribute for each, under its name."""

    path: str = field(
        metadata=Group.WHERE.metadata(
            "The queue, from `path` or `load()`. A link is followed when the query is defined.",
            read=_read_path,
        )
    )
    consumer_path: str | None = Group.WHERE.option(
        "The consumer.", default_text="none: reads without one and moves none", read=_read_path
    )
    proxy: str = field(metadata=PROXY.metadata)
    token: Secret | None = field(default=None, metadata=TOKEN.metadata)
    backend: str | None = field(default=None, metadata=BACKEND.metadata)
    client_config: Mapping[str, Any] = field(
        default_factory=dict, repr=False, metadata=CLIENT_CONFIG.metadata
    )
    starting_offsets: StartingPoint | dict[int, int] = field(
        metadata=Group.WHAT.metadata(
            "Where a query without a checkpoint begins.",
            values={
                "committed": "At the offset of the consumer.",
                "earliest": "At the first row there is.",
                "latest": "After the last row there is.",
                '{"0": 120, "1": 0}': "At these rows: the first one of every partition, as JSON.",
            },
            more="It must not be behind the consumer, which a query never moves back.",
            default_text="`committed` with a consumer, else `earliest`",
            read=_read_start,
        )
    )
    fail_on_data_loss: bool = Group.WHAT.option(
        "Fail when rows were trimmed before they were read; otherwise step over them.", default=True
    )
    include_service_columns: bool = Group.WHAT.option(
        "Add the coordinates of a row in front of its columns: `__spyt_streaming_src_tablet_index` and "
        "`__spyt_streaming_src_row_index`.",
        default=False,
    )
    include_queue_path: bool = Group.WHAT.option(
        "Add `__spyt_streaming_src_queue_path`, which distinguishes the rows of several queues.",
        default=False,
    )
    include_timestamp: bool = Group.WHAT.option(
        "Add `__spyt_streaming_src_timestamp`, when the row was committed, to the second. The queue must "
        "have the column `$timestamp`.",
        default=False,
    )
    parsing_type_v3: bool = Group.HOW.option(
        "Read columns by `type_v3`; otherwise by the older `type`.", default=True
    )
    binary_strings: bool | tuple[str, ...] = Group.HOW.option(
        "Read YT `string` as binary, for columns that hold bytes and no text: `true` for all, or the names "
        "of columns with commas between.",
        default=False,
        read=_read_binary_strings,
    )
    uuid_text: bool = Group.HOW.option(
        "Read YT `uuid` as text, as YQL and SPYT show it; otherwise as 16 bytes.", default=False
    )
    any_json: bool = Group.HOW.option(
        "Read YT `any` as JSON, for `parse_json` and `from_json`; otherwise as the bytes of its YSON.",
        default=False,
    )
    max_rows_per_partition: int | None = Group.LIMITS.option(
        "Rows of one batch from one queue partition, at most.", default_text="no limit"
    )
    max_bytes_per_partition: int | None = Group.LIMITS.option(
        "The approximate limit of the data weight of one batch from one queue partition. At least one "
        "row is read, even a heavier one.",
        default_text="no limit",
    )
    shared_task_rows: int = Group.LIMITS.option(
        "A Spark task reads several queue partitions that have at most so many rows together in a batch, "
        "and at most 16 MiB. `1` gives each queue partition a task of its own.",
        default=1_000,
    )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options as Spark gives them, in any case; raise `ConfigError` if one is impossible."""
        given = {"path": "", **{name.lower(): value for name, value in options.items()}}
        require_known(given, OPTION_NAMES, "The source yt")
        values = read_texts(cls, given)
        consumer = values.get("consumer_path")
        start = StartingPoint.COMMITTED if consumer else StartingPoint.EARLIEST
        if values.setdefault("starting_offsets", start) == StartingPoint.COMMITTED and not consumer:
            raise ConfigError(
                "starting_offsets=committed asks for a consumer's offsets, and there is no consumer",
                remedy="Give consumer_path, or start from earliest or latest",
                option="starting_offsets",
            )
        cluster = _address(values.get("proxy"), values.get("token"))
        parsed = cls(**{**values, "proxy": cluster.proxy, "token": cluster.token})
        check_backend(parsed.cluster.client_config)
        return parsed

    @property
    def cluster(self) -> ClusterConfig:
        """How to reach the cluster; it carries the token, and never shows it."""
        backend = {} if self.backend is None else {"backend": self.backend}
        config = {**self.client_config, **backend}
        return ClusterConfig(proxy=self.proxy, token=self.token, client_config=config)


OPTION_NAMES = tuple(options_of(SourceOptions))
"""Every option of the source."""


def _address(proxy: str | None, token: str | None) -> ClusterConfig:
    """Return the proxy and the token, from the options or from the environment."""
    try:
        return ClusterConfig.resolve(proxy, token)
    except ConfigError as error:
        error.remedy = (
            "Give option('proxy', 'host:port'), or set the environment variable YT_PROXY before Spark "
            "starts. If Spark runs already, call register_source(spark) after setting it"
        )
        error.where["option"] = "proxy"
        raise
