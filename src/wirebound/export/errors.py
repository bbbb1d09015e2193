"""What can go wrong when a model leaves for another tool."""

from __future__ import annotations

import importlib
from types import ModuleType


class ExportError(ValueError):
    """A model cannot be written in a format; the message says why and what to do."""


def require(package: str, extra: str) -> ModuleType:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ExportError(
            f"this export needs the package {package}, which cannot be imported ({error}): "
            f'pip install "wirebound[{extra}]"'
        ) from error
