"""The contract between layers, wirings and methods on one side and whoever computes for them on the other.

A backend is an object. Callers ask ``ops.backend_of(tensor)`` for it and call its methods; nothing else in the library
knows which one it is. ``Backend`` itself is the reference: plain torch on any device (``reference/``), with the docstrings
that the others keep. To add one, subclass it, replace what is faster, and ``ops.register`` it.

Forward passes on the CPU refuse a θ < 0 that is bound to its sign (``faults.require_active``); elsewhere asking would wait
for the device, and ``Wiring.layer_theta`` has already read it as 0. Results stay where the tensors are. Counts may be
lists or tensors on any device, so that no step has to wait for a copy to the host: whoever wants numbers calls
``ops.numbers``. While torch counts FLOPs, callers get the backend wrapped in ``work.Counted``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.layer_shapes import Stack, StackLayer, StackWiring
from wirebound.ops.layout import Geometry
from wirebound.ops.reference.conv import ReferenceConv
from wirebound.ops.reference.recurrent import ReferenceRecurrent
from wirebound.ops.reference.rewire import ReferenceRewire


class Backend(ReferenceConv, ReferenceRecurrent, ReferenceRewire):
    """Everything that is computed for sparse layers, their wirings and their methods."""

    name = "reference"
    has_stack = False  # ``stack`` may be called for what it accepts in float32
    has_fused_steps = False  # the engine may take whole stretches of training in its library

    def accepts(self, tensor: Tensor) -> bool:
        """Whether it computes with θ and activations such as this one."""
        return True

    def draws_on(self, device: torch.device) -> bool:
        """Whether it draws random numbers and looks at indices on this device."""
        return True

    def stack(self, wirings: Sequence[StackWiring], layers: Sequence[StackLayer]) -> Stack:
        """Sparse layers that follow each other, for one call forward and one backward."""
        raise NotImplementedError(f"the {self.name} backend runs layers one after another")

    # Random numbers by name, and questions about arrays.

    def normals(self, seed: int, stream: int, step: int, count: int, device: torch.device) -> Tensor:
        """The first ``count`` standard normals of a stream, float32."""
        return philox.normals(seed, stream, step, count, device)

    def negative_signs(self, positions: Tensor, seed: int, wiring_index: int) -> Tensor:
        """Whether the constant sign of each position is -1."""
        return philox.negative_signs(positions, seed, wiring_index)

    def sample_sorted(self, n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
        """k distinct numbers of [0, n), every subset equally likely, sorted."""
        return philox.sample_sorted(n, k, seed, stream, step, device)

    def all_finite(self, values: Tensor) -> bool:
        """Whether no number is infinite or NaN."""
        return bool(torch.isfinite(values).all())

    def index_is_good(self, geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool | None:
        """Whether packed_rows and colptr, of the right types and lengths, are an index of ``budget`` connections in these
        matrices; None if it has no quick way to tell: ``wiring/fault.py`` then looks, and says what is wrong."""
        return None
