"""Tests of a pipeline by its owner: break one's own job at every step, and count what that did to its rows.

Public names are resolved on first use: importing the package loads neither pyspark nor pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yt_exactly_once.testing.attacks import At as At
    from yt_exactly_once.testing.attacks import Attack as Attack
    from yt_exactly_once.testing.new_code import rehearse as rehearse
    from yt_exactly_once.testing.rehearsal import Judgement as Judgement
    from yt_exactly_once.testing.rehearsal import OtherRowsError as OtherRowsError
    from yt_exactly_once.testing.rehearsal import Rehearsal as Rehearsal
    from yt_exactly_once.testing.rehearsal import Rehearsed as Rehearsed
    from yt_exactly_once.testing.survival import survives as survives
    from yt_exactly_once.testing.trial import Trial as Trial
    from yt_exactly_once.testing.trial import sink_job as sink_job
    from yt_exactly_once.testing.verdict import Attacked as Attacked
    from yt_exactly_once.testing.verdict import Finding as Finding
    from yt_exactly_once.testing.verdict import NotExactError as NotExactError
    from yt_exactly_once.testing.verdict import Survival as Survival

_MODULES = {
    "At": "attacks",
    "Attack": "attacks",
    "Attacked": "verdict",
    "Finding": "verdict",
    "Judgement": "rehearsal",
    "NotExactError": "verdict",
    "OtherRowsError": "rehearsal",
    "Rehearsal": "rehearsal",
    "Rehearsed": "rehearsal",
    "Trial": "trial",
    "Survival": "verdict",
    "rehearse": "new_code",
    "sink_job": "trial",
    "survives": "survival",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
