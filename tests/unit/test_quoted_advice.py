"""Commands that people are told to run: no path or name becomes a part of the command.

A row of a target that names its tables may bring any name. Who copies the command of an error runs it.
"""

import inspect
import shlex
from shlex import quote

import pytest
from yt import yson

from yt_exactly_once import advice
from yt_exactly_once.commit.claims import KEPT

NASTY = "//home/a b; reboot #'$(x)`y`\"|"
FUNCTIONS = {
    name: one
    for name, one in vars(advice).items()
    if inspect.isfunction(one) and one.__module__ == advice.__name__
}
GIVEN = {
    "state": "unmounted",
    "columns": {},
    "user": "ann",
    "permission": "read",
    "tablets": 2,
    "duration": KEPT,
}
NUMBERS = {"int": 3, "bool": True}


@pytest.mark.parametrize("user", ["robot-1", "ann@corp.org", "7up", "o'hara; reboot"])
def test_user_is_one_name_to_the_shell_and_in_yson(user):
    """Names come from directories, with characters that YSON takes in quotes alone."""
    _, _, command = advice.grant(user, "read", "//t").partition("runs: ")
    *start, entry = shlex.split(command)
    assert start == ["yt", "set", "//t/@acl/end"]
    assert yson.loads(entry.encode())["subjects"] == [user]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_command_quotes_what_others_have_named(name):
    """Whatever is left of the text without the quoted names is of this package."""
    function, given = FUNCTIONS[name], {}
    for parameter in inspect.signature(function).parameters.values():
        kind = NUMBERS.get(parameter.annotation, NASTY)
        value = GIVEN.get(parameter.name, {} if "Mapping" in parameter.annotation else kind)
        given[parameter.name] = value
    for columns in ({}, [{"name": "queue_path"}]) if "columns" in given else ({},):
        given |= {"columns": columns} if "columns" in given and name == "not_a_consumer" else {}
        text = function(**given)
        for end in ("", "_consumer", "/@acl/end"):
            text = text.replace(quote(f"{NASTY}{end}"), "")
        text = text.replace(repr(NASTY), "")
        # A sentence may name a path besides.
        commands = [part for part in text.split("run: ") if part.startswith("yt")] or [text]
        assert "reboot" not in "".join(commands), text
