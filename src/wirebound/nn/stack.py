"""``SparseSequential``: an ``nn.Sequential`` that takes sparse layers in a row as one node of the autograd graph.

A run of at least two sparse linear layers with ReLU, tanh, sigmoid or nothing behind each is one native call forward and
one backward, unless a module has hooks, or the work is enough for the layers' own kernels to use several threads."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _are_functorch_transforms_active as transforms_active
from torch.nn.modules import module as torch_module

from wirebound import ops
from wirebound.nn.activations import KERNEL_NUMBERS
from wirebound.nn.inputs import direct, in_memory, refuse_second_derivative, require_kept
from wirebound.nn.linear import SparseLinear
from wirebound.nn.trace import watched_over
from wirebound.ops import Stack, StackLayer, StackWiring
from wirebound.ops.faults import DormantThetaError
from wirebound.wiring import Wiring, copies
from wirebound.wiring.trust import is_plain

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Up to so many multiply-adds, counting a feature as one, the stack is faster than its layers one by one on several
# threads. With one thread it would be more, but the two sum in different orders, and threads must not change a result.
_MOST_WORK = 1_000_000


class _SparseStack(torch.autograd.Function):
    """Exact gradients to the input, to θ of each wiring, and to the biases."""

    @staticmethod
    def forward(ctx: Any, stack: Stack, x: Tensor, *parameters: Tensor) -> Tensor:
        y, kept = stack.forward(x)
        # θ is among them only to notice if someone changes it before the backward pass.
        ctx.save_for_backward(x, kept, *parameters[: stack.n_wirings])
        ctx.stack = stack
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("SparseSequential")
        dy, saved, stack = in_memory(grads[0]), ctx.saved_tensors, ctx.stack
        require_kept(saved, stack.shapes(dy.shape[0]), dy)
        dx, gradients = stack.backward(saved[0], saved[1], dy, ctx.needs_input_grad[1])
        return (None, dx, *gradients)


_apply: Callable[..., Tensor] = direct(_SparseStack)


class StackRun:
    """Sparse layers in a row and the functions between them."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules = tuple(modules)
        self.kinds = [type(module) for module in modules]
        self.layers = [module for module in modules if isinstance(module, SparseLinear)]
        self.in_features = self.layers[0].in_features
        self.out_features = self.layers[-1].out_features
        self.wirings: list[Wiring] = []
        for layer in self.layers:
            if not any(wiring is layer.fast_wiring for wiring in self.wirings):
                self.wirings.append(layer.fast_wiring)
        features = sum(layer.in_features + layer.out_features for layer in self.layers)
        self.work = features + sum(wiring.budget for wiring in self.wirings)  # of a sample
        self._attributes = [module.__dict__ for module in modules]
        self._hooks = [attributes[name] for attributes in self._attributes for name in _HOOKS]
        self._addresses: list[object] = []
        self._stack: Stack | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = self._as_one(x) if self._is_plain(x) else None
        if y is None:
            for module in self.modules:
                x = module(x)
        return x if y is None else y

    def _as_one(self, x: Tensor) -> Tensor | None:
        """What the run makes of an input in one call; None if something does not fit."""
        parameters: list[Tensor] = []
        for wiring in self.wirings:
            if wiring.kinship is not None:
                copies.look(wiring)
            wiring.examine_index()  # something else may have written it
            parameters.append(wiring.readable_theta())
        for layer in self.layers:
            if (bias := layer._parameters.get("bias")) is not None:
                parameters.append(bias)
            elif layer.bias is not None:  # it is computed, as by parametrizations
                return None
        if (stack := self._prepare(parameters)) is None:
            return None
        flat = x.dim() == 2
        rows = x if flat else x.reshape(-1, self.in_features)
        try:
            y = _apply(stack, rows, *parameters) if torch.is_grad_enabled() else stack.forward(rows)[0]
        except DormantThetaError:  # layers know what to do
            return None
        return y if flat else y.view(*x.shape[:-1], self.out_features)

    def _is_plain(self, x: Tensor) -> bool:
        """Whether the result and its gradients are all that anyone can notice of this pass."""
        if torch.is_autocast_enabled("cpu") or watched_over() or type(x) is not Tensor or x.dtype is not torch.float32 or not x.is_cpu:
            return False
        if x.layout is not torch.strided or x.is_neg() or x._is_zerotensor():
            return False
        shape = x.shape
        if not shape or shape[-1] != self.in_features or x.numel() // self.in_features * self.work >= _MOST_WORK:
            return False
        if any(self._hooks) or torch_module._has_any_global_hook() or [*map(type, self.modules)] != self.kinds:
            return False
        for attributes in self._attributes:
            if "forward" in attributes:
                return False
        for wiring in self.wirings:
            if wiring.watch is not None or wiring.seen or (wiring.rates is not None and wiring.has_frozen):
                return False
        return not transforms_active()

    def _prepare(self, parameters: Sequence[Tensor]) -> Stack | None:
        """The layers for the kernels: as before unless a tensor has moved; None if one of them does not fit."""
        backend = ops.backend_of(parameters[0])
        if not backend.has_stack:
            return None
        addresses: list[object] = [backend]
        for tensor in parameters:
            if not is_plain(tensor):
                return None
            addresses += (tensor.data_ptr(), tensor.numel())
        for wiring in self.wirings:
            addresses += (wiring.packed_rows.data_ptr(), wiring.colptr.data_ptr(), wiring.sign_bound)
        if addresses != self._addresses:
            self._addresses, self._stack = addresses, self._read(backend)
        return self._stack

    def _read(self, backend: ops.Backend) -> Stack | None:
        tensors = [(wiring.theta, wiring.packed_rows.numel()) for wiring in self.wirings]
        tensors += [(layer.bias, layer.out_features) for layer in self.layers if layer.bias is not None]
        for tensor, length in tensors:
            if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.stride() != (1,):
                return None
            if tensor.shape != (length,) or in_memory(tensor) is not tensor or (length and not tensor.data_ptr()):
                return None
        taken = {(id(layer.fast_wiring), layer.layer_id) for layer in self.layers}
        wirings, layers = [], []
        for w in self.wirings:
            covered = all((id(w), layer_id) in taken for layer_id in range(len(w.layers)))
            wirings.append(StackWiring(w.theta, w.packed_rows, w.colptr, covered=covered, bound=w.sign_bound))
        for module, behind in zip(self.modules, (*self.modules[1:], None), strict=True):
            if isinstance(module, SparseLinear):
                number = next(i for i, wiring in enumerate(self.wirings) if wiring is module.fast_wiring)
                first = module.fast_wiring.geometry.column_start[module.layer_id]
                shape, activation = (module.in_features, module.out_features), KERNEL_NUMBERS.get(type(behind), 0)
                layers.append(StackLayer(*shape, number, first, module.bias, activation))
        return backend.stack(wirings, layers)


