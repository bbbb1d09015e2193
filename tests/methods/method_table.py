"""One line for each method, and small models and tasks for all of them to be asked the same questions."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.methods import METHODS


@dataclass(frozen=True)
class Line:
    """What a method is trained on and what it promises; settings that make much happen in few steps."""

    plain: bool  # the plain model, or one that was sparsified
    promise: str | None  # "exactly" the budget after each step, "at most" the budget, or none
    lively: dict = field(default_factory=dict)
    born: bool = True  # connections come into being while it trains
    drift: bool = False  # drift α and noise T, by the names l1 and temperature


TABLE = {
    "deep-r": Line(False, "exactly", {"l1": 0.02, "temperature": 1e-5}, drift=True),
    "fixed": Line(False, "exactly", born=False),
    "dense": Line(True, None, born=False),
    "soft-deep-r": Line(
        True, None, {"l1": 0.02, "temperature": 1e-5, "theta_min": -0.01, "connectivity": 0.4}, drift=True
    ),
    "constant-rate": Line(False, "at most", {"l1": 0.02, "temperature": 1e-5, "rate": 0.02}, drift=True),
    "l1-shrinkage": Line(True, None, {"l1": 0.01}, born=False),
    "pruning": Line(True, None, {"total_steps": 9, "connectivity": 0.4}, born=False),
    "set": Line(False, "exactly", {"every": 2}),
    "rigl": Line(False, "exactly", {"every": 2}),
    "cht": Line(False, "exactly", {"every": 2}),
    "gse": Line(False, "exactly", {"every": 2}),
    "top-k": Line(True, None, {"connectivity": 0.4}, born=False),
}
NAMES = tuple(METHODS)
SPARSE_KINDS = {"linear": "SparseLinear", "conv": "SparseConv2d", "lstm": "SparseLSTM"}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}
_CENTRES = torch.randn(3, 16, generator=torch.Generator().manual_seed(5))
Y = torch.arange(90) % 3
X = _CENTRES[Y] + 0.3 * torch.randn(90, 16, generator=torch.Generator().manual_seed(6))


class Recurrent(nn.Module):
    """Four steps of four numbers, the class read from the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 8, batch_first=True)
        self.readout = nn.Linear(8, 3)

    def forward(self, x):
        return self.readout(self.cells(x.view(-1, 4, 4))[0][:, -1])


def plain_model(kind="linear", seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "conv":
            return nn.Sequential(
                nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)
            )
        return Recurrent() if kind == "lstm" else nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))


def possible_kinds(name):
    """The kinds of models that a method can be asked about: sparse ones need their layer."""
    return [kind for kind, layer in SPARSE_KINDS.items() if TABLE[name].plain or hasattr(wb, layer)]


def build(name, kind="linear", optimizer="sgd", seed=0, scope="global", **settings):
    """A method of a small model, with lively settings unless others are given."""
    line = TABLE[name]
    model = plain_model(kind, seed)
    if not line.plain:
        model = wb.sparsify(model, connectivity=0.4, scope=scope, seed=seed, init="sparse-fan-in")
    elif name == "soft-deep-r":
        settings.setdefault("seed", seed)
    return METHODS[name](model, OPTIMIZERS[optimizer](model.parameters()), **{**line.lively, **settings})


def take_steps(method, count, batch=15):
    """The infos of ``count`` steps."""
    infos = []
    for _ in range(count):
        first = method.steps * batch % len(X)
        F.cross_entropy(method.model(X[first : first + batch]), Y[first : first + batch]).backward()
        infos.append(method.step())
        method.zero_grad()
    return infos


def everything(method):
    """All state, as a flat dict of what can be compared."""
    flat = {}

    def drift(name, value):
        if isinstance(value, dict):
            for key, item in value.items():
                drift(f"{name}/{key}", item)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                drift(f"{name}/{i}", item)
        else:
            flat[name] = value

    drift("model", dict(method.model.state_dict()))
    drift("optimizer", method.optimizer.state_dict())
    drift("method", method.state_dict())
    return flat


def assert_same(one, two):
    mine, theirs = everything(one), everything(two)
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        same = torch.equal(value, theirs[name]) if isinstance(value, torch.Tensor) else value == theirs[name]
        assert same, name
