"""One declaration for each option: where it belongs, what it means, and how a text becomes its value.

An option is a field of a frozen dataclass, which `Group.option` makes. From there come the docstrings of the
classes, the options of the format `yt`, options of the command line, and the tables of the docs.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from yt_exactly_once.errors import ConfigError

if TYPE_CHECKING:
    Reader = Callable[[str, str], Any]
    """Takes the name of an option and its text, and returns the value or raises a `ConfigError`."""

T = TypeVar("T")

_METADATA = "option"

_TYPING_ERROR = 0.85
"""How much of two texts must agree; `exactly-once` and `at-least-once` agree in 0.64."""


class Group(StrEnum):
    """What an option is about; the docs have a table for each."""

    WHERE = "Where"
    WHAT = "What"
    HOW = "How"
    LIMITS = "Limits"

    def metadata(self, meaning: str, **more: Any) -> dict[str, Option]:
        """Return the metadata of a dataclass field that is an option of this group, which must be given."""
        return Option(self, meaning, **more).metadata

    def option(self, meaning: str, *, default: Any = None, shown: bool = True, **more: Any) -> Any:
        """Return a dataclass field that is an option of this group.

        Args:
            shown: whether the `repr` of the class shows it.
            **more: see `Option`.
        """
        return field(default=default, repr=shown, metadata=self.metadata(meaning, **more))


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its name, type and default.

    Attributes:
        group: what it is about.
        meaning: one or two short sentences.
        values: all texts that it takes, with what they do; empty if it takes others too.
        more: what one has to know besides.
        default_text: the default for people, where it is none of the values.
        read: makes a value of a text, where the type alone does not say how.
        only_python: why a text cannot give it; empty if one can.
        otherwise: what it takes besides `values`, for an error.
        meant: what people write, and the value that they mean by it.
    """

    group: Group
    meaning: str
    values: Mapping[str, str] = field(default_factory=dict)
    more: str = ""
    default_text: str = ""
    read: Reader | None = None
    only_python: str = ""
    otherwise: str = ""
    meant: Mapping[str, str] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, Option]:
        """Metadata of a dataclass field that is this option."""
        return {_METADATA: self}


def options_of(declared: type) -> dict[str, Option]:
    """Return the options that a class declares, in their order."""
    return {
        each.name: each.metadata[_METADATA]
        for each in fields(declared)
        if _METADATA in each.metadata
    }


def documented(declared: type[T]) -> type[T]:
    """Add the options of a dataclass to its docstring."""
    lines = [declared.__doc__ or "", "\nAttributes:"]
    for name, known in options_of(declared).items():
        lines.append(f"    {name}: {' '.join(filter(None, (known.meaning, known.more)))}")
        lines += [f"        `{value}`: {does}" for value, does in known.values.items()]
    declared.__doc__ = "\n".join(lines)
    return declared


def check_values(given: Any, **where: Any) -> None:
    """Check that the options of an object have values that are possible for them.

    Raises:
        ConfigError: one has not.
    """
    for name, known in options_of(type(given)).items():
        value = getattr(given, name)
        if known.values and isinstance(value, str) and value not in known.values:
            text = value.lower().replace("_", "-")
            near = known.meant.get(text) or _misspelt(text, known.values)
            hint = f"Did you mean {near}? " if near else ""
            raise ConfigError(
                f"Unknown {name} {value!r}",
                remedy=f"{hint}Use one of: {', '.join(filter(None, [*known.values, known.otherwise]))}",
                option=name,
                **where,
            )


def _misspelt(text: str, values: Iterable[str]) -> str:
    """Return the value with a typing error or two; what only looks like it may promise the opposite."""
    return next(iter(difflib.get_close_matches(text, values, 1, _TYPING_ERROR)), "")


def given(options: Any) -> dict[str, Any]:
    """Return the options that are not as by default, by name; without those that `repr` does not show."""
    named = {one.name: one.default for one in fields(options) if one.repr}
    optional = {name: default for name, default in named.items() if default is not MISSING}
    return {
        name: getattr(options, name)
        for name, default in optional.items()
        if getattr(options, name) != default
    }


def read_texts(declared: type, given: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """Return the values of the options of a class that are given as texts.

    Args:
        given: texts by the names of options; others are left out.

    Raises:
        ConfigError: a text is malformed, or an option cannot be given as text.
    """
    found = {}
    types = {each.name: str(each.type) for each in fields(declared)}
    for name, known in options_of(declared).items():
        called = prefix + name
        if called not in given:
            continue
        if known.only_python:
            raise ConfigError(
                f"{called} cannot be given as text: {known.only_python}",
                remedy="Use writeStream.foreachBatch(TransactionalSink(...))",
                option=called,
            )
        kind = types[name].removesuffix(" | None")
        read = known.read or _READERS.get(kind, read_text)
        found[name] = read(called, given[called].strip())
    return found


def require_known(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Check the names of options.

    Args:
        what: takes them, for the message.

    Raises:
        ConfigError: there is no option of such a name.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        # The values stay out of the message: a misspelt `token` is a token nevertheless.
        near = {name: difflib.get_close_matches(name, known, n=1) for name in unknown}
        hints = [
            f"Did you mean {names[0]}? Use it instead of {name}"
            for name, names in near.items()
            if names
        ]
        if len(hints) < len(unknown):
            hints.append(f"The options are: {', '.join(known)}")
        raise ConfigError(
            f"{what} has no option {' and no option '.join(unknown)}",
            remedy=". ".join(hints),
            option=unknown[0],
        )


def read_text(name: str, text: str) -> str:
    """Return a text that is not empty."""
    if not text:
        raise ConfigError(
            f"The option {name} is empty", remedy="Give a value, or leave it out", option=name
        )
    return text


def read_boolean(name: str, text: str) -> bool:
    """Return `true` or `false` as a value."""
    if text.lower() not in _BOOLEANS:
        raise ConfigError(
            f"{name}={text!r} is neither true nor false", remedy="Use true or false", option=name
        )
    return _BOOLEANS[text.lower()]


def read_number(name: str, text: str) -> int:
    """Return a positive whole number."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ConfigError(
            f"{name}={text!r} is not a positive whole number",
            remedy="Give a number of 1 or more, or leave the option out for its default",
            option=name,
        )
    return int(text)


def read_duration(name: str, text: str) -> timedelta:
    """Return a number with a unit as a duration."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{name}={text!r} is not a duration",
            remedy="Give a number with its unit: 500ms, 30s, 5min",
            option=name,
        )
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def read_names(_name: str, text: str) -> tuple[str, ...]:
    """Return names, which commas separate."""
    return tuple(each.strip() for each in text.split(","))


def read_object(name: str, text: str) -> dict[str, Any]:
    """Return a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # The value stays out of the message: it may hold a token.
        raise ConfigError(
            f"{name} is not a JSON object", remedy="Write it as '{\"key\": ...}'", option=name
        )
    return value


_BOOLEANS = {"true": True, "false": False}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}

_READERS: dict[str, Reader] = {
    "bool": read_boolean,
    "int": read_number,
    "timedelta": read_duration,
    "Mapping[str, Any]": read_object,
    "Sequence[str]": read_names,
}
"""By the type of an option, as its class writes it; all others are texts."""
