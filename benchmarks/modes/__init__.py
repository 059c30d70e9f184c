"""What each delivery mode costs, against the floor, against the limit, and against what else people use.

`python -m benchmarks.modes` runs the three modes on the same work in one process, in turns of one
micro-batch each, so that whatever drifts hits all alike. The floor is Spark's `noop` sink, the limit a
bare `ytsaurus-client` loop that inserts the same rows, encoded before. The full cross product of all
dimensions would take days: there is one base point, and every other point differs from it, or from the
base point of its family, in one dimension.
"""
