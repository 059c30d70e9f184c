"""What the command line shows and does, as functions for Python programs: no arguments, no output."""
