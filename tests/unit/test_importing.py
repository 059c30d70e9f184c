"""Imports without the garbage collector, which is then as it was."""

import gc

import pytest

from yt_exactly_once.importing import uncollected


@pytest.mark.parametrize("was_enabled", [True, False])
def test_collector_is_off_meanwhile_and_then_as_it_was(monkeypatch, was_enabled):
    """A program may have switched it off for good, and a module may be absent."""
    calls = []
    monkeypatch.setattr(gc, "isenabled", lambda: was_enabled)
    monkeypatch.setattr(gc, "disable", lambda: calls.append("disable"))
    monkeypatch.setattr(gc, "enable", lambda: calls.append("enable"))
    with pytest.raises(ModuleNotFoundError), uncollected():
        import no_such_module  # noqa: F401
    assert calls == ["disable", *(["enable"] if was_enabled else [])]
