"""Convolutions: dense torch, masked dense and ours; and the memory of a wide network against its dense twin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound import ops
from wirebound.nn.conv import SparseConv2d
from wirebound_lab.bench.contest import Answer, Contender, Contest, Ratio
from wirebound_lab.bench.memory import CONVOLUTIONS, QUICK_CONVOLUTIONS, measure_convolutions
from wirebound_lab.bench.problem import LayerProblem
from wirebound_lab.bench.results import Section, Settings, Table


@dataclass(frozen=True)
class ConvWorkload:
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


def line_up(workload: ConvWorkload) -> list[Contender]:
    """All contenders for a workload."""
    padding, channels = workload.kernel // 2, workload.channels
    how = {"padding": padding, "bias": False, "connectivity": workload.connectivity, "seed": 0}
    layer = SparseConv2d(channels, channels, workload.kernel, **how)  # type: ignore[arg-type]
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

    def kernel_answer() -> Answer:
        return problem.answer(*kernel())

    return [
        Contender("dense", dense, lambda: problem.dense_answer(*dense())),
        problem.dense_module(),
        problem.masked_module(lambda x, masked: F.conv2d(x, masked, padding=padding)),
        problem.module(),
        Contender("kernel", kernel, kernel_answer),
    ]


KERNEL = Ratio("dense ÷ kernel", "dense", "kernel", "Conv {}: dense ÷ ours, kernel")
MODULE = Ratio("dense ÷ module, both modules", "dense module", "module")
MASKED = Ratio("masked ÷ module", "masked module", "module")
LAYERS = Contest(
    "One convolution's work",
    (
        (ConvWorkload(64, 5, 12, 0.05, 32), {KERNEL.name: (8.0, 7.4)}),
        (ConvWorkload(64, 5, 12, 0.20, 32), {KERNEL.name: (2.5, 2.3)}),
        (ConvWorkload(64, 3, 28, 0.05, 1), {}),
        (ConvWorkload(512, 3, 8, 0.01, 16), {}),
    ),
    line_up,
    (KERNEL, MODULE, MASKED),
)


def measure(settings: Settings) -> Section:
    layers, goals = LAYERS.run(settings)
    memory, explained = measure_convolutions(QUICK_CONVOLUTIONS if settings.quick else CONVOLUTIONS, settings)
    notes = [
        "Work of a layer: forward, gradient to the input, gradient of the weights (at the active positions if sparse); "
        "float32, no bias, images keep their size.",
        "dense, kernel: the functions themselves, results allocated. module: forward and backward through autograd.",
        explained,
    ]
    return Section("conv", "Convolutions", [layers, Table("Memory of a wide network", memory)], goals, notes)
