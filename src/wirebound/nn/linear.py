"""``SparseLinear``: ``nn.Linear`` with K connections instead of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.inputs import require_kept, settle_bias, settle_gradient, settle_input
from wirebound.nn.node import direct
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.trace import linear_by_operators, recorded
from wirebound.ops.faults import DormantThetaError
from wirebound.wiring import Constraints, LayerShape, Wiring, settle_budget


@dataclass
class LinearGradient:
    """Input and output gradient of one pass: the gradient of any weight is their product (``GradientSource``)."""

    x: Tensor  # [batch, n_in]
    dy: Tensor  # [batch, n_out]

    def block(self, first: int, last: int) -> Tensor:
        return self.dy.t() @ self.x[:, first:last]


class _SparseLinear(torch.autograd.Function):
    """Exact gradients to the input, to θ at the active positions, and to the bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, theta: Tensor, bias: Tensor | None, layer: SparseLinear) -> Tensor:
        ctx.save_for_backward(x, theta)
        ctx.shapes = x.shape, theta.shape
        ctx.layer = layer
        ctx.index = index = layer.fast_wiring.layer_index(layer.part)
        return ops.linear_forward(x, theta, index, layer.out_features, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        dy = settle_gradient(grads[0])
        if torch.is_grad_enabled():  # create_graph=True: our gradients would be constants in that graph
            raise RuntimeError("SparseLinear has no second derivative: use create_graph=False")
        x, theta = kept = ctx.saved_tensors
        require_kept(kept, ctx.shapes, dy)
        need_dx, need_dtheta, need_dbias, _ = ctx.needs_input_grad
        dx, dtheta = ops.linear_backward(x, dy, theta, ctx.index, need_dx, need_dtheta)
        dbias = dy.sum(0) if need_dbias else None
        layer = ctx.layer
        watch = layer.fast_wiring.watch
        if watch is not None:
            watch.setdefault(layer.part, []).append(LinearGradient(x, dy))
        return dx, dtheta, dbias, None


_apply: Callable[..., Tensor] = direct(_SparseLinear)


class SparseLinear(SparseLayer):
    """y = x Wᵀ + b with a W of exactly K connections, stored and computed as such.

    Args:
        in_features, out_features, bias: as in ``nn.Linear``.
        connectivity: share of the possible connections that exist, in (0, 1]; or
        budget: their number.
        seed: decides positions, signs and first weights.
        init: ``"dense-fan-in"`` (the paper: N(0,1)/√in_features) or ``"sparse-fan-in"``.
        constraints: caps on the fan-in and fan-out of neurons, and signs that belong to them (``wb.Constraints``).
        wiring, part: take this part of an existing wiring instead of an own one.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        connectivity: float | None = None,
        budget: int | None = None,
        seed: int = 0,
        init: str = "dense-fan-in",
        constraints: Constraints | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        wiring: Wiring | None = None,
        part: int = 0,
        owner: bool = True,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if wiring is None:
            shape = LayerShape("linear", out_features, in_features)
            count = settle_budget(connectivity, budget, shape.possible)
            wiring = Wiring(
                [shape], [count], seed=seed, init=init, device=device, dtype=dtype, constraints=constraints
            )
        theta = wiring.theta
        self.bias = nn.Parameter(torch.zeros(out_features, device=theta.device, dtype=theta.dtype)) if bias else None
        self.attach(wiring, part, owner=owner)

    def forward(self, x: Tensor) -> Tensor:
        if recorded(x):
            return cast(Tensor, linear_by_operators(self, x))
        theta = self.fast_wiring.layer_theta(self.part)
        x = settle_input(x, theta, self)
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            last = shape[-1] if shape else "none"
            raise ValueError(f"the last dimension of the input (={last}) must be in_features (={self.in_features})")
        bias: Tensor | None
        try:
            bias = self._parameters["bias"]  # nn.Module takes longer to find an attribute
        except KeyError:  # somebody computes it, as parametrizations do
            bias = self.bias
        if bias is not None:
            bias = settle_bias(bias, theta, self.out_features, self)
        rows = x if len(shape) == 2 else x.reshape(-1, self.in_features)
        try:
            y = _apply(rows, theta, bias, self)
        except DormantThetaError:
            y = _apply(rows, self.fast_wiring.dormant_as_zero(theta), bias, self)
        return y if len(shape) == 2 else y.view(*shape[:-1], self.out_features)

    def dense_twin(self) -> nn.Linear:
        theta = self.wiring.theta
        twin = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device=theta.device, dtype=theta.dtype
        )
        with torch.no_grad():
            twin.weight.copy_(self.dense_weight())
            if self.bias is not None:
                twin.bias.copy_(self.bias)
        return twin

    def extra_repr(self) -> str:
        possible = self.in_features * self.out_features
        share = 100 * self.active / possible if possible else math.nan
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"active={self.active} ({share:.3g} %)"
        )
