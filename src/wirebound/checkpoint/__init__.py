"""Keeping training on disk: one file, safetensors and JSON, no pickle, written atomically (``docs/format.md``)."""

from wirebound.checkpoint.atomic import WriteError
from wirebound.checkpoint.container import CheckpointError
from wirebound.checkpoint.save_load import VERSION, Checkpoint, load, save

__all__ = ["VERSION", "Checkpoint", "CheckpointError", "WriteError", "load", "save"]
