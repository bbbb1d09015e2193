"""The work of one layer: its tensors, the same for all contenders, and the ways that every kind of layer shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.ops.layout import rows_of, signs_of
from wirebound.wiring import Wiring
from wirebound_lab.bench.contest import Answer, Contender


def places(wiring: Wiring, part: int = 0) -> tuple[Tensor, Tensor]:
    """Row and column of each connection of one matrix."""
    index = wiring.layer_index(part)
    counts = index.layer_colptr().diff()
    return rows_of(index.layer_packed_rows()), torch.repeat_interleave(torch.arange(counts.numel()), counts)


def at_connections(wiring: Wiring, dense: Sequence[Tensor]) -> Tensor:
    """The entries of dense gradients, one for each matrix of a wiring, that belong to connections."""
    return torch.cat([gradient.flatten(1)[places(wiring, part)] for part, gradient in enumerate(dense)])


def signed(wiring: Wiring, gradient: Tensor) -> Tensor:
    """The gradient of the weights from that of θ."""
    return gradient * signs_of(wiring.packed_rows, gradient.dtype)


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def first_output(found: Any) -> Tensor:
    """The output of a layer without the last state that recurrent ones add."""
    output: Tensor = found[0] if isinstance(found, tuple) else found
    return output


class LayerProblem:
    """A sparse layer, its input and the gradient of its output; activations lie as torch has them."""

    def __init__(self, layer: Any, x: Sequence[int], dy: Sequence[int], seed: int = 0) -> None:
        self.layer = layer
        self.wiring: Wiring = layer.wiring
        self.theta = self.wiring.theta.detach()
        generator = torch.Generator().manual_seed(seed)
        self.x, self.dy = torch.randn(*x, generator=generator), torch.randn(*dy, generator=generator)

    def answer(self, y: Tensor, dx: Tensor | None, dtheta: Tensor | None) -> Answer:
        """Output, gradient to the input, and gradient of the weight at each connection, from that of θ."""
        assert dx is not None
        assert dtheta is not None
        return {"y": y, "dx": dx, "dw": signed(self.wiring, dtheta)}

    def dense_answer(self, y: Tensor, dx: Tensor, *dw: Tensor) -> Answer:
        return {"y": y, "dx": dx, "dw": at_connections(self.wiring, dw)}

    def autograd(
        self, name: str, forward: Callable[[Tensor], Any], parameters: Mapping[str, Tensor], dw: Callable[[], Tensor]
    ) -> Contender:
        """Forward and backward through autograd; the gradients of biases are part of the answer."""
        x = self.x.clone().requires_grad_()
        leaves = (x, *parameters.values())

        def run() -> Tensor:
            for leaf in leaves:
                leaf.grad = None
            y = first_output(forward(x))
            torch.autograd.backward(y, self.dy)
            return y

        def answer() -> Answer:
            y = run()
            biases = {key: gradient_of(value) for key, value in parameters.items() if key.startswith("bias")}
            return {"y": y.detach(), "dx": gradient_of(x), "dw": dw(), **biases}

        return Contender(name, run, answer)

    def module(self, name: str = "module") -> Contender:
        """The sparse layer itself."""
        theta = self.wiring.theta
        parameters = dict(self.layer.named_parameters())
        return self.autograd(name, self.layer, parameters, lambda: signed(self.wiring, gradient_of(theta)))

    def dense_module(self, name: str = "dense module", weights: Sequence[str] = ("weight",)) -> Contender:
        """torch's own layer with the same weights."""
        twin: nn.Module = self.layer.dense_twin()

        def gradient() -> Tensor:
            return at_connections(self.wiring, [gradient_of(twin.get_parameter(weight)) for weight in weights])

        return self.autograd(name, twin, dict(twin.named_parameters()), gradient)

    def masked_module(self, forward: Callable[[Tensor, Tensor], Tensor]) -> Contender:
        """The usual way to emulate sparsity: a dense weight times a mask in every forward pass."""
        weight = self.layer.dense_weight().requires_grad_()
        mask = torch.zeros_like(weight, requires_grad=False)
        mask.flatten(1)[places(self.wiring)] = 1.0

        def gradient() -> Tensor:
            return at_connections(self.wiring, [gradient_of(weight)])

        return self.autograd("masked module", lambda x: forward(x, weight * mask), {"weight": weight}, gradient)
