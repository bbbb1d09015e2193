"""The operations that everything stands on: one contract (``backend.py``), and backends that keep it.

``reference`` is plain torch and runs on any device; ``native`` calls the C++ kernels for float32 and float64 on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor

from wirebound.ops import library, work
from wirebound.ops.backend import Backend
from wirebound.ops.layer_shapes import GATES, ConvWindow, Recurrence, RecurrentGradients, Stack, StackLayer, StackWiring
from wirebound.ops.layout import Geometry, LayerIndex
from wirebound.ops.native import NativeBackend
from wirebound.ops.reference.steps import Dormant, draw_in_layers, draw_layers, draw_newborns, replace_
from wirebound.ops.rule import Counts, DriftAndNoise, Rule, RuleKind, State, StepCounts, WiringArrays, numbers

__all__ = [
    "GATES", "Backend", "ConvWindow", "Counts", "Dormant", "DriftAndNoise", "Geometry", "LayerIndex", "Recurrence",
    "RecurrentGradients", "Rule", "RuleKind", "Stack", "StackLayer", "StackWiring", "State",
    "StepCounts", "WiringArrays", "backend_of", "backend_on", "draw_in_layers", "draw_layers", "draw_newborns",
    "native_available", "numbers", "register", "replace_", "unregister", "use",
]  # fmt: skip

_REFERENCE = Backend()
_registered: dict[str, Backend] = {}  # beside the reference, by name; the last is asked first
_only: str | None = None  # the one that ``use`` asks for
_asked: tuple[Backend, ...] = ()  # who follows from both, in the order in which they are asked


def _settle() -> None:
    global _asked
    _asked = tuple(backend for backend in reversed(_registered.values()) if _only is None or _only == backend.name)


def register(backend: Backend) -> None:
    """From now on this backend computes for all tensors that it accepts."""
    if backend.name in _registered or backend.name == _REFERENCE.name:
        raise ValueError(f"the name of the backend (={backend.name!r}) is taken: unregister the other, or rename it")
    _registered[backend.name] = backend
    _settle()


def unregister(name: str) -> None:
    """Take a backend out again."""
    del _registered[name]
    _settle()


@contextmanager
def use(name: str) -> Iterator[None]:
    """Within the block, ops run by the backend of this name where it can, and by the ``"reference"`` elsewhere."""
    global _only
    if name not in (known := {_REFERENCE.name, NativeBackend.name, *_registered}):
        raise ValueError(f"the backend (={name!r}) must be one of {sorted(known)}")
    before, _only = _only, name
    try:
        _settle()
        yield
    finally:
        _only = before
        _settle()


def backend_of(tensor: Tensor) -> Backend:
    """Who computes with θ and activations such as this tensor."""
    for backend in _asked:
        if backend.accepts(tensor):
            break
    else:
        backend = _REFERENCE
    return cast(Backend, work.Counted(backend)) if work.watchers() else backend


def backend_on(device: torch.device) -> Backend:
    """Who draws random numbers and looks at indices on this device."""
    for backend in _asked:
        if backend.draws_on(device):
            return backend
    return _REFERENCE


def native_available() -> bool:
    """Whether the C++ kernels are built and loaded."""
    return library.load() is not None


if native_available():
    register(NativeBackend())
