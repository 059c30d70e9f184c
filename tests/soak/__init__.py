"""Soak of the embedded cluster: many clients at once, faults of every kind, and every row accounted for.

`python -m tests.soak --clients 200 --seconds 60` runs clients in several processes against one
cluster, spoils requests by seeded rules, kills proxies, and at the end compares what the cluster holds
with what each client was told.
"""