class SparseSequential(nn.Sequential):
    """An ``nn.Sequential`` in all but speed: ``sparsify`` makes them of those that have sparse layers in a row."""

    requires_grad_ = SparseLinear.requires_grad_

    def forward(self, x: Any) -> Any:
        if torch.compiler.is_compiling():
            for module in self:
                x = module(x)
            return x
        modules = list(self._modules.values())
        plan = self.__dict__.get("_plan")
        if plan is None or plan[0] != modules:
            plan = self.__dict__["_plan"] = (modules, _pieces(modules))
        for piece in plan[1]:
            x = piece(x)
        return x

    def __getstate__(self) -> dict[str, Any]:
        # The plan holds addresses of this very model.
        return {name: value for name, value in self.__dict__.items() if name != "_plan"}


def _pieces(modules: Sequence[nn.Module]) -> list[StackRun | nn.Module]:
    pieces: list[StackRun | nn.Module] = []
    at = 0
    while at < len(modules):
        end, layers, width = at, 0, -1
        while end < len(modules):
            module = modules[end]
            if type(module) is SparseLinear and module.in_features > 0 and width in (-1, module.in_features):
                layers, width = layers + 1, module.out_features
            elif end == at or type(module) not in KERNEL_NUMBERS or type(modules[end - 1]) in KERNEL_NUMBERS:
                break
            end += 1
        pieces.append(StackRun(modules[at:end]) if layers >= 2 else modules[at])
        at = end if layers >= 2 else at + 1
    return pieces


def with_runs(model: nn.Module) -> nn.Module:
    """Turn the plain ``nn.Sequential`` modules of a model that have runs into ``SparseSequential``, in place."""
    for module in model.modules():
        if type(module) is nn.Sequential and any(isinstance(p, StackRun) for p in _pieces(list(module))):
            module.__class__ = SparseSequential
    return model


def without_runs(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if type(module) is SparseSequential:
            module.__dict__.pop("_plan", None)
            module.__class__ = nn.Sequential  # type: ignore[assignment]
    return model
