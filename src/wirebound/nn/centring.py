"""Gradients without their common part: what all connections of a unit would do together is damped.

The inputs of a unit often rise and fall together: neighbouring pixels do, and so do units behind a ReLU, which are all
positive. Then the loss is steep where all weights of a unit move alike and flat in all other directions, and the learning
rate must suit the steep one. Damping that one direction lets the others be learned, at the same rate, in less time:

    g_k ← g_k − (1 − keep) · mean of g over the connections of k's unit          g: gradients of weights

Without ``keep`` this is gradient centralisation (Yong et al. 2020), there for dense layers. With keep > 0 no direction is
shut, so where gradients vanish is where they did before.
"""

import itertools

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import wirings
from wirebound.ops.layout import rows_of
from wirebound.schedule import check_rate
from wirebound.wiring import Wiring


@torch.no_grad()
def centre_gradients_(model: nn.Module, keep: float = 0.0) -> None:
    """Damp what the gradients of each unit's connections have in common, in all sparse layers of a model.

        loss.backward()
        wb.centre_gradients_(model, keep=0.1)
        optimizer.step()

    O(K). Between the backward pass and the step of any method, with any optimiser. Biases and dense layers stay as they are.

    Args:
        model: a sparsified model whose gradients have been computed.
        keep: share of the mean that is left, in [0, 1]; 1 changes nothing.
    """
    check_rate("keep", keep)
    if keep > 1:
        raise ValueError(f"keep (={keep:g}) must be in [0, 1]")
    if not (found := wirings(model)):
        raise ValueError(f"model (={type(model).__name__}) has no sparse layers: call wb.sparsify(model, ...) first")
    for wiring in found:
        if (gradient := wiring.theta.grad) is not None and keep < 1:
            _centre(wiring, gradient, keep)


def _centre(wiring: Wiring, gradient: Tensor, keep: float) -> None:
    packed_rows, geometry = wiring.packed_rows, wiring.geometry
    units = rows_of(packed_rows)  # among those of all layers
    for first, (start, end) in zip(geometry.row_start, itertools.pairwise(wiring.bounds), strict=False):
        units[start:end] += first
    signs = (packed_rows >> 31 | 1).to(gradient.dtype)  # θ = sign · weight: what is common is so among weights
    fan_in = torch.bincount(units, minlength=sum(geometry.n_out)).clamp_(min=1)
    common = torch.zeros_like(fan_in, dtype=gradient.dtype).scatter_add_(0, units, gradient * signs).div_(fan_in)
    gradient.addcmul_(common.index_select(0, units), signs, value=keep - 1)
