"""The command ``wirebound``: one file a subcommand."""

from wirebound.cli.main import main

__all__ = ["main"]
