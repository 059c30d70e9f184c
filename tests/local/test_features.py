"""Features of the embedded cluster: their names and values."""

import json

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
