"""Random models for the soak: plain stacks and classes as users write them, with every kind of layer that can be sparse."""

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb


class _Twice(nn.Module):
    """One layer is used twice."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(7, width), nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.b(torch.relu(self.a(x)))))))


class _Conv(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.c1, self.norm = nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.c2, self.head = nn.Conv2d(6, 8, 3, stride=2, groups=groups), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.relu(self.c2(torch.relu(self.norm(self.c1(x))))).mean((2, 3)))


class _Conv1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.up, self.head = nn.Conv1d(3, 8, 3, padding=2), nn.ConvTranspose1d(8, 4, 2), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.up(torch.relu(self.c(x)))).mean(2))


class _Recurrent(nn.Module):
    def __init__(self, kind, layers, both):
        super().__init__()
        self.r = kind(5, 6, layers, bidirectional=both, batch_first=True)
        self.head = nn.Linear(12 if both else 6, 4)

    def forward(self, x):
        return self.head(self.r(x)[0][:, -1])


class _Cells(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.head = kind(5, 6), nn.Linear(6, 4)

    def forward(self, x):
        state = None
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class _Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.put, self.block = nn.Linear(5, 8), nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.block(self.put(x)).mean(1))


class _Masked(nn.Module):
    """A layer without a sparse twin, in masked storage."""

    def __init__(self):
        super().__init__()
        self.pair, self.head = nn.Bilinear(7, 7, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.pair(x, x)))


@dataclass
class Made:
    """A sparse model with its method, and what it takes."""

    name: str
    model: nn.Module
    method: wb.Method
    sample: tuple[int, ...]  # the shape of one input
    fewest: int  # the smallest batch that the dense model takes too


def _dense(rng: random.Random) -> tuple[str, nn.Module, tuple[int, ...]]:
    width = rng.choice((9, 16, 33))
    recurrent = rng.choice((nn.LSTM, nn.GRU, nn.RNN))
    cell = rng.choice((nn.LSTMCell, nn.GRUCell, nn.RNNCell))
    choices = {
        "stack": lambda: (
            nn.Sequential(nn.Linear(7, width), nn.ReLU(), nn.Linear(width, 12, bias=rng.random() < 0.5), nn.Tanh(), nn.Linear(12, 4)),
            (7,),
        ),
        "twice": lambda: (_Twice(width), (7,)),
        "conv": lambda: (_Conv(rng.choice((1, 2))), (2, 6, 6)),
        "conv1d": lambda: (_Conv1d(), (3, 8)),
        recurrent.__name__: lambda: (_Recurrent(recurrent, rng.choice((1, 2)), rng.random() < 0.5), (4, 5)),
        cell.__name__: lambda: (_Cells(cell), (3, 5)),
        "attention": lambda: (_Attention(), (3, 5)),
        "masked": lambda: (_Masked(), (7,)),
    }
    name = rng.choice(sorted(choices))
    return name, *choices[name]()


_OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AMSGrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.002, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.02),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.005),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
}
_METHODS = {
    "DeepR": lambda m, o: wb.DeepR(m, o, l1=0.03, temperature=1e-4),
    "DeepR every 3": lambda m, o: wb.DeepR(m, o, l1=0.03, rewire_every=3, newborns="share"),
    "ConstantRate": lambda m, o: wb.ConstantRate(m, o, rate=0.01, l1=0.03),
    "SET": lambda m, o: wb.SET(m, o, every=3),
    "RigL": lambda m, o: wb.RigL(m, o, every=4),
    "Fixed": lambda m, o: wb.Fixed(m, o),
}


def make(rng: random.Random) -> Made:
    """A model, its method and its optimiser, all of them drawn."""
    name, dense, sample = _dense(rng)
    scope = rng.choice(("global", "layer"))
    constraints = None
    if rng.random() < 0.3 and name in ("stack", "twice"):
        constraints = wb.Constraints(max_fan_in=6, dale=0.8 if rng.random() < 0.5 else None)
    connectivity = rng.choice((0.1, 0.3, 0.6)) if constraints is None else 0.15
    include = None if name != "masked" else ["pair.weight", "head"]
    model = wb.sparsify(dense, connectivity, scope=scope, include=include, constraints=constraints, seed=rng.randrange(1000))
    optimizer, method = rng.choice(sorted(_OPTIMIZERS)), rng.choice(sorted(_METHODS))
    made = _METHODS[method](model, _OPTIMIZERS[optimizer](model.parameters()))
    title = f"{name}, {method}, {optimizer}, {scope}{', constrained' if constraints else ''}"
    return Made(title, model, made, sample, fewest=2 if name == "conv" else 1)


def loss_of(y: Tensor) -> Tensor:
    """Some loss whose gradient reaches every output."""
    target = torch.arange(y.shape[0]) % y.shape[1]
    return F.cross_entropy(y, target) + 0.01 * y.square().mean() if len(y) else y.sum()
