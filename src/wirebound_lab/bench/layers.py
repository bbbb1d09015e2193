"""Convolutional and recurrent layers: torch's dense ones, masked ones and ours; and the memory of training them."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound import ops
from wirebound.methods import Method

from .contenders import LayerProblem, first_output
from .contest import Contender, Contest, Measurement, Ratio, Section, Settings, Table, Timing, Wanted
from .fresh_process import Peak, run_fresh

_RECURRENT: dict[str, type[wb.SparseLSTM] | type[wb.SparseGRU]] = {"LSTM": wb.SparseLSTM, "GRU": wb.SparseGRU}
HIDDEN, QUICK_HIDDEN = 2048, 512


class ConvWorkload(NamedTuple):
    """A layer that keeps the size of its images. Work: forward, gradient to the input, gradient of the weights."""

    channels: int
    kernel: int
    size: int
    connectivity: float
    batch: int

    @property
    def label(self) -> str:
        shape = f"{self.kernel}×{self.kernel} {self.channels}→{self.channels} on {self.size}×{self.size}"
        return f"{shape}, {100 * self.connectivity:g} %, B {self.batch}"


def convolutions(workload: ConvWorkload) -> list[Contender]:
    padding, channels = workload.kernel // 2, workload.channels
    how = {"padding": padding, "bias": False, "connectivity": workload.connectivity, "seed": 0}
    layer = wb.SparseConv2d(channels, channels, workload.kernel, **how)  # type: ignore[arg-type]
    shape = (workload.batch, channels, workload.size, workload.size)
    problem = LayerProblem(layer, shape, shape)
    x, dy, theta, weight = problem.x, problem.dy, problem.theta, layer.dense_weight()
    index, window, pad = layer.wiring.layer_index(0), layer.window, [padding] * 2

    def dense() -> tuple[Tensor, Tensor, Tensor]:
        y = torch.conv2d(x, weight, padding=pad)
        settings = ([1, 1], pad, [1, 1], False, [0, 0], 1, [True, True, False])
        dx, dw, _ = torch.ops.aten.convolution_backward(dy, x, weight, None, *settings)
        return y, dx, dw

    def kernel() -> tuple[Tensor, Tensor | None, Tensor | None]:
        y = ops.backend_of(theta).conv2d_forward(x, theta, index, window, None)
        return y, *ops.backend_of(theta).conv2d_backward(x, dy, theta, index, window, True, True)

    masked = problem.masked_module(lambda x, masked: F.conv2d(x, masked, padding=padding))
    bare = Contender("kernel", kernel, lambda: problem.answer(*kernel()))
    plain = Contender("dense", dense, lambda: problem.dense_answer(*dense()))
    return [plain, problem.dense_module(), masked, problem.module(), bare]


KERNEL = Ratio("dense ÷ kernel", "dense", "kernel", "Conv {}: dense ÷ ours, kernel")
MODULE = Ratio("dense ÷ module, both modules", "dense module", "module")
MASKED = Ratio("masked ÷ module", "masked module", "module")
CONVOLUTIONS = Contest(
    "One convolution's work",
    (
        (ConvWorkload(64, 5, 12, 0.05, 32), {KERNEL.name: Wanted(10, 9)}),
        (ConvWorkload(64, 5, 12, 0.20, 32), {KERNEL.name: Wanted(4, 3)}),
        (ConvWorkload(64, 3, 28, 0.05, 1), {}),
        (ConvWorkload(512, 3, 8, 0.01, 16), {}),
    ),
    convolutions,
    (KERNEL, MODULE, MASKED),
)


class RecurrentWorkload(NamedTuple):
    """A layer and its sequences. Work: forward and backward through autograd, gradients to the layer and to x."""

    kind: str
    n_in: int
    hidden: int
    steps: int
    batch: int
    connectivity: float

    @property
    def label(self) -> str:
        size = f"{self.n_in}→{self.hidden}, T {self.steps}, B {self.batch}"
        return f"{self.kind} {size}, {100 * self.connectivity:g} %"


def recurrent(workload: RecurrentWorkload) -> list[Contender]:
    layer = _RECURRENT[workload.kind](workload.n_in, workload.hidden, connectivity=workload.connectivity, seed=0)
    x, dy = ((workload.steps, workload.batch, width) for width in (workload.n_in, workload.hidden))
    problem = LayerProblem(layer, x, dy)
    return [problem.dense_module("dense", layer.matrix_names), problem.module("ours")]


SPEED = Ratio("dense ÷ ours", "dense", "ours", "{}: dense ÷ ours")
RECURRENT = Contest(
    "One layer through time",
    (
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.01), {SPEED.name: Wanted(15, 13)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.05), {SPEED.name: Wanted(10, 9)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.10), {SPEED.name: Wanted(7, 6.5)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.20), {SPEED.name: Wanted(4.2, 4)}),
        (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.01), {}),
        (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.10), {}),
    ),
    recurrent,
    (SPEED,),
    tolerance=1e-3,  # gradients of float32 through hundreds of steps in another order
    effort=4,
)


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
        return f"{self.layers} × conv 3×3 {self.width}→{self.width} on {self.size}×{self.size}, B {self.batch}"

    def build(self, sparse: bool) -> nn.Module:
        if self.kind == "lstm":
            sizes = (self.width, self.width)
            return wb.SparseLSTM(*sizes, connectivity=self.connectivity) if sparse else nn.LSTM(*sizes)
        parts: list[nn.Module] = []
        for number in range(self.layers):
            how = {"connectivity": self.connectivity, "init": "sparse-fan-in", "seed": number} if sparse else {}
            conv = wb.SparseConv2d if sparse else nn.Conv2d
            parts += [conv(self.width, self.width, 3, padding=1, **how), nn.ReLU()]  # type: ignore[arg-type]
        return nn.Sequential(*parts)

    def train(self, sparse: bool) -> tuple[nn.Module, Method, list[float]]:
        """Some training steps with Adam, and the time of each; the sparse network is rewired in every one."""
        image = (self.batch, self.width, self.size, self.size)
        shape = (self.size, self.batch, self.width) if self.kind == "lstm" else image
        model, x = self.build(sparse), torch.randn(shape, generator=torch.Generator().manual_seed(0))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        method: Method = (wb.DeepR if sparse else wb.Dense)(model, optimizer)
        times = []
        for _ in range(self.steps):
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
    replace(wanted, width=4, layers=1, connectivity=0.5, batch=1).train(sparse)
    before = peak.read()
    model, method, times = wanted.train(sparse)
    kept = wb.ledger(model, method).total
    return {"peak": peak.read(), "imports": imports, "before": before, "kept": kept, "seconds": min(times)}


def run_process(network: MeasuredNetwork, sparse: bool, threads: int = 1) -> dict[str, float]:
    return run_fresh(measure_here, network=asdict(network), sparse=sparse, threads=threads)


def conv_memory(network: MeasuredNetwork, settings: Settings) -> list[Measurement]:
    rows = []
    for label, sparse in (("dense", False), (f"sparse, {100 * network.connectivity:g} %", True)):
        settings.say(f"memory of {label} {network.label}")
        found = run_process(network, sparse, settings.threads)
        sizes = {"peak RSS, MB": found["peak"], "before the network, MB": found["before"]}
        sizes |= {"peak for the network, MB": found["peak"] - found["before"], "bytes kept, MB": found["kept"]}
        times = {"training step": Timing(found["seconds"], found["seconds"], network.steps)}
        rows.append(Measurement(label, times, {name: 1e-6 * value for name, value in sizes.items()}))
    return rows


def lstm_memory(hidden: int, settings: Settings) -> Measurement:
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


def measure_convolutions(settings: Settings) -> Section:
    layers, goals = CONVOLUTIONS.run(settings)
    network = MeasuredNetwork("conv", width=128 if settings.quick else 512, size=8, layers=4)
    memory = Table("Memory of a wide network", conv_memory(network, settings))
    notes = [
        "Work of a layer: forward, gradient to the input, gradient of the weights (at the active positions if sparse); "
        "float32, no bias, images keep their size.",
        "dense, kernel: the functions themselves, results allocated. module: forward and backward through autograd.",
        f"Memory: {network.label}, {network.steps} training steps with Adam, each network in a process of its own. "
        "Kept: parameters, gradients, index and optimiser state. Before: Python and torch, warmed up by a tiny "
        "network.",
    ]
    return Section("conv", "Convolutions", [layers, memory], goals, notes)


def measure_recurrent(settings: Settings) -> Section:
    layers, goals = RECURRENT.run(settings)
    memory = Table("Memory of a training step", [lstm_memory(QUICK_HIDDEN if settings.quick else HIDDEN, settings)])
    notes = [
        "Work of a layer: forward and backward through autograd, as modules; gradients to the input, the weights (at "
        "the active positions if sparse) and the biases; float32.",
        "Memory: peak RSS of a process that takes training steps (Adam; ours with rewiring). Activations are the same "
        "for both; what grows with the weights is not.",
    ]
    return Section("lstm", "Recurrent layers", [layers, memory], goals, notes)
