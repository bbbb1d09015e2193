"""One convolution's work: its sizes, its inputs, and the ways to do it, dense and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound import ops
from wirebound.nn.conv import SparseConv2d
from wirebound.ops.layout import rows_of, signs_of
from wirebound_lab.bench.workload import Answer, Contender


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


class ConvProblem:
    """The tensors of a workload, the same for all contenders."""

    def __init__(self, workload: ConvWorkload, seed: int = 0) -> None:
        self.workload = workload
        self.padding = workload.kernel // 2
        self.layer = SparseConv2d(
            workload.channels,
            workload.channels,
            workload.kernel,
            padding=self.padding,
            bias=False,
            connectivity=workload.connectivity,
            seed=seed,
        )
        generator = torch.Generator().manual_seed(seed)
        shape = (workload.batch, workload.channels, workload.size, workload.size)
        self.x = torch.randn(shape, generator=generator)
        self.dy = torch.randn(shape, generator=generator)

    @property
    def theta(self) -> Tensor:
        return self.layer.wiring.theta.detach()

    def signs(self) -> Tensor:
        return signs_of(self.layer.wiring.packed_rows, self.theta.dtype)

    def at_connections(self, dense: Tensor) -> Tensor:
        """The entries of a dense gradient that belong to connections."""
        code, colptr = self.layer.wiring.packed_rows, self.layer.wiring.colptr
        columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1), colptr.diff())
        return dense.flatten(1)[rows_of(code), columns]


def dense_kernel(problem: ConvProblem) -> Contender:
    """torch's own convolution and its backward, without autograd."""
    x, dy, weight, pad = problem.x, problem.dy, problem.layer.dense_weight(), [problem.padding] * 2

    def run() -> tuple[Tensor, Tensor, Tensor]:
        y = torch.conv2d(x, weight, padding=pad)
        dx, dw, _ = torch.ops.aten.convolution_backward(
            dy, x, weight, None, [1, 1], pad, [1, 1], False, [0, 0], 1, [True, True, False]
        )
        return y, dx, dw

    def answer() -> Answer:
        y, dx, dw = run()
        return Answer(y, dx, problem.at_connections(dw))

    return Contender("dense", run, answer)


def our_kernel(problem: ConvProblem) -> Contender:
    """``ops.conv2d_forward`` and ``ops.conv2d_backward``, without autograd."""
    x, dy, theta, window = problem.x, problem.dy, problem.theta, problem.layer.window
    index = problem.layer.wiring.layer_index(0)

    def run() -> tuple[Tensor, Tensor | None, Tensor | None]:
        y = ops.conv2d_forward(x, theta, index, window, None)
        return y, *ops.conv2d_backward(x, dy, theta, index, window, True, True)

    def answer() -> Answer:
        y, dx, dtheta = run()
        assert dx is not None
        assert dtheta is not None
        return Answer(y, dx, dtheta * problem.signs())

    return Contender("kernel", run, answer)


def _through_autograd(
    name: str, problem: ConvProblem, layer: Callable[[Tensor], Tensor], parameter: Tensor, read: Callable[[Tensor], Tensor]
) -> Contender:
    x, dy = problem.x.clone().requires_grad_(), problem.dy

    def run() -> Tensor:
        x.grad = parameter.grad = None
        y = layer(x)
        torch.autograd.backward(y, dy)
        return y

    def answer() -> Answer:
        y = run()
        assert x.grad is not None
        assert parameter.grad is not None
        return Answer(y.detach(), x.grad, read(parameter.grad))

    return Contender(name, run, answer)


def dense_module(problem: ConvProblem) -> Contender:
    """nn.Conv2d, forward and backward through autograd."""
    layer = problem.layer.dense_twin()
    return _through_autograd("dense module", problem, layer, layer.weight, problem.at_connections)


def masked_module(problem: ConvProblem) -> Contender:
    """The usual way to emulate sparsity: a dense weight times a mask in every forward pass."""
    weight = problem.layer.dense_weight().requires_grad_()
    mask = (weight.detach() != 0).to(weight.dtype)

    def layer(x: Tensor) -> Tensor:
        return F.conv2d(x, weight * mask, padding=problem.padding)

    return _through_autograd("masked module", problem, layer, weight, problem.at_connections)


def our_module(problem: ConvProblem) -> Contender:
    """``SparseConv2d``, forward and backward through autograd."""
    theta = problem.layer.wiring.theta
    return _through_autograd("module", problem, problem.layer, theta, lambda grad: grad * problem.signs())
