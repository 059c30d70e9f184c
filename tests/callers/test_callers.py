"""However users call the sink: the target is exact, or an error keeps the query from going past the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import event, given, note, settings

from tests.callers.holes import HOLES
from tests.callers.in_memory import deploy
from tests.callers.oracle import ViolationError
from tests.callers.program import Program, Run
from tests.callers.server import Server
from tests.callers.strategies import programs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.callers.server import Write

IS_DEEP = settings.get_current_profile_name() == "deep"
EXAMPLES = 5_000 if IS_DEEP else 300


@pytest.mark.parametrize("name", HOLES)
def test_a_known_hole_stays_closed(name: str) -> None:
    """Each way in which callers lost or repeated rows without an error, as its smallest program."""
    deploy(HOLES[name])


@settings(max_examples=EXAMPLES, derandomize=not IS_DEEP)
@given(programs())
def test_the_target_is_exact_or_an_error_was_raised(program: Program) -> None:
    """Whatever a function does, in whatever deployment, nobody loses or repeats rows unknowingly."""
    note(repr(program))
    deployment = deploy(program)
    event("all batches are done" if deployment.commits == len(program.rows) else "refused")


@pytest.mark.parametrize(
    ("kept", "told"), [(slice(1, None), "LOST"), (slice(None), ""), (None, "REPEATED")]
)
def test_the_oracle_sees_what_the_cluster_does(
    kept: slice | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is not blind: a cluster that drops or doubles the first row of a commit is found out."""
    apply = Server.apply

    def unfaithful(self: Server, writes: Sequence[Write]) -> None:
        rows = [write for write in writes if write.path == "//target"]
        others = [write for write in writes if write.path != "//target"]
        apply(self, [*(rows + rows[:1] if kept is None else rows[kept]), *others])

    monkeypatch.setattr(Server, "apply", unfaithful)
    if not told:
        deploy(Program((Run(),)))
        return
    with pytest.raises(ViolationError, match=told):
        deploy(Program((Run(),)))
