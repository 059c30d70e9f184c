"""Explores every scenario and prints what was found: `python -m tests.model [deep] [part of a name]`.

The last lines are totals per mode.
"""

import sys
import time
from collections import Counter, defaultdict

from tests.model.explore import Explorer
from tests.model.scenarios import ALL, bounded


def main(arguments: list[str]) -> None:
    deep = "deep" in arguments
    wanted = [argument for argument in arguments if argument != "deep"]
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for scenario in ALL:
        if not wanted or any(part in scenario.name for part in wanted):
            began = time.process_time()
            report = Explorer(bounded(scenario, deep=deep)).explore()
            sys.stdout.write(f"{report}\n")
            sys.stdout.flush()
            totals[scenario.mode].update(
                scenarios=1,
                states=report.states,
                executions=report.executions,
                milliseconds=round(1_000 * (time.process_time() - began)),
            )
    for mode, total in totals.items():
        sys.stdout.write(
            f"{mode}: {total['scenarios']} scenarios, {total['states']:,} states, "
            f"{total['executions']:,} executions, {total['milliseconds'] / 1_000:.1f} s of CPU\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
