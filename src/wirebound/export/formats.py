"""The formats that ``wirebound export --to NAME`` can write; a new one is its own file and a line here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from wirebound.export.to_c import CHOICES, to_c
from wirebound.export.to_nir import to_nir
from wirebound.export.to_onnx import to_onnx
from wirebound.export.to_pynn import to_pynn
from wirebound.export.to_scipy import to_scipy


class Option(NamedTuple):
    """One setting of a format: a flag if its default is False, one of ``choices`` if it has some."""

    name: str
    default: Any
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True)
class Format:
    """How a network becomes files: ``write(network, path, **settings)``."""

    write: Callable[..., Any]
    folder: bool  # it writes a folder, not one file
    extra: str | None  # pip install "wirebound[EXTRA]" brings the package that it needs
    settings: tuple[str, ...] = ()  # arguments of ``write`` that the command offers
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of settings that have some

    def options(self) -> list[Option]:
        """The settings with the defaults of the function and the sentences of its docstring."""
        parameters, text = inspect.signature(self.write).parameters, inspect.getdoc(self.write) or ""
        found = []
        for name in self.settings:
            said = re.search(rf"^ +{name}: (.*)\.$", text, re.MULTILINE)
            choices = self.choices.get(name, ())
            found.append(Option(name, parameters[name].default, choices, said.group(1).replace("`", "") if said else ""))
        return found


FORMATS: dict[str, Format] = {
    "scipy": Format(to_scipy, folder=True, extra="lab"),
    "onnx": Format(to_onnx, folder=False, extra="onnx", settings=("dense", "softmax")),
    "nir": Format(to_nir, folder=False, extra="nir"),
    "pynn": Format(to_pynn, folder=True, extra=None, settings=("delay", "gain", "conductance")),
    "c": Format(to_c, folder=False, extra=None, settings=("weights", "scales", "name"), choices=CHOICES),
}
