"""The whole witness, for the night, where the sources of YTsaurus are at hand."""

import os

import pytest

from tests.upstream.__main__ import main

SOURCE = "YTSAURUS_SOURCE"


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.skipif(SOURCE not in os.environ, reason=f"{SOURCE} names no git directory")
def test_nothing_got_worse(tmp_path):
    """Every file, about 40 minutes."""
    assert main(["--source", os.environ[SOURCE], "--folder", str(tmp_path)]) == 0
