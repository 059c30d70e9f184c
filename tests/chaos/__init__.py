"""Chaos: everything that can break, breaks at random, and at the end every row is accounted for.

`python -m tests.chaos --minutes 45 --mode all` runs drivers with several queries each against the
embedded cluster, spoils requests, kills and stops processes by a seeded plan, and compares every target
with a computation of its own. Nothing of the package under test takes part in the comparison.
"""
