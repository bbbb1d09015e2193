"""What every optimiser is asked: does all that it keeps of a connection move with the connection?

A method that replaces connections takes some steps, and a twin takes the same without replacing any in the last. All
tensors with a number for each connection, wherever the optimiser keeps them, are then compared by position: survivors
have what they had, newborns have nothing of the dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb

X = torch.randn(32, 13, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(13, 17), nn.Tanh(), nn.Linear(17, 3))
    return wb.sparsify(plain, budget=101)


def backward(method):
    method.zero_grad()
    F.cross_entropy(method.model(X), Y).backward()


def held(thing, theta, path="", seen=None):
    """Every tensor with a number for each connection in an optimiser, by the way that leads to it."""
    seen = set() if seen is None else seen
    if id(thing) in seen or thing is theta or thing is theta.grad:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        if thing.numel() == theta.numel() and thing.data_ptr() != theta.data_ptr():
            yield path, thing
        elif thing.dim() == 2 and thing.shape[1] == theta.numel():
            for number, row in enumerate(thing):
                yield f"{path}/{number}", row
    elif isinstance(thing, Mapping):
        for number, (key, value) in enumerate(thing.items()):
            yield from held(value, theta, f"{path}/{number if isinstance(key, Tensor) else key}", seen)
    elif isinstance(thing, list | tuple | deque):
        for number, value in enumerate(thing):
            yield from held(value, theta, f"{path}/{number}", seen)
    elif isinstance(thing, nn.Module):
        return
    elif hasattr(thing, "param_groups"):
        for name, value in vars(thing).items():
            if name != "param_groups":
                yield from held(value, theta, f"{path}/{name}", seen)


def run(method, optimizer, steps, **settings):
    """A method after some steps, and what the last of them did."""
    torch.manual_seed(0)  # some start with random numbers
    net = model()
    used = method(net, optimizer(net.parameters()), **settings)
    if hasattr(used.optimizer, "train"):  # of schedule-free ones
        used.optimizer.train()
    for _ in range(steps):
        backward(used)
        info = used.step()
        wb.wirings(net)[0].check()
        assert info.active == info.budget == 101
    return used, info


def ask(optimizer, *, deep_r=True):
    """How many tensors moved along; an AssertionError names one that did not."""
    moved = set()
    for steps in (2, 4, 6):
        method, info = run(wb.SET, optimizer, steps, every=2, zeta=0.4)
        twin, other_info = run(wb.SET, optimizer, steps, every=2, zeta=0.4, until=steps)
        assert info.rewired > 10
        assert other_info.rewired == 0
        (wiring,), (other,) = wb.wirings(method.model), wb.wirings(twin.model)
        where, before = wiring.positions(), other.positions()
        stayed = torch.isin(where, before)
        at = torch.searchsorted(before, where[stayed])
        # A connection that was dropped and drawn again is a newborn too, which only its weight of 0 can tell.
        perhaps = wiring.theta.detach()[stayed] == 0
        expected = dict(held(twin.optimizer, other.theta))
        assert stayed.sum() > 50
        found = dict(held(method.optimizer, wiring.theta))
        assert found.keys() == expected.keys()
        for path, value in found.items():
            value, then = value.detach().view(-1), expected[path].detach().view(-1)
            same = (value[stayed] == then[at]) | perhaps | (value[stayed].isnan() & then[at].isnan())
            assert bool(same.all()), f"{path} did not move with its connections"
            assert len(value[~stayed].unique()) <= 1, f"{path} of newborns is not clean"
            moved.add(path)
    if deep_r:
        run(wb.DeepR, optimizer, 6, l1=1e-2)
    return len(moved)
