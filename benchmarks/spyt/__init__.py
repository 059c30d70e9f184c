"""SPYT beside us: the same work on SPYT's unmodified jars and on our sink, on one embedded cluster.

`python -m benchmarks.spyt holes` breaks both in the same ways and counts rows; `speed` measures both in
turns; `report` writes the page from what they left. Versions are pinned in `environments`. What is
needed is installed into a cache folder the first time. SPYT's drivers run on a PySpark of their own,
ours on the one that runs this program; `job` is the driver of both.
"""
