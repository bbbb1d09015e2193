"""The command ``wirebound``: one file a subcommand."""

from wirebound_lab.cli.main import main

__all__ = ["main"]
