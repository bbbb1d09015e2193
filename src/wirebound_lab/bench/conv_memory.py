"""Peak memory of a wide network of convolutions in training, sparse and dense, each in a process of its own.

Run as ``python -m wirebound_lab.bench.conv_memory '{"kind": "sparse", …}'``; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

import torch
from torch import nn

import wirebound as wb
from wirebound.methods import Method
from wirebound_lab.bench.fresh_process import run_fresh
from wirebound_lab.bench.results import Measurement, Settings
from wirebound_lab.bench.scale_process import Peak
from wirebound_lab.bench.timing import Timing


@dataclass(frozen=True)
class Network:
    """Convolutions 3×3 in a row, all as wide, with ReLU between them."""

    channels: int = 512
    layers: int = 4
    connectivity: float = 0.01
    size: int = 8
    batch: int = 8

    @property
    def label(self) -> str:
        shape = f"{self.layers} × conv 3×3 {self.channels}→{self.channels} on {self.size}×{self.size}"
        return f"{shape}, B {self.batch}"


NETWORK, QUICK_NETWORK = Network(), Network(channels=128)
_STEPS = 3


def build(kind: str, network: Network) -> nn.Module:
    """The network, ``"sparse"`` or ``"dense"``."""
    parts: list[nn.Module] = []
    for number in range(network.layers):
        if kind == "dense":
            parts.append(nn.Conv2d(network.channels, network.channels, 3, padding=1))
        else:
            parts.append(
                wb.SparseConv2d(
                    network.channels,
                    network.channels,
                    3,
                    padding=1,
                    connectivity=network.connectivity,
                    init="sparse-fan-in",
                    seed=number,
                )
            )
        parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def train(kind: str, network: Network) -> tuple[nn.Module, Method, list[float]]:
    """Some training steps with Adam, and the time of each; the sparse network is rewired in every one."""
    model = build(kind, network)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    make = wb.DeepR if kind == "sparse" else wb.Dense
    method: Method = make(model, optimizer)
    x = torch.randn(
        network.batch, network.channels, network.size, network.size, generator=torch.Generator().manual_seed(0)
    )
    times = []
    for _ in range(_STEPS):
        start = time.perf_counter()
        method.zero_grad()
        model(x).square().mean().backward()
        method.step()
        times.append(time.perf_counter() - start)
    for wiring in wb.wirings(model):
        wiring.check()
    return model, method, times


def measure_here(kind: str, network: Network, threads: int) -> dict[str, float]:
    """Memory and time in this process. A tiny network goes first: torch loads much of itself in the first step."""
    torch.set_num_threads(threads)
    train(kind, Network(channels=4, layers=1, connectivity=0.5, batch=1))
    peak = Peak()
    before = peak.read()
    model, method, times = train(kind, network)
    return {"peak": peak.read(), "before": before, "kept": wb.ledger(model, method).total, "seconds": min(times)}


def run_process(kind: str, network: Network, threads: int) -> dict[str, float]:
    """``measure_here`` in a fresh Python."""
    settings = {"kind": kind, "threads": threads, **asdict(network)}
    found: dict[str, float] = run_fresh(__name__, settings, "the memory benchmark")
    return found


def measure_memory(network: Network, settings: Settings) -> tuple[list[Measurement], str]:
    """Both networks; and what the numbers are."""
    rows = []
    for kind in ("dense", "sparse"):
        settings.say(f"memory of {kind} {network.label}")
        found = run_process(kind, network, settings.threads)
        share = f", {100 * network.connectivity:g} %" if kind == "sparse" else ""
        rows.append(
            Measurement(
                kind + share,
                {"training step": Timing(found["seconds"], found["seconds"], _STEPS)},
                {
                    "peak RSS, MB": 1e-6 * found["peak"],
                    "before the network, MB": 1e-6 * found["before"],
                    "peak for the network, MB": 1e-6 * (found["peak"] - found["before"]),
                    "bytes kept, MB": 1e-6 * found["kept"],
                },
            )
        )
    explained = (
        f"Memory: {network.label}, {_STEPS} training steps with Adam, each network in a process of its own. Kept: "
        "parameters, gradients, index and optimiser state. Before: Python and torch, warmed up by a tiny network."
    )
    return rows, explained


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    kind, threads = options.pop("kind"), options.pop("threads", 1)
    print(json.dumps(measure_here(kind, Network(**options), threads)))
