"""What the random search finds by itself: one protection off at a time, and how many programs that takes.

`python -m tests.callers.search [--programs N] [NAME ...]` prints a row for each fault whose name begins so.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import unquote

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.callers import in_memory
from tests.callers.in_format import InFormat
from tests.callers.in_memory import InMemory
from tests.callers.program import Program
from tests.callers.strategies import programs, programs_in_format
from yt_exactly_once.commit import entry, ledger
from yt_exactly_once.spark import storage
from yt_exactly_once.spark.doors import frame_rows, stream_writer, writer_options
from yt_exactly_once.spark.engine import engine, preparation
from yt_exactly_once.spark.engine import look_up as look_up_module
from yt_exactly_once.spark.engine.look_up import Found
from yt_exactly_once.spark.modes import mode
from yt_exactly_once.spark.query import offset_log
from yt_exactly_once.spark.sink import encode, targets

_SEED = 25
_plain_find = look_up_module.find
_plain_writer = stream_writer.stream_writer
_plain_location = storage.split_location


class _FoundError(KeyboardInterrupt):
    """Ends the search: Hypothesis lets it through."""


_planned: dict[tuple[int, str], int] = {}
"""The batch that a process has planned last, by process and query."""


def _trusting(delivery: Any, *given: Any) -> Any:
    batch = delivery.batch
    if batch.run_id.startswith("plan-"):
        key = id(delivery.mode), batch.query_id
        before, _planned[key] = _planned.get(key), batch.batch_id
        if before == batch.batch_id - 1:
            return Found()
    return _plain_find(delivery, *given)


def _always_planned(options: Any, schema: Any, *, complete: bool, **_: Any) -> Any:
    return _plain_writer(options, schema, complete=complete, plans=True)


def _by_average(rows: Any, room: int, left: int, *, least: int) -> tuple[int, int]:
    row_bytes = rows.nbytes // rows.num_rows
    count = max(least, min(rows.num_rows, room, left // row_bytes))
    return count, count * row_bytes


def _as_they_end(frame: Any) -> Any:
    return frame.toArrow().to_batches()[::-1]


def _same_without_tablets(connection: Any, prepared: Any) -> bool:
    return all(
        targets.table_identity(connection, each.path)[:2] == (each.table_id, each.schema)
        for each in prepared
    )


def _nothing(*_: Any, **__: Any) -> None:
    pass


class Fault(NamedTuple):
    """A protection that is off.

    Attributes:
        patches: module or class, name, and what is there instead.
        in_format: whether the programs write with the format.
    """

    patches: list[tuple[Any, str, Any]]
    in_format: bool = False


FAULTS = {
    "0: nothing": Fault([]),
    "0: nothing, in the format": Fault([], in_format=True),
    "1a-c: what a process has planned counts for every run": Fault(
        [(look_up_module, "find", _trusting)], in_format=True
    ),
    "1d: an abort plans, too": Fault(
        [(stream_writer, "stream_writer", _always_planned)], in_format=True
    ),
    "2: rows in the order in which the tasks end": Fault(
        [(frame_rows, "arrow_batches", _as_they_end)]
    ),
    "3: an entry of a newer format is read": Fault(
        [(entry, "require_known_format", _nothing), (ledger, "require_known_format", _nothing)]
    ),
    "3: an offset of a newer format is read": Fault(
        [(offset_log, "require_known_format", _nothing)]
    ),
    "4: empty batches are taken for written ones": Fault(
        [
            (in_memory.Log, "may_be_written", lambda _log, batch, _unused: batch.batch_id > 0),
            (look_up_module, "_has_rows", lambda *_: True),
        ]
    ),
    "5: queryName is an unknown option": Fault(
        [
            (
                writer_options,
                "WRITER_OPTION_NAMES",
                [name for name in writer_options.WRITER_OPTION_NAMES if name != "queryname"],
            )
        ],
        in_format=True,
    ),
    "6: a percent sign in a checkpoint's path is unquoted": Fault(
        [(storage, "split_location", lambda location: _plain_location(unquote(location)))],
        in_format=True,
    ),
    "7: a change of tablets is not named": Fault(
        [(module, "with_change", lambda *given: given[-1]) for module in (mode, engine)]
    ),
    "7: a change of tablets is not looked for": Fault(
        [
            (module, "are_the_same", _same_without_tablets)
            for module in (targets, engine, preparation)
        ]
    ),
    "8: a target is not looked at again": Fault(
        [(module, "are_the_same", lambda *_: True) for module in (engine, preparation)]
    ),
    "13: columns are found by the names under which they travel": Fault(
        [(mode, "restored", lambda rows, wanted: rows.select(list(wanted)))]
    ),
    "14: requests are cut by the average row": Fault([(encode, "_fitting", _by_average)]),
}
"""By number in the list of holes."""


def search(fault: Fault, most: int, folder: Path) -> tuple[int, str]:
    """Run generated programs until one shows a fault; return how many ran, and what the last one showed."""
    count, shown = 0, ""

    def run(make: Callable[[], InMemory]) -> None:
        nonlocal count, shown
        count += 1
        try:
            with ExitStack() as stack:
                for patch in fault.patches:
                    stack.enter_context(mock.patch.object(*patch))
                deployment = make()
                stack.enter_context(deployment.patches())
                deployment.deploy()
        except Exception as error:
            shown = str(error) or repr(error)
            raise _FoundError from error

    def in_memory_only(program: Program) -> None:
        run(lambda: InMemory(program))

    def in_format(program: Program, turns: int) -> None:
        run(lambda: InFormat(program, Random(turns), folder))

    drawn = [programs_in_format(), st.integers(0, 2**32)] if fault.in_format else [programs()]
    chosen = settings(
        max_examples=most,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with suppress(_FoundError):
        seed(_SEED)(chosen(given(*drawn)(in_format if fault.in_format else in_memory_only)))()
    return count, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[""])
    parser.add_argument("--programs", type=int, default=3_000)
    asked = parser.parse_args()
    sys.stdout.write("| switched off | found | programs | seconds of CPU |\n|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, fault in FAULTS.items():
            if name.startswith(tuple(asked.names)):
                begun = time.process_time()
                count, shown = search(fault, asked.programs, Path(folder))
                seconds = time.process_time() - begun
                found = f"yes: {shown.partition(':')[0]}" if shown else "no"
                sys.stdout.write(f"| {name} | {found} | {count:,} | {seconds:.1f} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
