"""torch's own CSR tensors: the work of one linear layer in several formulations, and a layer to put into a network."""

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear

from .contenders import LinearProblem, gradient_of, places, require_twin
from .contest import Answer, Contender, race

Three = tuple[Tensor, Tensor, Tensor]


def ways(problem: LinearProblem) -> dict[str, Contender]:
    """torch's CSR tensors in several formulations. Wᵀ is a second copy, kept up to date free of charge."""
    weight, x, dy = problem.layer.dense_weight(), problem.x, problem.dy
    pattern = pattern_of(problem.layer)
    w, wt, zero = _csr(weight, pattern), _csr(weight.t(), pattern.t()), _csr(torch.zeros_like(weight), pattern)
    xt, dyt = x.t().contiguous(), dy.t().contiguous()

    def left(xt: Tensor, dyt: Tensor) -> Three:
        y, dx = torch.mm(w, xt).t(), torch.mm(wt, dyt).t()
        return y, dx, torch.sparse.sampled_addmm(zero, dyt, xt.t(), beta=0.0)

    def right() -> Three:
        y, dx = torch.mm(x, w.t()), torch.mm(dy, w)
        return y, dx, torch.sparse.sampled_addmm(zero, dy.t(), x, beta=0.0)

    def answer(run: Callable[[], Three]) -> Answer:
        y, dx, dw = run()
        return problem.dense_answer(y, dx, dw.to_dense())

    runs: dict[str, Callable[[], Three]] = {
        "views": lambda: left(x.t(), dy.t()),
        "copies": lambda: left(x.t().contiguous(), dy.t().contiguous()),
        "right": right,
        "transposed": lambda: left(xt, dyt),
    }
    return {name: Contender("torch CSR", run, partial(answer, run)) for name, run in runs.items()}


def kernels(problem: LinearProblem) -> tuple[Contender, Contender, str]:
    """torch's fastest CSR on row-major inputs; CSR on activations kept transposed for free; the way of the first."""
    found = ways(problem)
    transposed = replace(found.pop("transposed"), name="CSR transposed")
    trial = race({name: contender.run for name, contender in found.items()}, seconds=0.1, rounds=4)
    fastest = min(trial, key=lambda name: trial[name].best)
    return found[fastest], transposed, fastest


def pattern_of(layer: SparseLinear) -> Tensor:
    """Where a layer has connections: a weight of exactly 0 is one too."""
    pattern = torch.zeros(layer.out_features, layer.in_features, dtype=torch.bool)
    pattern[places(layer.wiring, layer.layer_id)] = True
    return pattern


def _csr(dense: Tensor, pattern: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR tensors are in beta, torch says
        shape = pattern.to(dense.dtype).to_sparse_csr()
        return torch.sparse_csr_tensor(shape.crow_indices(), shape.col_indices(), dense[pattern], dense.shape)


def _with(values: Tensor, like: Tensor) -> Tensor:
    parts = (like.crow_indices(), like.col_indices(), values)
    return torch.sparse_csr_tensor(*parts, like.shape, check_invariants=False)


class _Product(torch.autograd.Function):
    """The formulation that is fastest on all our machines: on transposed copies of the activations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, layer: "CsrLinear") -> Tensor:
        xt = x.t().contiguous()
        ctx.save_for_backward(xt, values)
        ctx.layer = layer
        return torch.mm(_with(values, layer.zero), xt).t()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        (xt, values), layer, dyt = ctx.saved_tensors, ctx.layer, grads[0].t().contiguous()
        dx = torch.mm(_with(values[layer.order], layer.zero_t), dyt).t()
        return dx, torch.sparse.sampled_addmm(layer.zero, dyt, xt.t(), beta=0.0).values(), None


class CsrLinear(nn.Module):
    """A sparse layer's connections, fixed, as what one would write with torch alone and care."""

    def __init__(self, layer: SparseLinear) -> None:
        super().__init__()
        weight, self.pattern = layer.dense_weight(), pattern_of(layer)
        pattern = self.pattern
        self.zero, self.zero_t = _csr(torch.zeros_like(weight), pattern), _csr(torch.zeros_like(weight.t()), pattern.t())
        self.values, self.bias = nn.Parameter(weight[pattern]), layer.bias
        # The order of the values in Wᵀ.
        number = torch.zeros(pattern.shape, dtype=torch.long)
        number[pattern] = torch.arange(self.values.numel())
        self.order = number.t()[pattern.t()]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), self.values, self)
        y = y.reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


def with_csr(model: nn.Module) -> nn.Module:
    """A copy whose sparse linear layers are torch's CSR."""
    model = copy.deepcopy(model)
    for name, layer in [(name, module) for name, module in model.named_modules() if isinstance(module, SparseLinear)]:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, CsrLinear(layer))
    return model


def require_csr_twin(
    model: nn.Module, twin: nn.Module, loss: Callable[[nn.Module], Tensor], gradients: Callable[[], Sequence[Tensor]]
) -> None:
    """``require_twin`` for a model of ``with_csr``."""
    layers = [module for module in model.modules() if isinstance(module, CsrLinear)]

    def at(dense: Sequence[Tensor]) -> Tensor:
        return torch.cat([gradient[layer.pattern] for layer, gradient in zip(layers, dense, strict=True)])

    require_twin(model, twin, loss, gradients, lambda: torch.cat([gradient_of(layer.values) for layer in layers]), at)
