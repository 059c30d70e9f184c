"""What `yt-exactly-once local` takes: faults that are given, recorded and replayed, features, and a token."""

import contextlib
import json
import re
import subprocess
import sys

import pytest
from yt.wrapper import YtClient
from yt.wrapper.errors import YtTokenError

from tests.local.test_faults import attempts
from yt_exactly_once import cli
from yt_exactly_once.local import LocalCluster, LocalClusterError, faults, features
from yt_exactly_once.local.features import FEATURES

COMMAND = [sys.executable, "-m", "yt_exactly_once", "local", "--port", "0"]


@contextlib.contextmanager
def _served(data_dir, *flags):
    process = subprocess.Popen(
        [*COMMAND, "--data-dir", str(data_dir), *map(str, flags)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1]
        yield YtClient(
            proxy=url,
            config={"token": "", "enable_token": False, "proxy": {"retries": {"enable": False}}},
        )
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_faults_are_given_recorded_and_replayed(tmp_path):
    """A failing run can be had again, as a file."""
    plan = tmp_path / "plan.json"
    fault = "error,command=set,count=null,probability=0.4,seed=3"
    with _served(tmp_path / "a", "--fault", fault, "--record-faults", plan) as client:
        first = attempts(client, "//tmp", 16)
    assert {".", "x"} == set(first)
    recorded = json.loads(plan.read_text())
    assert [rule["after"] for rule in recorded] == [n for n, c in enumerate(first) if c == "x"]
    # The directory still holds the rules of the first run; those of the command line replace them.
    with _served(tmp_path / "a", "--replay-faults", plan) as client:
        assert attempts(client, "//tmp", 16) == first


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("delay", {"action": "delay"}),
        (
            "error,command=get,code=901,message=Access denied,count=null",
            {
                "action": "error",
                "command": "get",
                "code": 901,
                "message": "Access denied",
                "count": None,
            },
        ),
        (
            "hold,seconds=0.5,match.path=//tmp/x,match.recursive=true",
            {"action": "hold", "seconds": 0.5, "match": {"path": "//tmp/x", "recursive": True}},
        ),
    ],
)
def test_rule_is_read_from_text(text, rule):
    """Values are JSON where they can be."""
    assert faults.from_text(text) == rule


@pytest.mark.parametrize(
    ("flag", "value", "content", "said"),
    [
        *(("--fault", text, None, "--fault") for text in ("error,code", "error,=1", "error,")),
        *(("--replay-faults", "plan.json", text, "plan.json") for text in (None, "{", "{}")),
        ("--feature", "strange", None, r"no feature 'strange'(?s:.*)--list-features"),
    ],
)
def test_what_is_malformed_is_refused_before_anything_starts(
    capsys, tmp_path, monkeypatch, flag, value, content, said
):
    """With the flag, the file, or what there is."""
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / value).write_text(content)
    assert cli.main(["local", "--data-dir", str(tmp_path / "d"), flag, value]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not (tmp_path / "d").exists()


def test_feature_of_the_command_line_reaches_the_cluster(tmp_path):
    """A longest lease of two seconds is what a transaction gets."""
    feature = "max_master_transaction_timeout_seconds=2"
    with _served(tmp_path, "--feature", feature) as client:
        assert client.get(f"#{client.start_transaction(timeout=9000)}/@timeout") == 2000


def test_unknown_fault_is_refused(capsys, tmp_path):
    """The cluster knows which faults there are, and says so."""
    arguments = ["local", "--data-dir", str(tmp_path / "d"), "--port", "0", "--fault", "explode"]
    assert cli.main(arguments) == 2
    assert 'Unknown fault action "explode"; known: delay' in capsys.readouterr().err


def test_token_comes_from_a_file_and_is_in_no_command_line(tmp_path):
    """Every user of the machine can read the words of a command."""
    file = tmp_path / "token"
    with _served(tmp_path / "a", "--token-file", file) as client:
        token = file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600
        with pytest.raises(YtTokenError, match="credentials"):
            client.exists("/")
        client.config["token"] = token
        client.config["enable_token"] = True
        assert client.exists("/")
        assert token not in subprocess.check_output(["ps", "axww"], text=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"producer_regres_on_skipped": True}, "did you mean producer_regress_on_skipped"),
        ({"strange": 1}, f"The features are {', '.join(FEATURES)}"),
        ({"producer_regress_on_skipped": 1}, "true or false"),
        ({"visibility_delay_seconds": -1}, "0 or more"),
        ({"visibility_delay_seconds": float("nan")}, "0 or more"),
        ({"visibility_delay_seconds": "soon"}, "a number of seconds"),
        ({"random_tablet_seed": 1.5}, "an integer"),
    ],
)
def test_impossible_feature_is_refused(given, message):
    """The error names what there is, or what would fit."""
    with pytest.raises(LocalClusterError, match=message):
        LocalCluster(features=given)


def test_features_are_read_from_words():
    """Values are JSON, and a name alone switches a flag on."""
    words = ["producer_regress_on_skipped", "visibility_delay_seconds=2", "random_tablet_seed=null"]
    assert features.parse(words) == {
        "producer_regress_on_skipped": True,
        "visibility_delay_seconds": 2.0,
        "random_tablet_seed": None,
    }


def test_features_are_listed(capsys):
    """Every one with its default."""
    assert cli.main(["local", "--list-features"]) == 0
    listed = capsys.readouterr().out
    for feature in FEATURES.values():
        assert f"{feature.name}={json.dumps(feature.default)}\n" in listed
