"""The contract between layers, wirings and methods on one side and whoever computes for them on the other.

Callers ask ``ops.backend_of(tensor)`` for a backend and call its methods. ``Backend`` itself is the reference: plain torch on
any device (``reference/``), with the docstrings that the others keep. To add one, subclass it, replace what is faster, and
``ops.register`` it. Forward passes on the CPU refuse a θ < 0 that is bound to its sign (``faults.require_active``);
elsewhere asking would wait for the device, and ``Wiring.layer_theta`` has already read it as 0. For the same reason counts
may be lists or tensors on any device: whoever wants numbers calls ``ops.numbers``.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.layer_shapes import ConvWindow, Stack, StackLayer, StackWiring
from wirebound.ops.layout import Geometry
from wirebound.ops.reference.csr_input import ReferenceCsr
from wirebound.ops.reference.images import ReferenceImages
from wirebound.ops.reference.places import ReferencePlaces
from wirebound.ops.reference.recurrent import ReferenceRecurrent
from wirebound.ops.reference.steps import ReferenceSteps


class Backend(ReferenceRecurrent, ReferenceCsr, ReferenceImages, ReferenceSteps, ReferencePlaces):
    """Everything that is computed for sparse layers, their wirings and their methods."""

    name = "reference"
    has_stack = False  # ``stack`` may be called for what it accepts in float32
    has_fused_steps = False  # the engine may take whole stretches of training in its library
    takes_whole_wirings = False  # layers come with θ of their whole wiring, because only the device knows where they start

    def accepts(self, tensor: Tensor) -> bool:
        """Whether it computes with θ and activations such as this one."""
        return True

    def draws_on(self, device: torch.device) -> bool:
        """Whether it draws random numbers and looks at indices on this device."""
        return True

    def convolves_all(self, window: ConvWindow, height: int, width: int, connections: int) -> bool:
        """Whether it convolves images of this size as fast with all connections as with so many, and faster than torch."""
        return False

    def stack(self, wirings: Sequence[StackWiring], layers: Sequence[StackLayer]) -> Stack:
        """Sparse layers that follow each other, for one call forward and one backward."""
        raise NotImplementedError(f"the {self.name} backend runs layers one after another")

    # Random numbers by name, and questions about arrays.
    words = staticmethod(philox.words)
    normals = staticmethod(philox.normals)
    negative_signs = staticmethod(philox.negative_signs)
    sample_sorted = staticmethod(philox.sample_sorted)

    def all_finite(self, values: Tensor) -> bool:
        """Whether no number is infinite or NaN."""
        return bool(torch.isfinite(values).all())

    def index_is_good(self, geometry: Geometry, budget: int, packed_rows: Tensor, colptr: Tensor) -> bool | None:
        """Whether packed_rows and colptr, of the right types and lengths, are an index of ``budget`` connections in these
        matrices; None if it has no quick way to tell."""
        return None
