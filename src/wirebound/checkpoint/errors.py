"""What can go wrong with a file that keeps training."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint cannot be used, or its content cannot be kept; the message says the rule and what to do."""


class WriteError(OSError):
    """A file could not be written; whatever had its name before is whole. The message says what to do."""
