"""The judge of whether a blow has hit anything."""

import json

from tests.machines.history import History, read_history


def test_history_counts_what_the_blows_caused(tmp_path):
    """A line that is half written does not count yet."""
    lost, speculative = {"Reason": "ExecutorLostFailure"}, {"Speculative": True}
    events = [
        {"Event": "SparkListenerExecutorAdded"},
        {"Event": "SparkListenerTaskEnd", "Task End Reason": lost, "Task Info": speculative},
        {
            "Event": "SparkListenerTaskEnd",
            "Task End Reason": {"Reason": "FetchFailed"},
            "Task Info": {"Speculative": False},
        },
        {"Event": "SparkListenerStageCompleted", "Stage Info": {"Stage Attempt ID": 0}},
        {"Event": "SparkListenerStageCompleted", "Stage Info": {"Stage Attempt ID": 1}},
        {
            "Event": "SparkListenerExecutorRemoved",
            "Removed Reason": "Executor killed by driver.",
        },
        {"Event": "SparkListenerExecutorRemoved", "Removed Reason": "Command exited with code 137"},
    ]
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    (tmp_path / "app.inprogress").write_text("\n".join([*lines, lines[0]]))
    assert read_history(tmp_path) == History(
        tasks=2,
        tasks_lost=1,
        speculative_tasks=1,
        fetches_failed=1,
        stages_run_again=1,
        executors_started=1,
        executors_released=1,
    )
