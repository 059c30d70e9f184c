"""Static tables: their rows in chunks, and how rows are appended or replaced."""
