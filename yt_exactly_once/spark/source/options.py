"""The options of the source: every one read, checked and named in the error that refuses it.

It reads strings and returns typed values; it never talks to a cluster. Option names are those of SPYT
where SPYT has the option. A name it does not know is refused, since a misspelt option that is silently
ignored changes what a query reads.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from yt_exactly_once.config import ClusterConfig, Secret
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.ytsaurus.backends import check_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class StartingPoint(StrEnum):
    """Where a query without a checkpoint begins, for all partitions alike."""

    COMMITTED = "committed"
    EARLIEST = "earliest"
    LATEST = "latest"


_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of one source of one query: an attribute for each, under its name.

    Attributes:
        path: path of the queue, from `path` or `load()`.
        consumer_path: path of the consumer; `None` reads without one and moves none.
        proxy: `host:port` or URL of a proxy
        token: OAuth token; it is never shown
        backend: protocol of the client: `http`, or `rpc` with the package `ytsaurus-rpc-driver`
        client_config: laid over the configuration of `ytsaurus-client`, as a JSON object
        starting_offsets: where a query without a checkpoint begins. `committed` is the offset of the
            consumer. Others are `earliest`, `latest`, or the first row of every partition as JSON:
            `{"0": 120, "1": 0}`. It must not be behind the consumer, which a query never moves back.
        max_rows_per_partition: rows of one batch from one queue partition, at most.
        max_bytes_per_partition: the approximate limit of the data weight of one batch from one queue
            partition. At least one row is read, even a heavier one.
        shared_task_rows: a Spark task reads several queue partitions that have at most so many rows together
            in a batch, and at most 16 MiB. `1` gives each queue partition a task of its own.
        include_service_columns: add the coordinates of a row in front of its columns:
            `__spyt_streaming_src_tablet_index` and `__spyt_streaming_src_row_index`.
        include_queue_path: add `__spyt_streaming_src_queue_path`, which distinguishes the rows of several
            queues.
        include_timestamp: add `__spyt_streaming_src_timestamp`, when the row was committed, to the
            second; the queue must have the column `$timestamp`.
        parsing_type_v3: read columns by `type_v3`; otherwise by the older `type`.
        binary_strings: read YT `string` as binary, for strings that are not UTF-8.
        fail_on_data_loss: fail when rows were trimmed before they were read; otherwise step over them.
    """

    path: str
    consumer_path: str | None = None
    proxy: str
    token: Secret | None = None
    backend: str | None = None
    client_config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    starting_offsets: StartingPoint | dict[int, int]
    max_rows_per_partition: int | None = None
    max_bytes_per_partition: int | None = None
    shared_task_rows: int = 1_000
    include_service_columns: bool = False
    include_queue_path: bool = False
    include_timestamp: bool = False
    parsing_type_v3: bool = True
    binary_strings: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read the options as Spark hands them over.

        Args:
            options: names in any case, values as strings.

        Raises:
            ConfigError: an option is unknown, missing, malformed or contradicts another one.
        """
        given = {name.lower(): value for name, value in options.items()}
        _refuse_unknown(given)
        consumer = _path(given, "consumer_path") if "consumer_path" in given else None
        proxy, token = _address(given)
        parsed = cls(
            path=_path(given, "path"),
            consumer_path=consumer,
            proxy=proxy,
            token=token,
            backend=given["backend"].strip().lower() if "backend" in given else None,
            client_config=_client_config(given),
            starting_offsets=_starting_offsets(given.get("starting_offsets"), consumer),
            **{
                option.name: _READ[option.type](given, option.name, option.default)
                for option in fields(cls)
                if option.type in _READ
            },
        )
        check_backend(parsed.cluster.client_config)
        return parsed

    @property
    def cluster(self) -> ClusterConfig:
        """How to reach the cluster; it carries the token, and never shows it."""
        backend = {} if self.backend is None else {"backend": self.backend}
        config = {**self.client_config, **backend}
        return ClusterConfig(proxy=self.proxy, token=self.token, client_config=config)


OPTION_NAMES = tuple(option.name for option in fields(SourceOptions))
"""Every option of the source."""


def _refuse_unknown(given: Mapping[str, str]) -> None:
    unknown = sorted(set(given) - set(OPTION_NAMES))
    if not unknown:
        return
    name = unknown[0]
    near = difflib.get_close_matches(name, OPTION_NAMES, n=1, cutoff=0.5)
    # The value stays out of the message: a misspelt `token` is a token nevertheless.
    remedy = f"Did you mean {near[0]}?" if near else "Remove it."
    raise ConfigError(
        f"The source yt has no option {name}",
        remedy=f"{remedy} The options are: {', '.join(OPTION_NAMES)}",
        option=name,
    )


def _path(given: Mapping[str, str], name: str) -> str:
    what = "consumer" if name == "consumer_path" else "queue"
    value = given.get(name, "").strip()
    if not value:
        how = (
            "load('//path/to/queue')"
            if name == "path"
            else f"option('{name}', '//path/to/consumer')"
        )
        raise ConfigError(
            f"The path of the {what} is missing", remedy=f"Give it: {how}", option=name
        )
    if not value.startswith("//") or value.endswith("/") or "@" in value or "[" in value:
        raise ConfigError(
            f"{value!r} is not the plain Cypress path of a {what}",
            remedy="Write it as //home/project/name, without a cluster, attributes, ranges or a "
            "closing slash",
            option=name,
        )
    return value


def _address(given: Mapping[str, str]) -> tuple[str, Secret | None]:
    """Return the proxy and the token, from the options or from the environment."""
    for name in ("proxy", "token"):
        if name in given and not given[name].strip():
            raise ConfigError(
                f"The option {name} is empty",
                remedy=f"Give a value, or leave it out to use YT_{name.upper()}",
                option=name,
            )
    try:
        resolved = ClusterConfig.resolve(given.get("proxy"), given.get("token"))
    except ConfigError as error:
        raise ConfigError(
            error.what,
            remedy="Give option('proxy', 'host:port'), or set the environment variable YT_PROXY "
            "before Spark starts. If Spark runs already, call register_source(spark) after setting it",
            option="proxy",
        ) from error
    return resolved.proxy, resolved.token


def _client_config(given: Mapping[str, str]) -> dict[str, Any]:
    try:
        config = json.loads(given.get("client_config", "{}"))
    except ValueError:
        config = None
    if not isinstance(config, dict):
        # The value stays out of the message: it may hold a token.
        raise ConfigError(
            "client_config is not a JSON object",
            remedy='Write it as \'{"proxy": {"request_timeout": 30000}}\'',
            option="client_config",
        )
    return config


def _starting_offsets(value: str | None, consumer: str | None) -> StartingPoint | dict[int, int]:
    if value is None:
        return StartingPoint.COMMITTED if consumer else StartingPoint.EARLIEST
    text = value.strip()
    if text.startswith("{"):
        return _offsets_by_partition(text)
    if text.lower() not in set(StartingPoint):
        raise _bad_starting_offsets(value)
    point = StartingPoint(text.lower())
    if point is StartingPoint.COMMITTED and consumer is None:
        raise ConfigError(
            "starting_offsets=committed asks for a consumer's offsets, and there is no consumer",
            remedy="Give consumer_path, or start from earliest or latest",
            option="starting_offsets",
        )
    return point


def _offsets_by_partition(text: str) -> dict[int, int]:
    try:
        pairs: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise _bad_starting_offsets(text) from error
    offsets = {int(key): row for key, row in pairs.items() if key.isascii() and key.isdigit()}
    if not offsets or len(offsets) != len(pairs) or not all(map(_is_row_index, offsets.values())):
        raise _bad_starting_offsets(text)
    return offsets


def _is_row_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bad_starting_offsets(value: str) -> ConfigError:
    return ConfigError(
        f"starting_offsets={value!r} is not understood",
        remedy="Use committed, earliest, latest, or the first row of every partition as JSON: "
        '{"0": 120, "1": 0}',
        option="starting_offsets",
    )


def _positive(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    value = given.get(name)
    if value is None:
        return default
    text = value.strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"{name}={value!r} is not a positive whole number",
            remedy="Give a number of 1 or more, or leave the option out for "
            + ("no limit" if default is None else f"the default of {default}"),
            option=name,
        )
    return int(text)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name)
    if value is None:
        return default
    answer = _BOOLEANS.get(value.strip().lower())
    if answer is None:
        raise ConfigError(
            f"{name}={value!r} is neither true nor false", remedy="Use true or false", option=name
        )
    return answer


_READ: dict[Any, Callable[[Mapping[str, str], str, Any], Any]] = {
    "int": _positive,
    "int | None": _positive,
    "bool": _boolean,
}
"""How options are read that need nothing but their type, as the class writes it."""
