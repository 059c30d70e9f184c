"""Features of the embedded cluster: their names, values, and the way from the command line."""

import json
import subprocess
import sys

import pytest

from yt_exactly_once import cli
from yt_exactly_once.local import LocalCluster, LocalClusterError, features
from yt_exactly_once.local.features import FEATURES


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


def test_unknown_feature_of_the_command_line_is_refused(tmp_path, capsys):
    """Nothing is started."""
    assert cli.main(["local", "--data-dir", str(tmp_path / "d"), "--feature", "strange"]) == 2
    said = capsys.readouterr().err
    assert "no feature 'strange'" in said
    assert "--list-features" in said
    assert not (tmp_path / "d").exists()


def test_feature_of_the_command_line_reaches_the_cluster(tmp_path):
    """A longest lease of two seconds is what a transaction gets."""
    command = [sys.executable, "-m", "yt_exactly_once", "local", "--port", "0", "--data-dir"]
    command += [str(tmp_path), "--feature", "max_master_transaction_timeout_seconds=2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[-1]
            script = (
                "import sys; from yt.wrapper import YtClient;"
                "c = YtClient(sys.argv[1], config={'token': '', 'enable_token': False});"
                "print(c.get(f'#{c.start_transaction(timeout=9000)}/@timeout'))"
            )
            found = subprocess.run(
                [sys.executable, "-c", script, url], capture_output=True, text=True, check=True
            )
        finally:
            process.terminate()
    assert found.stdout.strip() == "2000"


def test_master_lease_is_cut_to_an_hour(client):
    """As masters do unless they are configured otherwise."""
    for asked, granted in ((7_200_000, 3_600_000), (10_000, 10_000)):
        transaction_id = client.start_transaction(timeout=asked)
        assert client.get(f"#{transaction_id}/@timeout") == granted
        client.abort_transaction(transaction_id)
