"""Trains some networks twice, by the engines of the library and by the C trainer, and prints how far they agree.

Run by ``test_same_steps.py`` with the kernels of the lowest instruction set: those do not join a product and a sum, as the C
code does not, so that every sum has the same order and the same rounding.
"""

import copy
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import torch

import wirebound as wb
from wirebound.engine.fused import FusedEngine
from wirebound.engine.modules import ModuleEngine
from wirebound.export import write_trainer
from wirebound.export.device_network import Rates, encode, first_scales, read_trained
from wirebound.nn.perceptron import perceptron
from wirebound.ops import library
from wirebound_lab.device import DeviceEngine, build, connect

PAPER = {"sizes": [784, 300, 100, 10], "budget": 2662}
SMALL = {"sizes": [50, 30, 10], "budget": 300}
# sizes, budget, how it is sparsified, rates, method; "trained": on the trainer from a state, not from its own draw
CASES = {
    "the paper's network": {**PAPER, "steps": 2000, "init": "sparse-fan-in"},
    "noise, biases": {**SMALL, "steps": 4000, "noise": 1e-2, "bias": True},
    "momentum, uniform newborns": {**SMALL, "steps": 3000, "momentum": 0.9, "newborns": "uniform", "lr": 0.01},
    "a budget for each layer": {**SMALL, "steps": 3000, "scope": "layer", "noise": 1e-3},
    "nearly all die, nearly full": {"sizes": [50, 30, 10], "budget": 1500, "steps": 600, "l1": 0.5, "lr": 0.1},
    "rewiring every seventh step": {**SMALL, "steps": 3000, "rewire_every": 7, "l1": 1e-2},
    "mean square": {**SMALL, "steps": 3000, "loss": "mean-square"},
    "from a trained network": {**SMALL, "steps": 1000, "trained": 500},
    "a frozen layer": {**SMALL, "steps": 600, "frozen": 0, "l1": 1e-2},
}


def compare(case: dict) -> dict:
    sizes, steps, lr = case["sizes"], case["steps"], case.get("lr", 0.05)
    l1, noise, momentum = case.get("l1", 1e-3), case.get("noise", 0.0), case.get("momentum", 0.0)
    rewiring = {"newborns": case.get("newborns", "share"), "rewire_every": case.get("rewire_every", 1)}
    init, trained, loss = case.get("init", "sparse-fan-in"), case.get("trained", 0), case.get("loss", "cross-entropy")
    model = perceptron(sizes, "relu", case.get("bias", False), "meta")
    model = wb.sparsify(model, budget=case["budget"], scope=case.get("scope", "global"), init=init, seed=3, allocation="erdos-renyi")
    theirs = copy.deepcopy(model)
    draw = torch.Generator().manual_seed(1)
    n = 200
    x = torch.randint(0, 256, (n, sizes[0]), generator=draw, dtype=torch.uint8)
    x *= torch.rand(x.shape, generator=draw) < 0.3
    y = torch.randint(0, sizes[-1], (n,), generator=draw)
    order = torch.randint(0, n, (trained + steps,), generator=draw)
    lrs = [lr * (1 - i / (trained + steps)) for i in range(trained + steps)]

    def method_of(one):
        optimizer = torch.optim.SGD(one.parameters(), lr=lr, momentum=momentum)
        return wb.DeepR(one, optimizer, l1=l1, noise=noise, **rewiring)

    method, other = method_of(model), method_of(theirs)
    if "frozen" in case:
        wb.freeze(next(iter(model.children())))
        engine = ModuleEngine(model, method, x.float() / 255, y)
    else:
        targets = torch.nn.functional.one_hot(y, sizes[-1]).float() if loss == "mean-square" else y
        engine = FusedEngine(model, method, x, targets, scale=1 / 255)
    if trained:
        list(engine.epoch(order[:trained], lrs[:trained], 1, 1000))
    frozen = (case["frozen"],) if "frozen" in case else ()
    network = read_trained(model, rates=Rates(lr, l1, noise, momentum), loss=loss, frozen=frozen, **rewiring)
    network = dataclasses.replace(network, scales=first_scales(network.sizes, network.counts, init))
    state = encode(network, model, steps=trained) if trained else b""
    other.steps = trained
    with tempfile.TemporaryDirectory() as place:
        program = build(write_trainer(network, Path(place) / "trainer", state).folder, "host")
        with connect(program, network, "host") as trainer:
            chip = DeviceEngine(trainer, theirs, other, x, y, "host")
            runs = (one.epoch(order[trained:], lrs[trained:], 1, steps) for one in (engine, chip))
            mine, its = (sum(loss for window in run for loss in window.losses) / steps for run in runs)
            rewired = sum(chip.last.newborns)
    found = {"steps": steps, "rewired": rewired, "loss": [mine, its], "exact": "frozen" not in case}
    pairs = list(zip(wb.wirings(model), wb.wirings(theirs), strict=True))
    found["positions"] = all(torch.equal(a.positions(), b.positions()) and torch.equal(a.packed_rows, b.packed_rows) for a, b in pairs)
    found["theta"] = all(torch.equal(a.theta, b.theta) for a, b in pairs)
    found["apart"] = max(float((a.theta - b.theta).detach().abs().max()) for a, b in pairs)
    biases = zip(model.parameters(), theirs.parameters(), strict=True)
    found["all"] = all(torch.equal(a, b) for a, b in biases)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = {name: compare(CASES[name]) for name in CASES if len(sys.argv) < 2 or name in sys.argv[1:]}
    print(json.dumps({"isa": library.isa(), "cases": found}))
