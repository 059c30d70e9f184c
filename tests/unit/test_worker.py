"""The threads of a process that runs tasks."""

from threading import Barrier

import pytest

from yt_exactly_once.spark.worker import side_by_side


@pytest.mark.timeout(30)
def test_calls_on_all_threads_do_not_wait_for_threads():
    """The driver stands in for several tasks on one thread each, and each pushes to several sessions."""
    all_begun = Barrier(2)

    def stand_in():
        all_begun.wait()
        return side_by_side([lambda: "one", lambda: "other"], 2)

    assert side_by_side([stand_in, stand_in], 2) == [["one", "other"]] * 2
