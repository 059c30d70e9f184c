"""Configuration: what is impossible fails when the object is built, and secrets stay secret."""

import pickle
from datetime import timedelta

import pytest

from yt_exactly_once.config import ClusterConfig, RetryPolicy, Secret
from yt_exactly_once.errors import ConfigError


def test_missing_proxy_names_the_variable_to_set(monkeypatch):
    """The first thing a newcomer forgets must be said in words."""
    monkeypatch.delenv("YT_PROXY", raising=False)
    with pytest.raises(ConfigError, match="YT_PROXY"):
        ClusterConfig.resolve()


@pytest.mark.parametrize("proxy", ["cluster:1x", "https://cluster:99999", "[::1"])
def test_address_that_is_none_is_refused(proxy):
    """Before anything is asked."""
    with pytest.raises(ConfigError, match="The proxy address is none"):
        ClusterConfig(proxy=proxy)


def test_environment_fills_in_proxy_and_token(monkeypatch):
    """The two variables of every YTsaurus tool are honoured, and what is written in the code wins."""
    monkeypatch.setenv("YT_PROXY", "cluster:80")
    monkeypatch.setenv("YT_TOKEN", "sesame")
    config = ClusterConfig.resolve()
    assert (config.proxy, config.token) == ("cluster:80", Secret("sesame"))
    assert ClusterConfig.resolve("here").proxy == "here"


def test_token_is_never_shown():
    """A configuration may be logged as a whole."""
    config = ClusterConfig(proxy="p", token=Secret("sesame"))
    assert "sesame" not in repr(config)
    assert "sesame" not in str(config)
    assert pickle.loads(pickle.dumps(config)).token.reveal() == "sesame"


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"deadline": timedelta(seconds=-1)}, {"max_wait": timedelta(seconds=-1)}],
)
def test_impossible_retry_policy_is_refused(options):
    """A policy that could never attempt anything is a mistake."""
    with pytest.raises(ConfigError):
        RetryPolicy(**options)


@pytest.mark.parametrize(
    "build",
    [lambda: RetryPolicy(deadline=600), lambda: ClusterConfig(proxy="p", request_timeout=20)],
    ids=["retry", "cluster"],
)
def test_duration_without_a_unit_is_refused(build):
    """With an example of one that is taken."""
    with pytest.raises(ConfigError, match=r"not a duration\. Pass a datetime\.timedelta"):
        build()
