"""`python -m tests.machines`: kill executors, workers, drivers, gateways and proxies."""

import argparse
import json
import secrets
import signal
import sys
import tempfile
from pathlib import Path

from tests.machines.campaign import USUAL, run
from tests.machines.stage import BY_TASKS, FLOWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.machines", description=__doc__)
    for blow, count in USUAL.items():
        option = f"--{blow.split()[0]}"
        parser.add_argument(option, type=int, default=count, dest=blow, help="how often")
    parser.add_argument("--by-tasks", action="store_true", help="queries whose tasks send the rows")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--folder", type=Path, help="for all files, kept; default: a temporary one")
    options = vars(parser.parse_args())
    # All processes that it has started end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = secrets.randbelow(1 << 31) if options["seed"] is None else options["seed"]
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options["folder"] or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        blows = {blow: options[blow] for blow in USUAL}
        flows = BY_TASKS if options["by_tasks"] else FLOWS
        result = run(folder, blows, seed, flows, say=lambda line: print(line, flush=True))
    print(json.dumps(result.as_json(), indent=2))
    return int(bool(result.violations))


if __name__ == "__main__":
    sys.exit(main())
