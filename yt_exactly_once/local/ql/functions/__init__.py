"""Functions of the query language: signatures, implementations and their way into SQLite."""
