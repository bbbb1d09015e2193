"""Peak memory of a network in training, sparse and dense, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

import wirebound as wb
from wirebound.methods import Method
from wirebound_lab.bench.fresh_process import Peak, run_fresh
from wirebound_lab.bench.problem import first_output
from wirebound_lab.bench.results import Measurement, Settings
from wirebound_lab.bench.timing import Timing


@dataclass(frozen=True)
class MeasuredNetwork:
    """Layers of one width in a row: convolutions 3×3 with ReLU on images, or one LSTM over ``size`` steps."""

    kind: str
    width: int
    size: int
    batch: int = 8
    layers: int = 1
    connectivity: float = 0.01
    steps: int = 3  # of training

    @property
    def label(self) -> str:
        shape = f"{self.layers} × conv 3×3 {self.width}→{self.width} on {self.size}×{self.size}"
        return f"{shape}, B {self.batch}"

    def build(self, sparse: bool) -> nn.Module:
        if self.kind == "lstm":
            if sparse:
                return wb.SparseLSTM(self.width, self.width, connectivity=self.connectivity)
            return nn.LSTM(self.width, self.width)
        parts: list[nn.Module] = []
        for number in range(self.layers):
            sizes, share = (self.width, self.width, 3), self.connectivity
            if sparse:
                parts.append(wb.SparseConv2d(*sizes, padding=1, connectivity=share, init="sparse-fan-in", seed=number))
            else:
                parts.append(nn.Conv2d(*sizes, padding=1))
            parts.append(nn.ReLU())
        return nn.Sequential(*parts)

    def input(self) -> Tensor:
        image = (self.batch, self.width, self.size, self.size)
        shape = (self.size, self.batch, self.width) if self.kind == "lstm" else image
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CONVOLUTIONS = MeasuredNetwork("conv", width=512, size=8, layers=4)
QUICK_CONVOLUTIONS = replace(CONVOLUTIONS, width=128)


def train(network: MeasuredNetwork, sparse: bool) -> tuple[nn.Module, Method, list[float]]:
    """Some training steps with Adam, and the time of each; the sparse network is rewired in every one."""
    model, x = network.build(sparse), network.input()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    method: Method = (wb.DeepR if sparse else wb.Dense)(model, optimizer)
    times = []
    for _ in range(network.steps):
        start = time.perf_counter()
        method.zero_grad()
        first_output(model(x)).square().mean().backward()  # no name for the output: it would outlive the step
        method.step()
        times.append(time.perf_counter() - start)
    for wiring in wb.wirings(model):
        wiring.check()
    return model, method, times


def measure_here(network: Mapping[str, object], sparse: bool, threads: int) -> dict[str, float]:
    """Memory and time in this process. A tiny network goes first: torch loads much of itself in the first step."""
    torch.set_num_threads(threads)
    peak = Peak()
    imports = peak.read()
    wanted = MeasuredNetwork(**network)  # type: ignore[arg-type]
    train(replace(wanted, width=4, layers=1, connectivity=0.5, batch=1), sparse)
    before = peak.read()
    model, method, times = train(wanted, sparse)
    kept = wb.ledger(model, method).total
    return {"peak": peak.read(), "imports": imports, "before": before, "kept": kept, "seconds": min(times)}


def run_process(network: MeasuredNetwork, sparse: bool, threads: int = 1) -> dict[str, float]:
    return run_fresh(measure_here, network=asdict(network), sparse=sparse, threads=threads)


def measure_convolutions(network: MeasuredNetwork, settings: Settings) -> tuple[list[Measurement], str]:
    """Both networks; and what the numbers are."""
    rows = []
    for label, sparse in (("dense", False), (f"sparse, {100 * network.connectivity:g} %", True)):
        settings.say(f"memory of {label} {network.label}")
        found = run_process(network, sparse, settings.threads)
        sizes = {
            "peak RSS, MB": found["peak"],
            "before the network, MB": found["before"],
            "peak for the network, MB": found["peak"] - found["before"],
            "bytes kept, MB": found["kept"],
        }
        times = {"training step": Timing(found["seconds"], found["seconds"], network.steps)}
        rows.append(Measurement(label, times, {name: 1e-6 * value for name, value in sizes.items()}))
    explained = (
        f"Memory: {network.label}, {network.steps} training steps with Adam, each network in a process of its own. "
        "Kept: parameters, gradients, index and optimiser state. Before: Python and torch, warmed up by a tiny network."
    )
    return rows, explained


def measure_lstm(hidden: int, settings: Settings) -> Measurement:
    """Training steps with Adam, of ours and of dense torch."""
    settings.say(f"memory of an LSTM, {hidden}→{hidden}")
    network = MeasuredNetwork("lstm", width=hidden, size=20, steps=2)
    ours, dense = run_process(network, True), run_process(network, False)
    numbers = {
        "peak RSS of ours, GB": 1e-9 * ours["peak"],
        "peak RSS of dense, GB": 1e-9 * dense["peak"],
        "of which imports, GB": 1e-9 * ours["imports"],
        "above imports, dense ÷ ours": (dense["peak"] - dense["imports"]) / max(1.0, ours["peak"] - ours["imports"]),
    }
    share = f"{100 * network.connectivity:g} %"
    return Measurement(f"LSTM {hidden}→{hidden}, T {network.size}, B {network.batch}, {share}, Adam", {}, numbers)
