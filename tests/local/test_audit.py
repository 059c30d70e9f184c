"""`audit`: one lost, one repeated and one changed row are found, and a good target is called exact."""

from __future__ import annotations

import json

import pytest

from tests.local.pipelines import TARGET_SCHEMA, Pipeline
from yt_exactly_once import cli
from yt_exactly_once.errors import ConfigError
from yt_exactly_once.operations import audit as module
from yt_exactly_once.operations.audit import Columns, audit

COLUMNS = Columns("part", "row")


def row(part, index, value=None):
    return {"part": part, "row": index, "value": index * 10 + part if value is None else value}


def written(end):
    return [row(part, index) for part in range(2) for index in range(end)]


@pytest.fixture(params=["ordered", pytest.param("sorted", marks=pytest.mark.further)])
def pipeline(request, cluster, client, tmp, monkeypatch):
    monkeypatch.setattr(module, "BUCKET", 8)
    made = Pipeline(cluster, tmp)
    if request.param == "sorted":
        keys = ["value", "row"]
        columns = [
            {**one, "sort_order": "ascending"}
            for one in reversed(TARGET_SCHEMA)
            if one["name"] in keys
        ]
        rest = [one for one in TARGET_SCHEMA if one["name"] not in keys]
        client.create("table", made.target, attributes={"dynamic": True, "schema": columns + rest})
    made.create()
    made.feed(40)
    return made


def look(pipeline, **options):
    return audit(pipeline.connection, pipeline.target, columns=COLUMNS, rows_per_read=23, **options)


def test_good_target_is_exact(pipeline):
    """Whatever order its rows have, and while the query goes on."""
    pipeline.run(30)
    seen = []
    found = look(pipeline, progress=lambda *told: seen.append(told))
    assert found.exact
    assert (found.rows, found.compared, found.newer) == (60, ("value",), 0)
    assert seen[-1] == (pipeline.queue, 60, 60)
    pipeline.client.insert_rows(pipeline.target, [row(0, 31)])
    assert look(pipeline).newer == 1
    assert look(pipeline).exact


def test_lost_repeated_and_changed_rows_are_found(pipeline):
    """Each with its place."""
    rows = [*written(30), row(1, 29, value=5)]
    rows.remove(row(0, 17))
    rows.remove(row(1, 4))
    rows.append(row(1, 4, value=77))
    pipeline.run(30, written=rows)
    first, second = look(pipeline).partitions
    assert (first.lost, first.repeated, first.changed) == (1, 0, 0)
    assert first.examples["lost"] == (17,)
    assert (second.lost, second.repeated, second.changed) == (0, 1, 2)
    assert second.examples == {"lost": (), "repeated": (29,), "changed": (4, 29)}
    assert not look(pipeline, compare=False).exact


def test_rows_of_unknown_origin_are_no_rows_of_the_query(pipeline):
    """Somebody else has written them."""
    pipeline.run(30, written=[*written(30), row(5, 1), row(0, -3)])
    found = look(pipeline)
    assert (found.unknown, found.exact) == (2, False)
    begun_later = look(pipeline, start=4)
    assert begun_later.unknown == 10


def test_values_are_compared_as_far_as_the_queue_has_them(pipeline):
    """Presence is proven for all."""
    pipeline.run(30, written=[*written(30)[1:], row(0, 0, value=3)])
    assert look(pipeline).partitions[0].changed == 1
    pipeline.client.trim_rows(pipeline.queue, 0, 10)
    found = look(pipeline)
    assert found.exact
    assert [part.compared_from for part in found.partitions] == [16, 0]


def test_target_without_sources_is_counted(cluster, tmp, capsys):
    """The command says what was compared, and what its exit code means."""
    pipeline = Pipeline(cluster, tmp).create()
    pipeline.feed(5)
    pipeline.run(5)
    command = ["audit", pipeline.target, "--proxy", cluster.proxy_urls[0]]
    assert cli.main(command) == 0
    assert "the ledger accounts for 10" in capsys.readouterr().out
    pipeline.client.insert_rows(pipeline.target, [row(0, 1)])
    assert cli.main([*command, "--json"]) == 1
    assert not json.loads(capsys.readouterr().out)["exact"]
    columns = ["--partition-column", "part", "--row-column", "row"]
    assert cli.main([*command, *columns]) == 1
    said = capsys.readouterr().out
    assert "repeated 1" in said
    assert "NOT exact" in said
    assert cli.main([*command, *columns[:2]]) == 2
    with pytest.raises(ConfigError, match="no column nowhere"):
        audit(pipeline.connection, pipeline.target, columns=Columns("part", "nowhere"))
