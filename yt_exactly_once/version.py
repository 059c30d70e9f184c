"""The version of this package, as everything that travels to other processes has it."""

VERSION = "0.1.0"
