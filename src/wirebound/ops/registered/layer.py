"""What the registered operators share: a layer found in the arrays of its wiring, and gradients put back into them."""

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops.faults import DormantThetaError
from wirebound.ops.layout import LayerIndex


@dataclass(frozen=True)
class Layer:
    """A layer as a backend takes it, and where its θ is in that of its wiring."""

    theta: Tensor
    index: LayerIndex
    place: slice

    def in_wiring(self, dtheta: Tensor, theta: Tensor) -> Tensor:
        """The gradient of the layer's θ as that of the whole ``theta``."""
        if dtheta.numel() == theta.numel():
            return dtheta
        whole = torch.zeros_like(theta)
        whole[self.place] = dtheta
        return whole

    def awake(self) -> "Layer":
        """The same with those below 0 as they count where θ is bound to its sign: dormant, weight 0."""
        return replace(self, theta=self.theta.clamp(min=0))

    @property
    def has_dormant(self) -> bool:
        theta = self.theta
        # Asking another device would wait for it; there the backend reads θ as the paper does.
        return self.index.bound and theta.is_cpu and theta.numel() > 0 and not bool(theta.min() >= 0)


def find_layer(theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, last: int, bound: bool) -> Layer:
    """The layer whose columns are first .. last."""
    theta = theta.detach()
    if ops.backend_of(theta).takes_whole_wirings:
        return Layer(theta, LayerIndex(packed_rows, colptr, 0, theta.numel(), first, last, bound), slice(None))
    start, end = int(colptr[first]), int(colptr[last])
    return Layer(theta[start:end], LayerIndex(packed_rows, colptr, start, end, first, last, bound), slice(start, end))


def forward_or_awake(layers: list[Layer], run: Any) -> Any:
    """``run`` of the layers; if a θ that is bound to its sign is below 0, of the layers without those."""
    try:
        return run(layers)
    except DormantThetaError:
        return run([layer.awake() for layer in layers])


def masked(dtheta: Tensor, layer: Layer, dormant: bool) -> Tensor:
    """A dormant connection has no gradient."""
    return torch.where(layer.theta >= 0, dtheta, 0.0) if dormant else dtheta


def refuse_second_derivative(name: str) -> Any:
    """For ``register_autograd`` of a backward operator."""

    def backward(ctx: Any, *grads: Any) -> NoReturn:
        raise RuntimeError(f"a sparse {name} layer has no second derivative: use create_graph=False")

    return backward
