"""The demo: real flights, a killed driver, and a check that trusts nobody.

A parent process owns the embedded cluster, kills and restarts the child that runs the queries, and
compares the result with a computation of its own. The child is an ordinary user of the package.
"""
