"""What Spark did, from its event log: without it nobody knows whether a blow has hit anything."""

import json
from dataclasses import dataclass
from pathlib import Path

_STAGE = '{"Event":"SparkListenerStageCompleted"'
_TASK = '{"Event":"SparkListenerTaskEnd"'
_ADDED = '{"Event":"SparkListenerExecutorAdded"'
_REMOVED = '{"Event":"SparkListenerExecutorRemoved"'
_IDLE = "killed by driver"


@dataclass
class History:
    """Counts of an application.

    Attributes:
        speculative_tasks: copies that ended, whether they came first or not.
        fetches_failed: tasks that did not find a shuffle file.
        stages_run_again: attempts of a stage after its first.
        executors_released: by dynamic allocation, as they were idle.
    """

    tasks: int = 0
    tasks_lost: int = 0
    speculative_tasks: int = 0
    fetches_failed: int = 0
    stages_run_again: int = 0
    executors_started: int = 0
    executors_released: int = 0


def read_history(folder: Path) -> History:
    """Read the event log of the one application in a folder, as far as it is written."""
    history = History()
    for path in folder.iterdir():
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                # The last one may be written at this moment.
                if line.endswith("\n"):
                    _count(history, line)
    return history


def _count(history: History, line: str) -> None:
    if line.startswith(_STAGE):
        history.stages_run_again += json.loads(line)["Stage Info"]["Stage Attempt ID"] > 0
    elif line.startswith(_TASK):
        event = json.loads(line)
        reason = event["Task End Reason"]["Reason"]
        history.tasks += 1
        history.tasks_lost += reason == "ExecutorLostFailure"
        history.fetches_failed += reason == "FetchFailed"
        history.speculative_tasks += event["Task Info"]["Speculative"]
    elif line.startswith(_ADDED):
        history.executors_started += 1
    elif line.startswith(_REMOVED):
        history.executors_released += _IDLE in json.loads(line)["Removed Reason"]
