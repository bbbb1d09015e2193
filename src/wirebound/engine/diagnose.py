"""Where numbers stopped being finite: the name of a layer tells more than a loss of NaN."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import SparseLayer, wirings


@torch.no_grad()
def where_not_finite(model: nn.Module, *inputs: Tensor) -> str:
    """The first place where something is not finite: the inputs, a layer's parameters, a layer's output, the loss."""
    if not all(map(_finite, inputs)):
        return "the inputs"
    broken = broken_parameter(model)
    if broken:
        return broken
    found: list[str] = []

    def watch(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            found.append(f"the output of layer {name!r}")

    leaves = [(n, m) for n, m in model.named_modules() if isinstance(m, SparseLayer) or not any(True for _ in m.children())]
    handles = [module.register_forward_hook(partial(watch, name)) for name, module in leaves]
    try:
        model(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss"


def broken_parameter(model: nn.Module) -> str:
    """The layer whose parameters are not finite, or nothing."""
    thetas = {id(wiring.theta) for wiring in wirings(model)}
    for wiring in wirings(model):
        bad = torch.nonzero(~torch.isfinite(wiring.theta.detach())).view(-1)
        if bad.numel():
            part = next(i for i, end in enumerate(wiring.bounds[1:]) if int(bad[0]) < end)
            return f"the weights of layer {wiring.layers[part].name!r}"
    for name, parameter in model.named_parameters():
        if id(parameter) not in thetas and not _finite(parameter):
            return f"the numbers of parameter {name!r}"
    return ""


def broken_gradient(model: nn.Module) -> str:
    """The parameter whose gradient is not finite, or nothing."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name!r}"
    return ""


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all()) if tensor.is_floating_point() else True
