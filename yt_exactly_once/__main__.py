"""`python -m yt_exactly_once` is the command `yt-exactly-once`."""

from __future__ import annotations

import sys

from yt_exactly_once.cli import main

if __name__ == "__main__":
    sys.exit(main())
