"""A job as the documentation of SPYT shows it: source, sink and checkpoint on YTsaurus, drivers killed."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.harness.documented import FOLDER
from tests.flows import create_table, differences, ledger_entries
from yt_exactly_once.child import Child
from yt_exactly_once.local import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.flows import Rows

KILLS = 10
SEED = 10
_PARTITIONS = 2
_ROWS_AT_ONCE = 20
_LONGEST_LIFE_SECONDS = 3.0
_PAUSE_SECONDS = 0.1
_PATIENCE_SECONDS = 300.0


class Job:
    """The tables of the job, what was put into its queue, and its drivers."""

    def __init__(self, client: Any, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self.rows: list[Rows] = [[] for _ in range(_PARTITIONS)]
        data = {"name": "data", "type": "string"}
        create_table(client, self._path("queue"), [data], tablet_count=_PARTITIONS)
        length = {"name": "data_length", "type": "int64"}
        create_table(client, self._path("result"), [data, length], tablet_count=_PARTITIONS)
        client.create("queue_consumer", self._path("consumer"))
        client.mount_table(self._path("consumer"), sync=True)
        client.register_queue_consumer(self._path("queue"), self._path("consumer"), vital=True)

    def feed(self) -> None:
        """Put rows into the queue; each is there once."""
        for partition, rows in enumerate(self.rows):
            fresh = [f"{partition} ё {len(rows) + number}" for number in range(_ROWS_AT_ONCE)]
            self._client.insert_rows(
                self._path("queue"), [{"data": text, "$tablet_index": partition} for text in fresh]
            )
            rows += [(text, len(text)) for text in fresh]

    def found(self) -> Rows:
        """Return the rows of the result."""
        rows = self._client.select_rows(f"data, data_length from [{self._path('result')}]")
        return [(row["data"], row["data_length"]) for row in rows]

    def ends(self) -> dict[int, int]:
        """Return the end of the last batch in the ledger."""
        entries = ledger_entries(self._client, f"{self._path('result')}_ledger")
        return entries[0].ends[self._path("queue")] if entries else {}

    def wrong(self) -> str:
        """Compare the result with the rows up to the last batch in the ledger; empty when it is right."""
        ends = self.ends()
        must = [row for number, rows in enumerate(self.rows) for row in rows[: ends.get(number, 0)]]
        return differences(self.found(), must)

    def logged(self) -> list[int]:
        """Return the batches that Spark has logged as done, in Cypress."""
        path = self._path("checkpoints/commits")
        return sorted(int(name) for name in self._client.list(path) if name.isdigit())

    def live(self, seconds: float) -> None:
        """Run a driver until it has written a batch, and for so long; then kill it."""
        before, number = self.ends(), len(list(self._folder.iterdir()))
        scratch = self._folder / f"driver-{number:02}"
        scratch.mkdir()

        def plan(report: int) -> str:
            return json.dumps({"scratch": str(scratch), "report": report})

        with Child("tests.crash.harness.documented", plan, scratch / "log") as driver:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while self.ends() == before:
                if time.monotonic() > deadline:
                    raise driver.failure("The job writes nothing")
                time.sleep(_PAUSE_SECONDS)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                self.feed()
                time.sleep(_PAUSE_SECONDS)

    def _path(self, name: str) -> str:
        return f"//{FOLDER}/{name}"


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_documented_job_is_exact_whenever_it_is_killed(tmp_path, monkeypatch, record_property):
    """After each kill the result has every row up to the ledger's last batch, once; in the end all rows."""
    chance = random.Random(SEED)
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    with LocalCluster(tmp_path / "cluster", proxies=2) as cluster:
        monkeypatch.setenv("YT_PROXY", cluster.proxy_urls[0])
        job = Job(cluster.client(), drivers)
        for number in range(KILLS):
            job.feed()
            job.live(chance.uniform(0.0, _LONGEST_LIFE_SECONDS))
            assert job.wrong() == "", number
        job.feed()
        everything = {number: len(rows) for number, rows in enumerate(job.rows)}
        for _ in range(2):
            if job.ends() != everything:
                job.live(0.0)
        assert job.ends() == everything
        assert job.wrong() == ""
        record_property("rows", sum(everything.values()))
        record_property("batches", job.logged()[-1] + 1)
