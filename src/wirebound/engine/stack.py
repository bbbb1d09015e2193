"""Which models and methods the fused path can take: plain stacks, ordinary optimisers, nothing that listens in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, optim

from wirebound import ops
from wirebound.methods import DeepR, Dense, Fixed, Method
from wirebound.nn.activations import KERNEL_NUMBERS
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import wirings
from wirebound.nn.stack import SparseSequential

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
# What must be the same in all parameter groups; lr comes from the loop, weight decay may differ.
_SHARED = ("momentum", "dampening", "nesterov", "betas", "eps", "amsgrad", "maximize", "lr", "decoupled_weight_decay")


@dataclass(frozen=True)
class StackLayer:
    """A linear layer and the activation behind it."""

    linear: SparseLinear | nn.Linear
    activation: int


def read_stack(model: nn.Module) -> list[StackLayer] | str:
    """The layers of a plain stack, or why the model is none."""
    if type(model) not in (nn.Sequential, SparseSequential):
        return f"the model is a {type(model).__name__}, not a plain nn.Sequential"
    layers: list[StackLayer] = []
    for name, module in model.named_children():
        if type(module) in (SparseLinear, nn.Linear):
            layers.append(StackLayer(module, 0))  # type: ignore[arg-type]
        elif type(module) is nn.Flatten and not layers:
            continue
        elif type(module) in KERNEL_NUMBERS and layers and layers[-1].activation == 0:
            layers[-1] = StackLayer(layers[-1].linear, KERNEL_NUMBERS[type(module)])
        else:
            return f"module {name!r} (={type(module).__name__}) is neither a linear layer nor a known activation after one"
    if not layers:
        return "the model has no linear layer"
    seen = {id(layer.linear) for layer in layers}
    parts = {(id(s.wiring), s.layer_id) for s in (layer.linear for layer in layers) if isinstance(s, SparseLinear)}
    if len(seen) != len(layers) or len(parts) != sum(isinstance(x.linear, SparseLinear) for x in layers):
        return "two layers share their weights"
    return layers


def why_not_fused(model: nn.Module, method: Method) -> str:
    """Why the fused path cannot run this training; empty if it can."""
    parameters = list(model.parameters())
    if any(not p.is_cpu or p.dtype != torch.float32 for p in parameters):
        return "parameters must be float32 on the CPU"
    if not parameters or not ops.backend_of(parameters[0]).has_fused_steps:
        return "the native kernels are not in use"
    if type(method) not in (DeepR, Fixed, Dense):
        return f"method (={type(method).__name__}) has no fused step"
    if any(wiring.constrained for wiring in wirings(model)):
        return "neurons have caps or signs"
    stack = read_stack(model)
    if isinstance(stack, str):
        return stack
    if any(wiring.rates is not None for wiring in wirings(model)):
        return "a layer is frozen or has rates of its own"
    if any(not p.requires_grad for p in parameters):
        return "a parameter is frozen"
    if any(getattr(module, hooks) for module in model.modules() for hooks in _HOOKS):
        return "a module has hooks"
    return _why_not_optimizer(method.optimizer, parameters)


def _why_not_optimizer(optimizer: optim.Optimizer, parameters: list[nn.Parameter]) -> str:
    if type(optimizer) not in (optim.SGD, optim.Adam, optim.AdamW):
        return f"optimizer (={type(optimizer).__name__}) has no fused step"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return "the optimiser has hooks"
    groups: list[dict[str, Any]] = optimizer.param_groups
    for name in _SHARED:
        if any(group.get(name) != groups[0].get(name) for group in groups):
            return f"parameter groups differ in {name}"
    held = {id(p) for group in groups for p in group["params"]}
    if any(id(p) not in held for p in parameters):
        return "the optimiser does not hold all parameters"
    return ""
