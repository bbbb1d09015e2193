"""Training steps on a card that is not there, in a process of their own: torch knows the device from then on.

    python fake_card_checks.py [NAME ...]

prints one line of JSON for each of these checks, or of all: its name, and what went wrong or nothing.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "nn")]

from no_waiting import DEVICE, WaitedError, fake_card  # noqa: E402
from test_kinds_are_kept import MAKERS, Holder  # noqa: E402

import wirebound as wb  # noqa: E402
from wirebound.ops.device import products  # noqa: E402

METHODS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Any]] = {
    "DeepR": lambda m, o: wb.DeepR(m, o, l1=1e-2, temperature=1e-4),
    "DeepR, l1 auto": lambda m, o: wb.DeepR(m, o),
    "DeepR, uniform": lambda m, o: wb.DeepR(m, o, l1=1e-2, newborns="uniform"),
    "DeepR, every other step": lambda m, o: wb.DeepR(m, o, l1=1e-2, rewire_every=2),
    "DeepR, rates of layers": lambda m, o: wb.DeepR(m, o, l1=[1e-2, 1e-3], noise=[1e-3, 1e-2]),
    "Fixed": lambda m, o: wb.Fixed(m, o),
    "SET": lambda m, o: wb.SET(m, o, every=1),
    "SET, global": lambda m, o: wb.SET(m, o, every=1, scope="global", newborn_scale=0.5),
    "RigL": lambda m, o: wb.RigL(m, o, every=1),
    "RigL, global": lambda m, o: wb.RigL(m, o, every=1, scope="global"),
    "Evolve, random": lambda m, o: wb.Evolve(m, o, drop=wb.drop.Random(), grow=wb.grow.Random(), when=wb.when.Every(1)),
    "SoftDeepR": lambda m, o: wb.SoftDeepR(m, o, l1=1e-3, connectivity=0.3),
    "L1Shrinkage": lambda m, o: wb.L1Shrinkage(m, o, l1=1e-2),
    "MagnitudePruning": lambda m, o: wb.MagnitudePruning(m, o, total_steps=1000, connectivity=0.2),
    "Dense": lambda m, o: wb.Dense(m, o),
}
WAITS = {  # those that ask the device in a step, as docs/devices.md says
    "ConstantRate": lambda m, o: wb.ConstantRate(m, o, rate=0.01, l1=1e-2),
    "DeepR, by gradient": lambda m, o: wb.DeepR(m, o, l1=1e-2, births="gradient"),
    "DeepR, along paths": lambda m, o: wb.DeepR(m, o, l1=1e-2, births="paths"),
    "GSE": lambda m, o: wb.GSE(m, o, every=1),
    "CHT": lambda m, o: wb.CHT(m, o, every=1),
    "Evolve, by sign": lambda m, o: wb.Evolve(m, o, drop=wb.drop.SignFlips(), grow=wb.grow.Random(), when=wb.when.Every(1)),
}
PLAIN = {"SoftDeepR", "L1Shrinkage", "MagnitudePruning", "Dense"}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 6))


def layer(kind: type[nn.Module], scope: str) -> None:
    """Two steps of a layer of this kind, the second with connections that have moved."""
    model = wb.sparsify(Holder(kind), 0.4, scope=scope)
    with fake_card() as card:
        card.model(model)
        x = card.tensor(torch.empty(MAKERS[kind][1])).requires_grad_()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rewiring = wb.DeepR(model, optimizer, l1=1e-2, temperature=1e-4)
        for _ in range(2):
            model(x).square().sum().backward()
            rewiring.step()
            rewiring.zero_grad()
        assert x.grad is not None
        assert x.grad.device.type == DEVICE


def step(method: str, make: Callable[..., Any], optimizer: str) -> None:
    """Two steps of a method."""
    torch.manual_seed(0)
    model = perceptron() if method in PLAIN else wb.sparsify(perceptron(), 0.3)
    with fake_card() as card:
        if method == "SoftDeepR":  # it draws its start, which may be asked for
            given = make(model, OPTIMIZERS[optimizer](model.parameters()))
            for name in ("theta", "sign", "active", "_before"):
                setattr(given, name, [card.tensor(t) for t in getattr(given, name)])
            given.adapter.born = [card.tensor(t) for t in given.adapter.born]
            move_plain(model, given, card)
        else:
            card.model(model)
            given = make(model, OPTIMIZERS[optimizer](model.parameters()))
        x, y = card.tensor(torch.empty(9, 12)), card.tensor(torch.zeros(9, dtype=torch.int64))
        for _ in range(2):
            F.cross_entropy(model(x), y).backward()
            given.step()
            given.zero_grad()


def move_plain(model: nn.Module, method: Any, card: Any) -> None:
    """A plain model under a method onto the card: the method holds its parameters by name."""
    for number, (name, matrix) in enumerate(zip([n for n, p in model.named_parameters() if p.dim() > 1], method.matrices, strict=True)):
        holder, _, own = name.rpartition(".")
        moved = nn.Parameter(card.tensor(matrix.theta))
        model.get_submodule(holder)._parameters[own] = moved
        method.matrices[number] = type(matrix)(matrix.shape, moved)
    for module in model.modules():
        if module._parameters.get("bias") is not None:
            module._parameters["bias"] = nn.Parameter(card.tensor(module._parameters["bias"]))
    method.adapter.wirings = method.matrices
    for group in method.optimizer.param_groups:
        group["params"] = list(model.parameters())


def waits(method: str, make: Callable[..., Any]) -> None:
    """It asks the device, as it is said to: the mode notices."""
    try:
        step(method, make, "SGD")
    except WaitedError:
        return
    raise AssertionError(f"{method} no longer waits for the device: say so in docs/devices.md")


def notices() -> None:
    """What the mode is there for."""
    asks: dict[str, Callable[[Tensor], Any]] = {
        "item": lambda t: t.sum().item(), "tolist": lambda t: t.tolist(), "cpu": lambda t: t.cpu(), "bool": lambda t: bool(t.any()),
        "nonzero": lambda t: torch.nonzero(t), "mask": lambda t: t[t > 0], "numpy": lambda t: t.cpu().numpy(),
    }  # fmt: skip
    with fake_card() as card:
        for name, ask in asks.items():
            try:
                ask(card.tensor(torch.ones(3)))
            except WaitedError:
                continue
            raise AssertionError(f"{name} went unnoticed")


def checks() -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {"the mode notices": notices}
    for kind in MAKERS:
        for scope in ("global", "layer"):
            found[f"layer {kind.__name__} {scope}"] = lambda kind=kind, scope=scope: layer(kind, scope)  # type: ignore[misc]
    for name, make in METHODS.items():
        for optimizer in OPTIMIZERS:
            run = lambda *given: lambda: step(*given)  # noqa: E731
            found[f"method {name} {optimizer}"] = run(name, make, optimizer)
    for name, make in WAITS.items():
        found[f"waits {name}"] = lambda name=name, make=make: waits(name, make)  # type: ignore[misc]
    return found


def main() -> None:
    if DEVICE != "cuda":
        _setup_privateuseone_for_python_backend(DEVICE)
        products.CSR_DEVICES = (*products.CSR_DEVICES, DEVICE)
    for name, check in checks().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            check()
            fault = ""
        except Exception:
            fault = traceback.format_exc(limit=-6)
        print(json.dumps([name, fault]), flush=True)


if __name__ == "__main__":
    main()
