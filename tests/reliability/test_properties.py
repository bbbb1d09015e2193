"""Whole trainings with random models, budgets, optimisers, paths and save points: a pause never changes a bit."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import ModuleEngine, data_order

EXAMPLES, INPUTS, CLASSES = 48, 7, 3
X = torch.randn(EXAMPLES, INPUTS, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, CLASSES, (EXAMPLES,), generator=torch.Generator().manual_seed(2))
T = torch.optim
OPTIMIZERS = [
    lambda p: T.SGD(p, lr=0.1),
    lambda p: T.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    lambda p: T.SGD(p, lr=0.05, momentum=0.8, nesterov=True),
    lambda p: T.Adam(p, lr=0.01, eps=1e-4),
    lambda p: T.Adam(p, lr=0.01, eps=1e-4, amsgrad=True),
    lambda p: T.AdamW(p, lr=0.01, eps=1e-4),
    lambda p: T.RMSprop(p, lr=0.005, momentum=0.5),
    lambda p: T.Adagrad(p, lr=0.05),
    lambda p: T.NAdam(p, lr=0.01),
]


@st.composite
def trainings(draw):
    """A function that makes one training anew, and how it is cut: (make, fused?, batch, window, steps, pauses)."""
    hidden = draw(st.lists(st.integers(1, 12), max_size=2))
    sizes = [INPUTS, *hidden, CLASSES]
    possible = sum(a * b for a, b in pairwise(sizes))
    kind = draw(st.sampled_from(["deep-r", "deep-r", "fixed", "dense"]))
    scope = draw(st.sampled_from(["global", "layer"]))
    least = len(sizes) - 1 if scope == "layer" else 1
    budget = draw(st.integers(least, possible))
    bias = draw(st.booleans())
    activation = draw(st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid]))
    optimizer = draw(st.sampled_from(OPTIMIZERS))
    newborns = draw(st.sampled_from(["uniform", "share"]))
    rewire_every = draw(st.integers(1, 3))
    l1, temperature = draw(st.sampled_from([0.0, 0.01, 0.1])), draw(st.sampled_from([0.0, 1e-4, 1e-2]))
    seed = draw(st.integers(0, 2**40))
    batch, window = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    steps = -(-EXAMPLES // batch) * 2
    pauses = draw(st.lists(st.integers(0, steps), max_size=3))

    def make(start):
        """``start`` seeds what is drawn at the start: after a pause, nothing may depend on it."""
        torch.manual_seed(start)
        layers = []
        for n_in, n_out in pairwise(sizes):
            layers += [nn.Linear(n_in, n_out, bias=bias), activation()]
        model = nn.Sequential(*layers[:-1])
        if kind == "dense":
            return wb.Dense(model, optimizer(model.parameters()))
        model = wb.sparsify(model, budget=budget, scope=scope, allocation="uniform", seed=start)
        held = optimizer(model.parameters())
        if kind == "fixed":
            return wb.Fixed(model, held)
        settings = {"l1": l1, "temperature": temperature, "newborns": newborns, "rewire_every": rewire_every}
        return wb.DeepR(model, held, **settings)

    return make, seed, draw(st.booleans()), batch, window, steps, sorted(pauses)


def _engine(method, fused):
    return (FusedEngine if fused and not why_not_fused(method.model, method) else ModuleEngine)(method.model, method, X, Y)


def _train(method, fused, seed, batch, window, first, last):
    """Steps first .. last of a training of two epochs, in the windows of the whole; sums of the losses."""
    engine = _engine(method, fused)
    per_epoch = -(-EXAMPLES // batch)
    losses = []
    for epoch in range(2):
        begin, end = max(first - epoch * per_epoch, 0), min(last - epoch * per_epoch, per_epoch)
        if begin >= end:
            continue
        lrs = [0.05 * 0.97 ** (epoch * per_epoch + i) for i in range(per_epoch)]
        for part in engine.epoch(data_order(EXAMPLES, seed, epoch), lrs, batch, window, begin):
            losses += part.losses
            for wiring in wb.wirings(method.model):
                wiring.check()
            if part.step_to - epoch * per_epoch >= end:
                break
    return losses


def _pause_points(pauses, fused, batch, window, steps):
    """On the fused path a pause waits for the end of a window."""
    if not fused:
        return pauses
    per_epoch = -(-EXAMPLES // batch)
    ends = [e * per_epoch + min(w, per_epoch) for e in range(2) for w in range(window, per_epoch + window, window)]
    return [min(end for end in [*ends, steps] if end >= pause) if pause else 0 for pause in pauses]


def _check(training):
    make, seed, fused, batch, window, steps, pauses = training
    fused = fused and ops.native_available()
    whole = make(seed)
    losses = _train(whole, fused, seed, batch, window, 0, steps)
    paused, found, at = make(seed), [], 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        for pause in [*_pause_points(pauses, fused, batch, 1 if not fused else window, steps), steps]:
            # On the module path windows of one step let it stop anywhere; they change nothing.
            found += _train(paused, fused, seed, batch, window if fused else 1, at, pause)
            at = pause
            wb.save(path, method=paused, extra={"at": at})
            paused = make(seed + 1 + at)
            assert wb.load(path, method=paused).extra == {"at": at}
    assert found == losses
    assert paused.steps == whole.steps == steps
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, paused.model.state_dict()[name]), name
    mine, theirs = whole.optimizer.state_dict(), paused.optimizer.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    for key, kept in mine["state"].items():
        for name, value in kept.items():
            other = theirs["state"][key][name]
            assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}


@settings(max_examples=40, **QUIET)
@given(trainings())
def test_a_pause_changes_nothing(training):
    _check(training)


@pytest.mark.slow
@settings(max_examples=1500, **QUIET)
@given(trainings())
def test_many_pauses_change_nothing(training):
    _check(training)
