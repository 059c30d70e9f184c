"""The facts of `verify-cluster`, as it asks for them: with the connections and transactions of a query."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from yt_exactly_once.config import ClusterConfig
from yt_exactly_once.operations.verify.facts import FACTS
from yt_exactly_once.operations.verify.stage import Fact, Patience, Stage
from yt_exactly_once.ytsaurus.client import Connection


@pytest.fixture(scope="module")
def stage_over(running: Any) -> Iterator[Callable[[str], Stage]]:
    """Return the stage over a front, which is built when the first fact asks for it."""
    with ExitStack() as made:

        @cache
        def over(front: str) -> Stage:
            given = {"client_config": {"backend": front}}
            connection = Connection(ClusterConfig.resolve(running.proxy_urls[0], **given))
            patience = Patience(idle=timedelta(seconds=2))
            stage = Stage(connection, f"//tmp/{uuid.uuid4().hex}", patience)
            made.callback(stage.remove)
            stage.build()
            return stage

        yield over


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_fact(stage_over: Callable[[str], Stage], front: str, fact: Fact) -> None:
    """Another behaviour raises `Differs`, which says what was seen."""
    fact.check(stage_over(front))
