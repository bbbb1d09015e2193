"""Trained networks for other tools: each format writes the K connections of a chain of layers (ONNX: any model)."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wirebound.export.layers import Conv, ExportError, Layer, Network, Pool
from wirebound.export.network import read_network
from wirebound.export.to_c import CHOICES, CHeader, to_c
from wirebound.export.to_c_trainer import TRAINER_CHOICES, Trainer, to_c_trainer, write_trainer
from wirebound.export.to_nir import to_nir
from wirebound.export.to_onnx import to_onnx
from wirebound.export.to_pynn import Projection, projections, read_projections, to_pynn
from wirebound.export.to_scipy import to_scipy

__all__ = [
    "FORMATS", "CHeader", "Conv", "ExportError", "Format", "Layer", "Network", "Pool", "Projection", "Trainer", "projections",
    "read_network", "read_projections", "to_c", "to_c_trainer", "to_nir", "to_onnx", "to_pynn", "to_scipy", "write_trainer",
]  # fmt: skip


@dataclass(frozen=True)
class Format:
    """How a network becomes files: ``write(network, path, **settings)``; a model instead, for those ``of_model``."""

    write: Callable[..., Any]
    folder: bool  # it writes a folder, not one file
    extra: str | None  # pip install "wirebound[EXTRA]" brings the package that it needs
    settings: tuple[str, ...] = ()  # arguments of ``write`` that the command offers
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of settings that have some
    of_model: bool = False  # it needs what a network has no place for: budgets, and how they began

    def options(self) -> list[tuple[str, Any, tuple[str, ...], str]]:
        """Each setting with its default, its choices (or none) and the sentence of the function's docstring."""
        parameters, text = inspect.signature(self.write).parameters, inspect.getdoc(self.write) or ""
        said = dict(re.findall(r"^ +(\w+): (.*)\.$", text.replace("`", ""), re.MULTILINE))
        return [(n, parameters[n].default, self.choices.get(n, ()), said.get(n, "")) for n in self.settings]


# What ``wirebound export --to NAME`` can write; a new format is its own file and a line here.
FORMATS: dict[str, Format] = {
    "scipy": Format(to_scipy, folder=True, extra="lab"),
    "onnx": Format(to_onnx, folder=False, extra="onnx", settings=("dense", "softmax")),
    "nir": Format(to_nir, folder=False, extra="nir"),
    "pynn": Format(to_pynn, folder=True, extra=None, settings=("delay", "gain", "conductance")),
    "c": Format(to_c, folder=False, extra=None, settings=("weights", "scales", "name"), choices=CHOICES),
    "c-trainer": Format(
        to_c_trainer, folder=True, extra=None, settings=("numbers", "freeze", "lr", "l1"), choices=TRAINER_CHOICES, of_model=True
    ),
}
