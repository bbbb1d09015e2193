"""The operations that everything stands on: one contract (``backend.py``), and backends that keep it.

``native`` calls the C++ kernels for float32 and float64 on the CPU; ``reference`` is plain torch for everything else on the
CPU, and what others are tested against; ``device`` is plain torch that never waits, for all other devices.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from wirebound.ops import library, work
from wirebound.ops.backend import Backend
from wirebound.ops.device import DeviceBackend
from wirebound.ops.layer_shapes import (
    GATES,
    ConvWindow,
    CsrRows,
    Recurrence,
    RecurrentGradients,
    Stack,
    StackLayer,
    StackWiring,
)
from wirebound.ops.layout import Geometry, LayerIndex
from wirebound.ops.native import NativeBackend
from wirebound.ops.reference.open_columns import OpenColumns, dormant_counts, draw_in_open
from wirebound.ops.reference.steps import Dormant, draw_in_layers, draw_layers, draw_newborns, replace_
from wirebound.ops.rule import Counts, DriftAndNoise, Rule, RuleKind, State, StepCounts, WiringArrays, numbers

__all__ = [
    "GATES", "Backend", "ConvWindow", "Counts", "CsrRows", "Dormant", "DriftAndNoise", "Geometry", "LayerIndex", "OpenColumns", "Recurrence",
    "RecurrentGradients", "Rule", "RuleKind", "Stack", "StackLayer", "StackWiring", "State",
    "StepCounts", "WiringArrays", "backend_behind", "backend_of", "backend_on", "dormant_counts", "draw_in_layers", "draw_in_open", "draw_layers", "draw_newborns",
    "native_available", "numbers", "register", "replace_", "unregister", "use", "whole_wirings",
]  # fmt: skip

_REFERENCE, _DEVICE = Backend(), DeviceBackend()
_registered: dict[str, Backend] = {}  # beside the reference, by name; the last is asked first
_only: str | None = None  # the one that ``use`` asks for
_asked: tuple[Backend, ...] = ()  # who follows from both, in the order in which they are asked


def _settle() -> None:
    global _asked
    _asked = tuple(backend for backend in reversed(_registered.values()) if _only is None or _only == backend.name)
    _DEVICE.everywhere = _only == _DEVICE.name


def register(backend: Backend) -> None:
    """From now on this backend computes for all tensors that it accepts."""
    if backend.name in _registered or backend.name in (_REFERENCE.name, _DEVICE.name):
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
    if name not in (known := {_REFERENCE.name, _DEVICE.name, NativeBackend.name, *_registered}):
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
        backend = _DEVICE if _DEVICE.accepts(tensor) else _REFERENCE
    return cast(Backend, work.Counted(backend)) if work.watchers() else backend


def backend_behind(tensor: Tensor) -> Backend:
    """Who computes with tensors that this one, which may be fake, stands for."""
    if not (tensor.is_cpu and isinstance(tensor, FakeTensor)):
        return backend_of(tensor)
    with _disable_current_modes():
        return backend_of(torch.empty(0, dtype=tensor.dtype, device="cpu"))


def backend_on(device: torch.device) -> Backend:
    """Who draws random numbers and looks at indices on this device."""
    for backend in _asked:
        if backend.draws_on(device):
            return backend
    return _DEVICE if _DEVICE.draws_on(device) else _REFERENCE


def whole_wirings(theta: Tensor) -> bool:
    """Whether layers with this θ come with the arrays of their whole wiring (``Backend.takes_whole_wirings``)."""
    kind = type(theta)
    if theta.is_cpu and (kind is nn.Parameter or kind is Tensor) and not _DEVICE.everywhere:
        return False  # quick: every call of a layer asks
    return backend_of(theta).takes_whole_wirings


def native_available() -> bool:
    """Whether the C++ kernels are built and loaded."""
    return library.load() is not None


if native_available():
    register(NativeBackend())
