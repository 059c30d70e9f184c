"""The demo: real flights, a killed driver, and an independent check.

A parent process owns the embedded cluster. It kills and restarts the child that runs the queries. At the
end it compares the result with its own computation. The child is an ordinary user of the package.
"""
