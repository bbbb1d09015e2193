"""Our own ways to do a linear layer's work, from the bare kernel to the module."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from wirebound import ops
from wirebound.ops import library
from wirebound_lab.bench.workload import Answer, Contender, Problem


def kernel(problem: Problem, name: str = "kernel", threads: int | None = None) -> Contender:
    """The native functions on tensors that exist already: as bare as dense torch with ``out=``."""
    native = library.load()
    assert native is not None
    threads = torch.get_num_threads() if threads is None else threads
    x, dy, theta = problem.x, problem.dy, problem.theta
    code, colptr = problem.layer.wiring.packed_rows, problem.layer.wiring.colptr
    y, dx, dtheta = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(theta)
    (batch, n_in), n_out = x.shape, dy.shape[1]
    layer = (batch, n_in, n_out, theta.numel(), colptr.data_ptr(), code.data_ptr(), theta.data_ptr())
    forward = partial(
        native.wb_linear_forward_f32, x.data_ptr(), n_in, y.data_ptr(), n_out, *layer, True, None, threads
    )
    backward = partial(
        native.wb_linear_backward_f32,
        x.data_ptr(),
        n_in,
        dy.data_ptr(),
        n_out,
        dx.data_ptr(),
        n_in,
        dtheta.data_ptr(),
        *layer,
        threads,
    )

    def run() -> tuple[Tensor, ...]:
        forward()
        backward()
        return y, dx, dtheta  # which holds them as long as someone may call this: the kernels have addresses only

    def answer() -> Answer:
        run()
        return Answer(y.clone(), dx.clone(), dtheta * problem.signs())

    return Contender(name, run, answer)


def through_ops(problem: Problem, name: str, *, reference: bool = False) -> Contender:
    """``ops.linear_forward`` and ``ops.linear_backward``, which make their results anew."""
    x, dy, theta = problem.x, problem.dy, problem.theta
    index = problem.index
    n_out = problem.workload.n_out

    def run() -> tuple[Tensor, Tensor | None, Tensor | None]:
        y = ops.linear_forward(x, theta, index, n_out, None)
        return y, *ops.linear_backward(x, dy, theta, index, True, True)

    def by_reference() -> tuple[Tensor, Tensor | None, Tensor | None]:
        with ops.use("reference"):
            return run()

    def answer() -> Answer:
        y, dx, dtheta = chosen()
        assert dx is not None
        assert dtheta is not None
        return Answer(y, dx, dtheta * problem.signs())

    chosen = by_reference if reference else run
    return Contender(name, chosen, answer)


def module(problem: Problem) -> Contender:
    """``SparseLinear``, forward and backward through autograd."""
    layer, dy = problem.layer, problem.dy
    x, theta = problem.x.clone().requires_grad_(), layer.wiring.theta

    def run() -> Tensor:
        x.grad = theta.grad = None
        y: Tensor = layer(x)
        torch.autograd.backward(y, dy)
        return y

    def answer() -> Answer:
        y = run()
        assert x.grad is not None
        assert theta.grad is not None
        return Answer(y.detach(), x.grad, theta.grad * problem.signs())

    return Contender("module", run, answer)
