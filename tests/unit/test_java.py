"""The check for Java: found where Spark looks, and new enough."""

import pytest
from pyspark import SparkContext

from yt_exactly_once import TransactionalSink
from yt_exactly_once.errors import JavaNotFoundError
from yt_exactly_once.spark.compat.java import require_java

_MODERN = 'openjdk version "21.0.4" 2024-07-16'


def _install(directory, text, code=0):
    """Make a `java` in bin/ that prints the text on standard error, as Java does."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize(
    "text", [_MODERN, 'openjdk version "17.0.15" 2025-04-15', 'java version "26-ea" 2026-03-17']
)
def test_java_in_java_home_is_accepted(monkeypatch, tmp_path, text):
    """A new enough runtime under JAVA_HOME is all that is needed."""
    monkeypatch.setenv("JAVA_HOME", str(_install(tmp_path / "jdk", text)))
    require_java()


def test_java_on_path_is_accepted(monkeypatch, tmp_path):
    """Without JAVA_HOME the first java on PATH counts."""
    monkeypatch.setenv("PATH", str(_install(tmp_path / "jdk", _MODERN) / "bin") + ":/bin")
    require_java()


def test_no_java_is_an_error_with_a_remedy():
    """The error says what to install."""
    with pytest.raises(JavaNotFoundError, match="Install Java 17 or newer"):
        require_java()


def test_sink_on_a_machine_without_java_says_so_at_once(monkeypatch):
    """Spark's own error would come later, and say that its gateway has exited."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for variable in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(JavaNotFoundError, match="No Java runtime was found"):
        TransactionalSink("//t", proxy="localhost:1")


@pytest.mark.parametrize(
    "variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT", ""]
)
def test_sink_needs_no_java_where_a_session_runs_or_is_remote(monkeypatch, variable):
    """It is the server's, or it has started already."""
    monkeypatch.setattr(SparkContext, "_gateway", None if variable else object())
    if variable:
        monkeypatch.setenv(variable, "1")
    TransactionalSink("//t", proxy="localhost:1")


def test_java_home_without_java_is_an_error_even_with_java_on_path(monkeypatch, tmp_path):
    """Spark would not look at PATH then, so neither do we."""
    monkeypatch.setenv("PATH", str(_install(tmp_path / "jdk", _MODERN) / "bin") + ":/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "removed"))
    with pytest.raises(JavaNotFoundError, match="JAVA_HOME is set"):
        require_java()


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ('java version "1.8.0_292"', 0, "Java 8 is too old"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "Java 11 is too old"),
        ("Unable to locate a Java Runtime.", 1, "does not start"),
        ("hello", 0, "does not print its version"),
    ],
    ids=["old", "less old", "a stub that says where to download it", "no Java"],
)
def test_java_that_is_old_or_none_is_an_error(monkeypatch, tmp_path, text, code, told):
    """The old and the new way to spell a version are both understood."""
    monkeypatch.setenv("JAVA_HOME", str(_install(tmp_path / "jdk", text, code)))
    with pytest.raises(JavaNotFoundError, match=told):
        require_java()
