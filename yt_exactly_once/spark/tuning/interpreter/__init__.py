"""How Spark's Python processes start: see `sitecustomize`."""
