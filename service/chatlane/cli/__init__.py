"""The command line: `chatlane --help`."""

from chatlane.cli.commands import main

__all__ = ["main"]
