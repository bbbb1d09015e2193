"""Small networks of every kind, and what torch computes with them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import wirebound as wb
from wirebound.wiring import LayerShape
from wirebound.wiring.constraints import Constraints


def small_network(kind: str) -> nn.Module:
    """Networks that differ in what a format must be able to say."""
    torch.manual_seed(1)
    activation = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid}.get(kind, nn.ReLU)
    if kind == "wide":  # gaps of more than 255 and more than 65,535 columns between connections
        model = nn.Sequential(nn.Linear(200_000, 7), nn.ReLU(), nn.Linear(7, 3))
        return _with_biases(wb.sparsify(model, budget=40, allocation=[20, 20], seed=3))
    bias = kind != "no-bias"
    last: list[nn.Module] = [nn.ReLU()] if kind == "ends-with-relu" else []
    layers = [nn.Linear(20, 30, bias), activation(), nn.Linear(30, 12, bias), activation(), nn.Linear(12, 4, bias)]
    model = nn.Sequential(*layers, *last)
    if kind == "dense":
        return model
    if kind == "dense-head":
        return _with_biases(wb.sparsify(model, connectivity=0.1, exclude="4"))
    if kind == "one-layer":
        return wb.sparsify(nn.Sequential(nn.Linear(20, 4)), connectivity=0.3)
    if kind == "empty-layer":
        return _with_biases(wb.sparsify(model, allocation=[40, 0, 20], scope="global"))
    if kind == "constrained":
        shapes = [LayerShape("0", 30, 20), LayerShape("2", 4, 30)]
        wiring = wb.Wiring(shapes, [60, 20], constraints=Constraints(max_fan_in=6, max_fan_out=8, dale=0.8))
        first, second = (
            wb.SparseLinear(s.n_in, s.n_out, wiring=wiring, layer_id=part, owner=part == 0) for part, s in enumerate(shapes)
        )
        return _with_biases(nn.Sequential(first, nn.ReLU(), second))
    scope = "layer" if kind == "layer-scope" else "global"
    model = wb.sparsify(model, connectivity=0.15, scope=scope, seed=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    if kind == "fixed":
        method: wb.Method = wb.Fixed(model, optimizer)
    elif kind == "empty-places":
        method = wb.ConstantRate(model, optimizer, rate=1e-3, l1=0.05)
    else:
        method = wb.DeepR(model, optimizer, l1=0.01)
    for _ in range(20):  # rewired, with newborns of weight 0 among the connections
        nn.functional.cross_entropy(model(torch.randn(16, 20)), torch.randint(0, 4, (16,))).backward()
        method.step()
        method.zero_grad()
    return model


def _with_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


RELU_KINDS = ("deep-r", "fixed", "no-bias", "layer-scope", "dense-head", "dense", "one-layer", "empty-layer", "wide",
              "constrained", "empty-places")  # fmt: skip
KINDS = (*RELU_KINDS, "ends-with-relu", "tanh", "sigmoid")


def inputs_for(model: nn.Module, count: int = 9) -> np.ndarray:
    features = next(m.in_features for m in model.modules() if hasattr(m, "in_features"))
    return torch.randn(count, features, generator=torch.Generator().manual_seed(2)).numpy()


@torch.no_grad()
def outputs_of(model: nn.Module, x: np.ndarray) -> np.ndarray:
    return model.eval()(torch.from_numpy(x)).numpy()
