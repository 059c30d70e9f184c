"""The alert rules and the board: they name metrics that exist, and each alert fires when it should."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from yt_exactly_once.telemetry.metrics import LABELS, Metric

FOLDER = Path(__file__).parents[2] / "docs/monitoring"
RULES = FOLDER / "prometheus-rules.yml"
BOARD = json.loads((FOLDER / "grafana-board.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))

INSTANCE = 'instance="driver:9464"'
SINK = f'{INSTANCE},yt_query="q",yt_target="//t",yt_mode="transactional"'
SOURCE = f'{INSTANCE},yt_queue="//q",yt_consumer="//c"'
QUERY = f'{INSTANCE},yt_query="q",yt_query_name="orders"'


def of(labels: str, **series: str) -> dict[str, str]:
    return {f"yt_exactly_once_{name}{{{labels}}}": values for name, values in series.items()}


CONFLICTS = f'{SINK},error_type="ConflictError"'
OUTCOME = f'{SINK},yt_outcome="{{}}"'
UP = f'up{{job="yt_exactly_once",{INSTANCE}}}'

# Of each alert: series, from minute to minute; when it is still silent, and when it fires.
CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "YtDriverDown": ({UP: "1 0x10"}, "2m", "4m"),
    "YtQueryFailed": (of(QUERY, query_failed="0 0 1x5"), "1m", "2m"),
    "YtBatchFailed": (of(OUTCOME.format("failed"), batches_total="0 0 1x5"), "1m", "2m"),
    "YtQueryStuck": (
        of(QUERY, query_progress_time_seconds="0x20", query_active="1x20"), "11m", "12m",
    ),
    "YtSourceFarBehind": (of(SOURCE, source_lag_time_seconds="0+300x20"), "7m", "8m"),
    "YtSourceLagGrows": (of(SOURCE, source_lag="10+5x40"), "15m", "16m"),
    "YtRowsTrimmed": (of(SOURCE, source_rows_trimmed_total="0 0 5x5"), "1m", "2m"),
    "YtQueueReplaced": (of(SOURCE, source_replacements_total="0 0 1x5"), "1m", "2m"),
    "YtRowsRejected": (of(SINK, rows_rejected_total="0 0 3x5"), "1m", "2m"),
    "YtRowsLeftOut": (of(SINK, rows_left_out_total="0 0 3x5"), "1m", "2m"),
    "YtManyRetries": (of(CONFLICTS, retries_total="0+30x20"), "5m", "7m"),
    "YtCommitOutcomesUnknown": (of(SINK, commits_unknown_total="0 2 2 9x5"), "2m", "3m"),
    "YtNoteFailed": (of(SINK, notes_failed_total="0 0 1x5"), "1m", "2m"),
    "YtReplaySkipped": (of(OUTCOME.format("replay"), batches_total="0 0 1x5"), "1m", "2m"),
}  # fmt: skip

QUIET: dict[str, str] = {
    UP: "1x60",
    **of(QUERY, query_failed="0x60", query_active="1x60", query_progress_time_seconds="0+60x60"),
    **of(OUTCOME.format("committed"), batches_total="0+60x60"),
    **of(OUTCOME.format("failed"), batches_total="0x60"),
    **of(
        SOURCE,
        source_lag="0 90 0 40 0 0 800 0 5x52",
        source_lag_time_seconds="0 9 0 4 0 0 80 0 5x52",
    ),
    **of(CONFLICTS, retries_total="0 1 1 2 2 3x55"),
    **of(SINK, commits_unknown_total="0 1x59"),
}
"""A pipeline that is well: the last minute has no alert."""


def test_rules_and_board_name_series_and_labels_of_the_table():
    """A metric that was renamed leaves an alert that never fires."""
    known = {name for metric in Metric for name in metric.series}
    text = "\n".join([RULES.read_text(encoding="utf-8"), *EXPRESSIONS])
    assert set(re.findall(r"\byt_exactly_once_\w+", text)) <= known
    labels = {label.replace(".", "_") for label in LABELS}
    assert set(re.findall(r"\byt_(?!exactly_once)\w+", text)) <= labels
    counters = {name for name in known if not name.endswith(("_bucket", "_count", "_sum"))}
    assert counters <= set(re.findall(r"\byt_exactly_once_\w+", "\n".join(EXPRESSIONS)))


def test_every_alert_has_a_case():
    assert list(CASES) == ALERTS
    assert len(ALERTS) == len(set(ALERTS))


def test_panels_do_not_overlap():
    """Grafana would move them about."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def promtool(*arguments: Any) -> None:
    """Run Prometheus' own tool; it must be content."""
    program = shutil.which("promtool")
    if program is None:
        assert not os.environ.get("REQUIRE_PROMETHEUS"), "promtool is not installed"
        pytest.skip("promtool is not installed")
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.further
def test_each_alert_fires_in_time_and_none_without_a_cause(tmp_path):
    """By Prometheus' own clock: silent before, firing after, whatever else fires."""

    def case(name: str, given: dict[str, str], which: str, **expected: int) -> dict[str, Any]:
        firing = f'count(ALERTS{{{which}alertstate="firing"}}) or vector(0)'
        return {
            "interval": "1m",
            "name": name,
            "input_series": [{"series": one, "values": values} for one, values in given.items()],
            "promql_expr_test": [
                {
                    "expr": firing,
                    "eval_time": moment,
                    "exp_samples": [{"labels": "{}", "value": count}],
                }
                for moment, count in expected.items()
            ],
        }

    tests = [
        case(alert, given, f'alertname="{alert}",', **{silent: 0, fires: 1})
        for alert, (given, silent, fires) in CASES.items()
    ]
    tests.append(case("nothing is wrong", QUIET, "", **{"50m": 0}))
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}), encoding="utf-8")
    promtool("test", "rules", file)


@pytest.mark.further
def test_expressions_of_rules_and_board_are_valid(tmp_path):
    """Prometheus reads the board's as recording rules."""
    promtool("check", "rules", RULES)
    rules = [
        {"record": f"panel_{number}", "expr": one.replace("$__rate_interval", "5m")}
        for number, one in enumerate(EXPRESSIONS)
    ]
    file = tmp_path / "board.yml"
    groups = [{"name": "board", "rules": rules}]
    file.write_text(json.dumps({"groups": groups}), encoding="utf-8")
    promtool("check", "rules", file)
