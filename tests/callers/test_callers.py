"""However users call the sink: the target is exact, or an error keeps the query from going past the gap."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from tests.callers.holes import HOLES, HOLES_OF_THE_FORMAT
from tests.callers.in_format import InFormat
from tests.callers.in_memory import LEDGER, deploy
from tests.callers.oracle import ViolationError
from tests.callers.program import Program, Run
from tests.callers.server import Server, Write
from tests.callers.strategies import programs, programs_in_format
from yt_exactly_once.config import DeliveryMode

IS_DEEP = settings.get_current_profile_name() == "deep"
EXAMPLES = 5_000 if IS_DEEP else 300


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the checkpoints of all programs."""
    return tmp_path_factory.mktemp("callers")


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


@pytest.mark.parametrize("name", HOLES_OF_THE_FORMAT)
def test_a_known_hole_of_the_format_stays_closed(name: str, folder: Path) -> None:
    """Whichever processes plan, commit and abort; a few of these choices were wrong."""
    for seed in range(20):
        deployment = InFormat(HOLES_OF_THE_FORMAT[name], Random(seed), folder)
        with deployment.patches():
            deployment.deploy()


@settings(max_examples=EXAMPLES // 3, derandomize=not IS_DEEP)
@given(programs_in_format(), st.integers(0, 2**32))
def test_the_format_is_exact_whichever_process_spark_asks(
    folder: Path, program: Program, seed: int
) -> None:
    """A process knows neither the run nor what others have done, and has served other runs."""
    note(repr(program))
    deployment = InFormat(program, Random(seed), folder)
    with deployment.patches():
        deployment.deploy()
    event("all batches are done" if deployment.commits == len(program.rows) else "refused")


@pytest.mark.parametrize(
    ("disturbed", "told"),
    [("ledger", "has it no more"), ("batch", "Spark runs batch 2"), ("query", "of another query")],
)
def test_commit_of_the_format_is_of_what_was_planned(
    folder: Path, disturbed: str, told: str
) -> None:
    """An older entry is put back after a replay was planned, or the checkpoint is not that of the task."""
    at_least_once = DeliveryMode.AT_LEAST_ONCE
    runs = (Run(at_least_once, unlogged=1), Run(at_least_once))
    deployment = InFormat(Program(runs, numbered=True), Random(0), folder)
    run_task = deployment._run_task

    def disturb(writer: bytes, rows: Any, place: int, batch: int) -> Any:
        if deployment.started == 2:
            if disturbed == "ledger":
                deployment.server.tables[LEDGER].rows = dict(deployment._copies[-1][LEDGER].rows)
            query = "another" if disturbed == "query" else deployment.query_id
            with mock.patch.object(deployment, "query_id", query):
                return run_task(writer, rows, place, batch + (disturbed == "batch"))
        return run_task(writer, rows, place, batch)

    deployment._run_task = disturb
    with deployment.patches(), pytest.raises(ViolationError, match=f"REFUSED.*{told}"):
        deployment.deploy()


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
