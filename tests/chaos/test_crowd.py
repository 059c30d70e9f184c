"""Many clients at once with faults on; and the judge of them, which finds each damage that is planted."""

from __future__ import annotations

import pytest

from tests.chaos.crowd import ACCOUNT_COUNT, BALANCE, Held, Told, judge, run


@pytest.mark.further
def test_many_clients_with_faults_lose_and_double_nothing():
    """Every acknowledged row is there once, every read is of one moment, and everybody comes back."""
    wrong, numbers = run(clients=20, seconds=4.0, seed=5)
    assert wrong == []
    # A crowd that does nothing proves nothing.
    assert min(numbers[name] for name in ("made", "pushed", "faults")) > 0


def _told():
    made, refused, unknown = {"a"}, {"r"}, {"u"}
    return [Told(made, refused, unknown, pushed=["e0", "e1"], pending=["e2"])]


def _held():
    accounts = dict.fromkeys(range(ACCOUNT_COUNT), (BALANCE, 0))
    accounts |= {1: (BALANCE - 5, 1), 2: (BALANCE + 5, 1)}
    return Held(accounts, {"a": (1, 2, 5)}, ["e0", "e1"])


def test_kept_promises_pass():
    """What is unknown may be there or not."""
    assert judge(_told(), _held()) == []
    held = _held()
    held.events.append("e2")
    assert judge(_told(), held) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda held: held.transfers.clear(), "a: acknowledged and lost"),
        (lambda held: held.transfers.update(r=(1, 2, 5)), "r: refused and there"),
        (lambda held: held.transfers.update(x=(1, 2, 5)), "x: nobody made it"),
        (lambda held: held.transfers.update(u=(1, 3, 5)), "its transfers say (990, 2)"),
        (lambda held: held.accounts.update({1: (0, 1)}), "its transfers say (995, 1)"),
        (lambda held: held.events.remove("e1"), "e1: pushed, there 0 times"),
        (lambda held: held.events.append("e0"), "e0: pushed, there 2 times"),
        (lambda held: held.events.extend(["e2", "e2"]), "e2: there 2 times"),
        (lambda held: held.events.append("x"), "x: nobody pushed it"),
    ],
)
def test_broken_promise_is_found(damage, said):
    """Each sort of damage has its sentence."""
    held = _held()
    damage(held)
    assert any(said in each for each in judge(_told(), held))


def test_what_a_client_saw_itself_is_passed_on():
    """Torn reads and lost answers are seen while the crowd works."""
    told = _told()
    told[0].broken.append("c1: an answer came very late")
    assert judge(told, _held()) == ["c1: an answer came very late"]
