"""What a session is told when the source is registered."""

from types import SimpleNamespace

from yt_exactly_once import register_source
from yt_exactly_once.spark.source.data_source import QueueDataSource


def session(**context):
    registered = []
    return SimpleNamespace(
        dataSource=SimpleNamespace(register=registered.append), registered=registered, **context
    )


def test_workers_get_the_proxy_and_token_of_the_driver(monkeypatch):
    """Their own environment is that of the JVM, which may have been started before."""
    monkeypatch.setenv("YT_PROXY", "proxy.example:80")
    monkeypatch.delenv("YT_TOKEN", raising=False)
    environment = {"YT_TOKEN": "of-an-earlier-registration", "OTHER": "kept"}
    spark = session(sparkContext=SimpleNamespace(environment=environment))
    register_source(spark)
    assert environment == {"YT_PROXY": "proxy.example:80", "OTHER": "kept"}
    assert spark.registered == [QueueDataSource]


def test_session_without_a_context_is_registered_too():
    """Spark Connect: the server's environment counts there."""
    spark = session()
    register_source(spark)
    assert spark.registered == [QueueDataSource]
