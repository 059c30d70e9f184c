"""Types of command line arguments that several benchmarks take."""

from __future__ import annotations

from argparse import ArgumentTypeError


def positive(text: str) -> int:
    """Parse a whole number above zero.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) == 0:
        message = f"{text!r} is not a whole number above zero"
        raise ArgumentTypeError(message)
    return int(text)
