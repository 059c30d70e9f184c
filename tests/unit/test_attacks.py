"""What the kit attacks, how the gate answers, and how rows are judged; no driver."""

import http.client
import os
import threading

import pytest

from tests.cluster_fixtures import served
from yt_exactly_once.testing import At, Attack, Attacked, Finding, NotExactError, Survival, Trial
from yt_exactly_once.testing import steps as testing_steps
from yt_exactly_once.testing.attacks import EVERYWHERE, Manner, attacks_of
from yt_exactly_once.testing.gate import Gate
from yt_exactly_once.testing.steps import (
    AFTER_CALL,
    BEFORE_CALL,
    TASK_ENDS,
    Kind,
    Reply,
    Step,
    reach,
    watch_requests,
    watched_lines,
)
from yt_exactly_once.testing.verdict import compared

COMMIT = Step(Kind.ANSWER, "POST /api/v4/commit_transaction")
KILLED = Attack(Manner.KILL, AFTER_CALL)
PATIENCE = 60


@pytest.fixture
def trial(tmp_path):
    """A trial that runs its batch 1."""
    trial = Trial("t", tmp_path)
    for name in ("offsets/0", "offsets/1", "commits/0"):
        file = tmp_path / "checkpoint" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return trial


@pytest.fixture
def gate(monkeypatch):
    gate = Gate()
    monkeypatch.setenv(testing_steps.GATE_VARIABLE, gate.address)
    yield gate
    gate.close()


def test_steps_are_attacked_where_they_fit():
    """A step that a batch takes often is attacked the first and the last time."""
    seen = {
        BEFORE_CALL: 1,
        TASK_ENDS: 2,
        Step(Kind.LINE, "line 3 of a.py: x"): 7,
        COMMIT: 2,
        AFTER_CALL: 1,
    }
    assert [str(attack) for attack in attacks_of(seen, [*EVERYWHERE, 0.5])] == [
        "killed before the call",
        "killed before line 3 of a.py: x",
        "killed before line 3 of a.py: x (time 7)",
        "killed after POST /api/v4/commit_transaction",
        "killed after POST /api/v4/commit_transaction (time 2)",
        "lost the answer to POST /api/v4/commit_transaction",
        "lost the answer to POST /api/v4/commit_transaction (time 2)",
        "killed after the call, before Spark logs the batch as done",
        "killed when all tasks but one have handed on their rows",
        "every task fails once, after its work is done",
        "killed 0.5 s after the call has begun",
    ]
    assert [attack.step for attack in attacks_of(seen, [At.CALL])] == [BEFORE_CALL, AFTER_CALL]


def test_gate_counts_and_loses_in_the_attacked_batch_only(gate, trial):
    gate.watch(trial, 0, Attack(Manner.LOSE, COMMIT))
    assert reach(COMMIT) is Reply.PASS
    assert not gate.arrived.is_set()
    gate.watch(trial, 1, Attack(Manner.LOSE, COMMIT, occurrence=2))
    assert [reach(COMMIT), reach(AFTER_CALL), reach(COMMIT), reach(COMMIT)] == [
        Reply.PASS,
        Reply.PASS,
        Reply.LOSE,
        Reply.PASS,
    ]
    assert gate.steps == {COMMIT: 3, AFTER_CALL: 1}


def test_gate_fails_each_attempt_of_a_task_at_the_end_of_another_process(gate, trial):
    """Of a task that reads in one Python process and writes in another, both have done their work once."""
    gate.watch(trial, 1, Attack(Manner.FAIL_TASKS, TASK_ENDS))
    ends = [(7, 0), (8, 1), (8, 1), (9, 2), (9, 2)]
    replies = [reach(TASK_ENDS, task, attempt) for task, attempt in ends]
    assert [reply is Reply.LOSE for reply in replies] == [True, False, True, False, False]


def test_gate_holds_a_step_until_it_is_released(gate, trial):
    gate.watch(trial, 1, KILLED)
    replies = []
    asking = threading.Thread(target=lambda: replies.append(reach(AFTER_CALL)))
    asking.start()
    assert gate.arrived.wait(PATIENCE)
    assert reach(BEFORE_CALL) is Reply.PASS
    assert replies == []
    gate.release()
    asking.join(PATIENCE)
    assert replies == [Reply.PASS]


