"""`python -m tests.soak`: the command line of the soak."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path

from tests.soak.runner import SoakOptions, run


def main(arguments: list[str] | None = None) -> int:
    """Run a soak; return 1 when a promise was broken."""
    usual = SoakOptions()
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__)
    parser.add_argument("--clients", type=int, default=usual.clients)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--processes", type=int, default=usual.processes)
    parser.add_argument("--proxies", type=int, default=usual.proxies)
    parser.add_argument("--kill-probability", type=float, default=usual.kill_probability)
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--json", type=Path, help="file for the report")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    verdict = run(
        SoakOptions(
            clients=options.clients,
            seconds=options.seconds,
            seed=seed,
            processes=options.processes,
            proxies=options.proxies,
            kill_probability=options.kill_probability,
        )
    )
    report = {"violations": verdict.violations, **verdict.numbers}
    print(json.dumps(report, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(
        f"{len(verdict.violations)} promises broken" if verdict.violations else "Every promise kept"
    )
    return int(bool(verdict.violations))


if __name__ == "__main__":
    sys.exit(main())
