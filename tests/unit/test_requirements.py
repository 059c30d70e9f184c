"""What the package requires: libraries whose private parts it uses, in the versions that have these parts."""

import re
import tomllib
from importlib.metadata import metadata, version
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

TEXT = Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
PROJECT = tomllib.loads(TEXT)["project"]


@pytest.mark.parametrize(
    ("name", "next_version"), [("uvicorn", "1.0"), ("ytsaurus-client", "0.14")]
)
def test_library_whose_private_parts_are_used_has_an_upper_bound(name, next_version):
    """The servers extend uvicorn's protocol; requests go through parts of the client without a promise."""
    listed = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    found = [one.specifier for one in map(Requirement, listed) if one.name == name]
    assert found
    for versions in found:
        assert versions.contains(version(name))
        assert not versions.contains(next_version)


@pytest.mark.parametrize("name", ["pandas", "protobuf", "pyarrow"])
def test_library_with_frequent_majors_has_an_upper_bound_or_a_reason_against(name):
    """Nobody should have to guess whether it was forgotten."""
    listed = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    bounds = [one.specifier for one in map(Requirement, listed) if one.name == name]
    reasons = [
        line for line in TEXT.splitlines() if "# No upper bound for" in line and name in line
    ]
    assert reasons or all("<" in str(bound) for bound in bounds)


def test_every_package_is_listed_with_its_licence():
    """Those that a user gets; what compares, measures and tests is on no machine of theirs."""
    page = Path(__file__).parents[2].joinpath("docs/security.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Licences")
    listed = {
        name: licence
        for licence, packages in re.findall(r"^\| ([\w.-]+) \| (`.*) \|$", section, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", packages)
    }
    extras = PROJECT["optional-dependencies"]
    given = [extras[name] for name in extras if name not in {"bench", "test"}]
    names = {Requirement(one).name for one in chain(PROJECT["dependencies"], *given)}
    assert listed.keys() == names - {"yt-exactly-once"}
    for name, licence in listed.items():
        said = metadata(name)
        text = said.get("License-Expression") or said["License"]
        assert licence.partition("-")[0] in text, name