def test_answers_over_http_are_steps_and_may_be_lost(gate, trial, monkeypatch):
    """The server has carried out what it answers. Ids in the path are no other step."""
    for name in ("putrequest", "getresponse"):
        monkeypatch.setattr(
            http.client.HTTPConnection, name, getattr(http.client.HTTPConnection, name)
        )
    watch_requests()
    asked = []

    def answer(path):
        asked.append(path)
        return 200, {}

    step = Step(Kind.ANSWER, "PUT /bucket/batch-*/*.parquet")
    gate.watch(trial, 1, Attack(Manner.LOSE, step, occurrence=2))
    with served(answer) as address:
        connection = http.client.HTTPConnection(address)
        for name in ("0e9f8a7b-1", "1e9f8a7b-1"):
            connection.request("PUT", f"/bucket/batch-17/{name}.parquet?part=1")
            if name == "0e9f8a7b-1":
                connection.getresponse().read()
        with pytest.raises(ConnectionResetError, match="lost the answer"):
            connection.getresponse()
        connection.request("PUT", "/ping_transaction")
        connection.getresponse().read()
        connection.close()
    assert len(asked) == 3
    assert gate.steps == {step: 2}


def written(values):
    values.append(1)
    values.append(os.sep)


def test_lines_of_a_function_are_steps(gate, trial):
    """The code that it calls in other files is not its own."""
    gate.watch(trial, 1)
    with watched_lines(written):
        written([])
    with watched_lines(TrialSink()):
        TrialSink()([])
    with watched_lines(len):
        len([])
    assert [step.text.partition(": ")[2] for step in gate.steps] == [
        "values.append(1)",
        "values.append(os.sep)",
        "values.clear()",
    ]
    assert all("of test_attacks.py" in step.text for step in gate.steps)


class TrialSink:
    def __call__(self, values):
        values.clear()


ROWS = [{"id": 1, "tags": ["a"], "at": float("nan")}, {"id": 2, "tags": [], "at": 0.5}]


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        (ROWS[::-1], Finding.EXACT),
        ([*ROWS, ROWS[0]], Finding.DOUBLED),
        (ROWS[1:], Finding.LOST),
        ([ROWS[0], ROWS[0]], Finding.LOST),
        ([ROWS[0], {**ROWS[1], "id": 3}], Finding.WRONG),
    ],
)
def test_rows_are_judged_by_the_worst_that_is_found(found, finding):
    judged = compared(KILLED, found, ROWS)
    assert judged.finding is finding
    verdict = Survival(len(ROWS), [compared(KILLED, ROWS, ROWS), judged])
    assert verdict.finding is finding
    assert verdict.exact == (finding is Finding.EXACT)


def test_report_names_the_attack_and_shows_rows():
    judged = compared(KILLED, [{"id": number} for number in (1, 1, 2, 2, 3, 3, 4, 4)], [{"id": 1}])
    verdict = Survival(1, [judged, Attacked(KILLED, error="E: first\nsecond")])
    assert str(verdict).splitlines() == [
        "wrong: 2 attacks (1 wrong, 1 failed), 1 rows",
        "wrong    killed after the call, before Spark logs the batch as done",
        "         1 doubled: {'id': 1}",
        "         6 wrong: {'id': 2}, {'id': 2}, {'id': 3}, ...",
        "failed   killed after the call, before Spark logs the batch as done",
        "         E: first second",
    ]
    with pytest.raises(NotExactError, match="6 wrong"):
        verdict.assert_exact()


def test_verdict_without_an_attack_that_was_carried_out_is_not_exact():
    """Nothing was shown."""
    missed = Attacked(KILLED, was_carried_out=False)
    verdict = Survival(2, [missed])
    assert verdict.finding is Finding.MISSED
    assert not verdict.exact
    assert verdict.of(Finding.MISSED) == [missed]
    assert Survival(2, [missed, compared(KILLED, ROWS, ROWS)]).exact
