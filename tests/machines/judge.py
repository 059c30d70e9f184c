"""What must hold of a checkpoint: its logs, as Cypress has them, and the state, as Spark reads it."""

import json
import re
from collections.abc import Iterable, Mapping

from tests.flows import differences
from tests.machines.stage import Driver, Stage

_NAME = re.compile(r"\d+|\..+\.tmp")
"""A file of Spark's logs, or what a killed driver may leave beside them."""

_EMPTY = "(empty)"


def damages(stage: Stage, *, newest: int | None = None) -> list[str]:
    """Say what `log_damages` finds in the checkpoints.

    Args:
        newest: how many files of each log are read; all by default.
    """
    client = stage.client
    found = []
    for name in stage.flows:
        logs = {}
        for log in ("commits", "offsets"):  # in this order: more offsets may come in between
            path = f"{stage.checkpoint(name)}/{log}"
            files = [str(file) for file in client.list(path)] if client.exists(path) else []
            logs[log] = dict.fromkeys(files, "")
            numbers = _numbers(files)
            for number in numbers[-(newest or len(numbers)) :]:
                content = client.read_file(f"{path}/{number}").read()
                logs[log][str(number)] = content.decode(errors="replace") or _EMPTY
        found += [f"{name}: {damage}" for damage in log_damages(logs)]
    return found


def log_damages(logs: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Say which files of Spark's logs are torn, missing or not Spark's.

    Args:
        logs: content of each file of `offsets` and `commits`, by its name; nothing if it was not read.
    """
    found = []
    for log, files in logs.items():
        numbers = _numbers(files)
        found += [f"{log} has {file}" for file in files if not _NAME.fullmatch(file)]
        if numbers != list(range(len(numbers))):
            found.append(f"{log} has gaps: {numbers}")
        found += [
            f"{log}/{number} is torn"
            for number in numbers
            if files[str(number)] and _is_torn(files[str(number)])
        ]
    counts = {log: len(_numbers(files)) for log, files in logs.items()}
    if counts["offsets"] < counts["commits"]:
        found.append(f"more commits than offsets: {counts}")
    return found


def wrong_states(stage: Stage, driver: Driver) -> list[str]:
    """Say how the state that Spark reads differs from the rows of the queue."""
    states = driver.ask_for_states()
    wrong = {
        name: differences(found, stage.must_hold(name, is_sorted=True))
        for name, found in states.items()
    }
    return [f"state of {name}: {what}" for name, what in wrong.items() if what]


def _numbers(files: Iterable[str]) -> list[int]:
    return sorted(int(file) for file in files if file.isdigit())


def _is_torn(content: str) -> bool:
    """Tell whether a file is not a version, and then a line of JSON or `-` for each thing logged."""
    version, *lines = content.split("\n")
    try:
        for line in lines:
            if line != "-":
                json.loads(line)
    except ValueError:
        return True
    return not version.startswith("v") or not lines
