"""Explores every scenario and prints what was found: `python -m tests.model [deep] [part of a name]`."""

from __future__ import annotations

import sys

from tests.model.explore import Explorer
from tests.model.scenarios import ALL, bounded


def main(arguments: list[str]) -> None:
    """Explore, one scenario after another."""
    deep = "deep" in arguments
    wanted = [argument for argument in arguments if argument != "deep"]
    for scenario in ALL:
        if not wanted or any(part in scenario.name for part in wanted):
            report = Explorer(bounded(scenario, deep=deep)).explore()
            sys.stdout.write(f"{report}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
