"""What the tests of SET and RigL share: a small task, steps, and the bits that a training leaves."""

import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def small(scope="global", seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    return wb.sparsify(model, 0.25, scope=scope, seed=seed, **options)


def task(rows=64):
    x = torch.randn(rows, 12, generator=torch.Generator().manual_seed(7))
    return x, (x[:, :3] + 0.5 * x[:, 3:6]).argmax(1)


def steps(model, method, count, each=None):
    x, y = task()
    for _ in range(count):
        F.cross_entropy(model(x), y).backward()
        info = method.step()
        method.zero_grad()
        if each is not None:
            each(info)


def bits(model):
    return [tensor.clone() for tensor in model.state_dict().values()]


def same(one, other):
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
