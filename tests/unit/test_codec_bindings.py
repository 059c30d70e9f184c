"""What happens without the C bindings."""

import importlib
import sys

import pytest

from yt_exactly_once.codec import bindings
from yt_exactly_once.errors import ConfigError


def test_missing_bindings_are_a_configuration_error(monkeypatch):
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "yt_yson_bindings", None)
    monkeypatch.delitem(sys.modules, bindings.__name__)
    with pytest.raises(ConfigError, match="pip install ytsaurus-yson"):
        importlib.import_module(bindings.__name__)
