"""How long a query takes from `start()` to its first commit, beside what Spark itself takes.

`python -m benchmarks.start` measures. `--beside PATH` measures another checkout of this package in turns.
"""
