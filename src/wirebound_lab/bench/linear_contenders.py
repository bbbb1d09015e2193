"""The ways to do a linear layer's work: dense torch, masked, torch's CSR tensors, and ours down to the bare kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound import ops
from wirebound.nn.linear import SparseLinear
from wirebound.ops import library
from wirebound_lab.bench.contest import Answer, Contender
from wirebound_lab.bench.problem import LayerProblem, places
from wirebound_lab.bench.timing import race

Three = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class LinearWorkload:
    """A layer and a batch. Work: forward, gradient to the input, gradient at the active positions."""

    n_in: int
    n_out: int
    connectivity: float
    batch: int

    @property
    def label(self) -> str:
        return f"{self.n_in}→{self.n_out}, {100 * self.connectivity:g} %, B {self.batch}"


class LinearProblem(LayerProblem):
    """The tensors of a workload; ``budget`` says K exactly."""

    def __init__(self, workload: LinearWorkload, budget: int | None = None) -> None:
        self.workload = workload
        amount = {"connectivity": workload.connectivity} if budget is None else {"budget": budget}
        layer = SparseLinear(workload.n_in, workload.n_out, bias=False, seed=0, **amount)
        super().__init__(layer, (workload.batch, workload.n_in), (workload.batch, workload.n_out))
        self.budget = self.wiring.budget

    def masked(self) -> Contender:
        return self.masked_module(F.linear)


def dense_kernel(problem: LinearProblem) -> Contender:
    """Three matrix products into tensors that exist already; no autograd."""
    weight, x, dy = problem.layer.dense_weight(), problem.x, problem.dy
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(weight)

    def run() -> None:
        torch.mm(x, weight.t(), out=y)
        torch.mm(dy, weight, out=dx)
        torch.mm(dy.t(), x, out=dw)

    def answer() -> Answer:
        run()
        return problem.dense_answer(y.clone(), dx.clone(), dw)

    return Contender("dense", run, answer)


def csr_ways(problem: LinearProblem) -> dict[str, Contender]:
    """torch's CSR tensors in several formulations. Wᵀ is a second copy, kept up to date free of charge."""
    weight, x, dy = problem.layer.dense_weight(), problem.x, problem.dy
    pattern = torch.zeros_like(weight, dtype=torch.bool)
    pattern[places(problem.wiring)] = True  # a weight of exactly 0 is a connection too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR tensors are in beta, torch says
        w, wt = _csr(weight, pattern), _csr(weight.t().contiguous(), pattern.t().contiguous())
        zero = _csr(torch.zeros_like(weight), pattern)
    xt, dyt = x.t().contiguous(), dy.t().contiguous()

    def left(xt: Tensor, dyt: Tensor) -> Three:
        y, dx = torch.mm(w, xt).t(), torch.mm(wt, dyt).t()
        return y, dx, torch.sparse.sampled_addmm(zero, dyt, xt.t(), beta=0.0)

    def right() -> Three:
        y, dx = torch.mm(x, w.t()), torch.mm(dy, w)
        return y, dx, torch.sparse.sampled_addmm(zero, dy.t(), x, beta=0.0)

    runs: dict[str, Callable[[], Three]] = {
        "views": lambda: left(x.t(), dy.t()),
        "copies": lambda: left(x.t().contiguous(), dy.t().contiguous()),
        "right": right,
        "transposed": lambda: left(xt, dyt),
    }

    def contender(run: Callable[[], Three]) -> Contender:
        def answer() -> Answer:
            y, dx, dw = run()
            return problem.dense_answer(y, dx, dw.to_dense())

        return Contender("torch CSR", run, answer)

    return {name: contender(run) for name, run in runs.items()}


def _csr(dense: Tensor, pattern: Tensor) -> Tensor:
    shape = pattern.to(dense.dtype).to_sparse_csr()
    return torch.sparse_csr_tensor(shape.crow_indices(), shape.col_indices(), dense[pattern], dense.shape)


def csr_kernels(problem: LinearProblem) -> tuple[Contender, Contender, str]:
    """torch's CSR on the same row-major inputs; on activations kept transposed; the formulation of the first.

    The first is the fastest formulation. The second gets transposed activations free of charge, which is better than
    any formulation can be within one layer.
    """
    csr = csr_ways(problem)
    transposed = replace(csr.pop("transposed"), name="CSR transposed")
    trial = race({name: contender.run for name, contender in csr.items()}, seconds=0.1, rounds=4)
    fastest = min(trial, key=lambda name: trial[name].best)
    return csr[fastest], transposed, fastest


def kernel(problem: LinearProblem, name: str = "kernel", threads: int | None = None) -> Contender:
    """The native functions on tensors that exist already: as bare as dense torch with ``out=``."""
    native = library.load()
    assert native is not None
    threads = torch.get_num_threads() if threads is None else threads
    x, dy, theta, wiring = problem.x, problem.dy, problem.theta, problem.wiring
    y, dx, dtheta = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(theta)
    (batch, n_in), n_out = x.shape, dy.shape[1]
    arrays = (wiring.colptr.data_ptr(), wiring.packed_rows.data_ptr(), theta.data_ptr())
    layer = (batch, n_in, n_out, theta.numel(), *arrays)
    x_, y_, dx_, dy_ = ((tensor.data_ptr(), tensor.shape[1]) for tensor in (x, y, dx, dy))
    forward = partial(native.wb_linear_forward_f32, *x_, *y_, *layer, True, None, threads)
    backward = partial(native.wb_linear_backward_f32, *x_, *dy_, *dx_, dtheta.data_ptr(), *layer, threads)

    def run() -> tuple[Tensor, ...]:
        forward()
        backward()
        return x, y, dx, dy, dtheta  # holds them as long as someone may call this: the kernels have addresses only

    def answer() -> Answer:
        run()
        return problem.answer(y.clone(), dx.clone(), dtheta)

    return Contender(name, run, answer)


def through_ops(problem: LinearProblem, name: str = "ops", *, reference: bool = False) -> Contender:
    """``linear_forward`` and ``linear_backward`` of the backend, which allocate their results."""
    x, dy, theta, index = problem.x, problem.dy, problem.theta, problem.wiring.layer_index(0)
    n_out = problem.workload.n_out

    def run() -> tuple[Tensor, Tensor | None, Tensor | None]:
        y = ops.backend_of(theta).linear_forward(x, theta, index, n_out, None)
        return y, *ops.backend_of(theta).linear_backward(x, dy, theta, index, True, True)

    def by_reference() -> tuple[Tensor, Tensor | None, Tensor | None]:
        with ops.use("reference"):
            return run()

    chosen = by_reference if reference else run
    return Contender(name, chosen, lambda: problem.answer(*chosen()))


def bare(problem: LinearProblem, name: str = "kernel") -> Contender:
    """The kernel, or the reference where it was not built."""
    return kernel(problem, name) if ops.native_available() else through_ops(problem, name, reference=True)
