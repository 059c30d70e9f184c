"""The soak's judgement: a cluster that breaks a promise must not pass."""

from __future__ import annotations

import pytest

from tests.soak.oracle import judge
from tests.soak.records import ACKED, FAILED, UNKNOWN, ClientReport, Write
from tests.soak.stage import ACCOUNT_COUNT, BALANCE, State


def _reports():
    return [
        ClientReport(
            writes=[
                Write("append", "a", ACKED, 2),
                Write("single", "s", UNKNOWN, 1),
                Write("append", "f", FAILED, 1),
                Write("transfer", "t", ACKED),
                Write("consume", "c", ACKED, 0, {"partition": 0, "end": 1}),
            ],
            pushed=["e0", "e1"],
            pending=["e2"],
            seen=[(0, 1, "e1")],
        )
    ]


def _state():
    accounts = dict.fromkeys(range(ACCOUNT_COUNT), (BALANCE, 0))
    accounts |= {1: (BALANCE - 5, 1), 2: (BALANCE + 5, 1)}
    return State(
        journal=[["a/0", "a/1"], ["s/0"]],
        rows=["a/0", "a/1"],
        accounts=accounts,
        transfers={"t": (1, 2, 5, 1, 1)},
        events={(0, 1): "e1"},
        consumed=[(0, 0, "e0")],
        offsets={0: 1},
    )


def test_kept_promises_pass():
    """What is unknown may be there or not."""
    assert judge(_reports(), _state()) == []
    without = _state()
    without.journal[1].clear()
    assert judge(_reports(), without) == []


def _lose(state):
    state.journal[0].clear()
    state.rows.clear()


def _admit_refused(state):
    state.journal[0].append("f/0")
    state.rows.append("f/0")


DAMAGES = {
    "lost": (_lose, "acknowledged and lost"),
    "doubled": (lambda state: state.journal[1].extend(["a/0", "a/1"]), "there 2 times"),
    "torn": (lambda state: state.rows.remove("a/1"), "only a part"),
    "unknown doubled": (lambda state: state.journal[1].append("s/0"), "there 2 times"),
    "refused": (_admit_refused, "refused and there"),
    "stray": (lambda state: state.journal[0].append("x/0"), "nobody wrote"),
    "lost update": (
        lambda state: state.transfers.update(u=(1, 3, 5, 1, 1)),
        "2 transfers made version 1",
    ),
    "wrong balance": (lambda state: state.accounts.update({1: (0, 1)}), "its transfers say"),
    "lost transfer": (lambda state: state.transfers.clear(), "acknowledged and lost"),
    "lost event": (lambda state: state.events.clear(), "e1: acknowledged, in the queue 0 times"),
    "doubled event": (
        lambda state: state.events.update({(0, 2): "e0"}),
        "e0: acknowledged, in the queue 2 times",
    ),
    "doubled pending event": (
        lambda state: state.events.update({(0, 2): "e2", (0, 3): "e2"}),
        "e2: not acknowledged, in the queue 2 times",
    ),
    "changed event": (lambda state: state.events.update({(0, 0): "e2"}), "another row"),
    "consumed twice": (lambda state: state.consumed.append((0, 0, "e0")), "doubled [0]"),
    "gap": (lambda state: state.offsets.update({0: 2}), "missing [1]"),
    "offset back": (lambda state: state.offsets.update({0: 0}), "offset is below 1"),
    "stray event": (lambda state: state.events.update({(0, 2): "x"}), "nobody pushed it"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_broken_promise_is_found(name):
    """Each sort of damage has its sentence."""
    damage, said = DAMAGES[name]
    state = _state()
    damage(state)
    assert any(said in violation for violation in judge(_reports(), state))


def test_what_a_client_saw_itself_is_passed_on():
    """Torn reads and lost answers are seen while the soak runs."""
    reports = _reports()
    reports[0].broken.append("c1: took 90 s")
    assert judge(reports, _state()) == ["c1: took 90 s"]


def test_report_survives_its_way_between_processes():
    """Clients live in other processes than the oracle."""
    (report,) = _reports()
    assert ClientReport.from_json(report.to_json()) == report
