"""What can go wrong when a model leaves for another tool."""

from __future__ import annotations

import importlib
from types import ModuleType


class ExportError(ValueError):
    """A model cannot be written in a format; the message says why and what to do."""


class NotAChain(ExportError):
    """A model is not a chain of layers that are known here; the message names the first that is not."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}. What can be written is a chain of layers, see docs/export.md. Rewrite forward() as one; or write "
            "ONNX with dense weights by to_onnx(model, path, example=batch); or take the dense model, wb.to_dense(model)"
        )
        self.reason = reason


def require(package: str, extra: str) -> ModuleType:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ExportError(
            f"this export needs the package {package}, which cannot be imported ({error}): "
            f'pip install "wirebound[{extra}]"'
        ) from error
