"""Nexmark: the public queries over streams of an auction site, from queues to tables, under kills.

`python -m benchmarks.nexmark` runs them. The queries, the events and their proportions are those of
https://github.com/nexmark/nexmark, at 6b3646c3.
"""
