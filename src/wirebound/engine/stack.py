"""Which models and methods the fused path can take: plain stacks, ordinary optimisers, no hooks."""

from typing import Any, NamedTuple

import torch
from torch import nn, optim

from wirebound import ops
from wirebound.methods import DeepR, Dense, Fixed, Method
from wirebound.nn.activations import KERNEL_NUMBERS
from wirebound.nn.dropout import Dropout
from wirebound.nn.linear import SparseLinear
from wirebound.nn.sparse_layer import wirings
from wirebound.nn.stack import SparseSequential

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What must be the same in all parameter groups; lr comes from the loop, weight decay may differ.
_SHARED = ("momentum", "dampening", "nesterov", "betas", "eps", "amsgrad", "maximize", "lr", "decoupled_weight_decay")


class Layer(NamedTuple):
    """A linear layer of a plain stack, with what stands before and behind it."""

    linear: SparseLinear | nn.Linear
    activation: int = 0  # the kernel's number
    dropout: Dropout | None = None  # of its inputs


def read_stack(model: nn.Module) -> list[Layer] | str:
    """The layers of a plain stack, or why the model is none."""
    if type(model) not in (nn.Sequential, SparseSequential):
        return f"the model is a {type(model).__name__}, not a plain nn.Sequential"
    layers: list[Layer] = []
    dropout: Dropout | None = None
    for name, module in model.named_children():
        if isinstance(module, SparseLinear | nn.Linear) and type(module) in (SparseLinear, nn.Linear):
            layers.append(Layer(module, dropout=dropout))
            dropout = None
        elif type(module) is nn.Flatten and not layers:
            continue
        elif type(module) in KERNEL_NUMBERS and layers and layers[-1].activation == 0 and dropout is None:
            layers[-1] = layers[-1]._replace(activation=KERNEL_NUMBERS[type(module)])
        elif type(module) is Dropout and dropout is None:
            dropout = module
        else:
            return f"module {name!r} (={type(module).__name__}) is neither a linear layer nor a known activation after one"
    if dropout is not None:
        return "dropout is the last module"
    if not layers:
        return "the model has no linear layer"
    parts = {(id(s.wiring), s.layer_id) if isinstance(s, SparseLinear) else (id(s), 0) for s, *_ in layers}
    return layers if len(parts) == len(layers) else "two layers share their weights"


def why_not_fused(model: nn.Module, method: Method, sparse: bool = False) -> str:
    """Why the fused path cannot run this training, on sparse rows or on dense ones; empty if it can."""
    parameters = list(model.parameters())
    if any(not p.is_cpu or p.dtype != torch.float32 for p in parameters):
        return "parameters must be float32 on the CPU"
    if not parameters or not ops.backend_of(parameters[0]).has_fused_steps:
        return "the native kernels are not in use"
    if type(method) not in (DeepR, Fixed, Dense):
        return f"method (={type(method).__name__}) has no fused step"
    if isinstance(method, DeepR) and method.births != "uniform":
        return f"births (={method.births!r}) chooses among dormant connections, which the fused step does not do"
    if isinstance(method, DeepR) and not sparse and any(wiring.seen for wiring in wirings(model)):
        return "a layer was given sparse rows, and newborns come to the columns of each step"
    if any(wiring.constrained for wiring in wirings(model)):
        return "neurons have caps or signs"
    stack = read_stack(model)
    if isinstance(stack, str):
        return stack
    if any(wiring.has_frozen for wiring in wirings(model)):
        return "a layer is frozen"
    if any(not p.requires_grad for p in parameters):
        return "a parameter is frozen"
    if any(getattr(module, hooks) for module in model.modules() for hooks in _HOOKS):
        return "a module has hooks"
    optimizer = method.optimizer
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
