"""`python -m tests.checkpoints`: kill drivers, gateways and proxies under stateful queries."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import signal
import sys
import tempfile
from pathlib import Path

from tests.checkpoints.campaign import run


def main() -> int:
    """Run a campaign; return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.checkpoints", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="with those of an earlier run")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument(
        "--folder", type=Path, help="for all files, kept; a campaign that was ended goes on there"
    )
    options = parser.parse_args()
    # All processes that it has started end with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run(folder, options.kills, seed, say=lambda line: print(line, flush=True))
    print(json.dumps(dataclasses.asdict(result), indent=2))
    return int(bool(result.violations))


if __name__ == "__main__":
    sys.exit(main())
