"""What torch itself offers for a linear layer's work: dense, masked dense, and its CSR tensors."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound_lab.bench.timing import race
from wirebound_lab.bench.workload import Answer, Contender, Problem

CSR_FORMULATIONS = ("views", "copies", "right")


def dense_kernel(problem: Problem) -> Contender:
    """Three matrix products into tensors that exist already; no autograd."""
    weight, x, dy = problem.layer.dense_weight(), problem.x, problem.dy
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(weight)
    rows, columns = problem.places()

    def run() -> None:
        torch.mm(x, weight.t(), out=y)
        torch.mm(dy, weight, out=dx)
        torch.mm(dy.t(), x, out=dw)

    def answer() -> Answer:
        run()
        return Answer(y.clone(), dx.clone(), dw[rows, columns])

    return Contender("dense", run, answer)


def dense_module(problem: Problem) -> Contender:
    """nn.Linear, forward and backward through autograd."""
    layer = nn.Linear(problem.workload.n_in, problem.workload.n_out, bias=False)
    with torch.no_grad():
        layer.weight.copy_(problem.layer.dense_weight())
    return _through_autograd("dense module", problem, layer, layer.weight)


def masked_module(problem: Problem) -> Contender:
    """The usual way to emulate sparsity: a dense weight times a mask in every forward pass."""
    rows, columns = problem.places()
    weight = problem.layer.dense_weight().requires_grad_()
    mask = torch.zeros_like(weight, requires_grad=False)
    mask[rows, columns] = 1.0
    return _through_autograd("masked module", problem, lambda x: F.linear(x, weight * mask), weight)


def _through_autograd(name: str, problem: Problem, layer: object, weight: Tensor) -> Contender:
    x, dy = problem.x.clone().requires_grad_(), problem.dy
    rows, columns = problem.places()
    assert callable(layer)

    def run() -> Tensor:
        x.grad = weight.grad = None
        y: Tensor = layer(x)
        torch.autograd.backward(y, dy)
        return y

    def answer() -> Answer:
        y = run()
        assert x.grad is not None
        assert weight.grad is not None
        return Answer(y.detach(), x.grad, weight.grad[rows, columns])

    return Contender(name, run, answer)


class _Csr:
    """W, Wᵀ and the pattern of W as CSR tensors. Wᵀ is a second copy, kept up to date free of charge."""

    def __init__(self, problem: Problem) -> None:
        weight = problem.layer.dense_weight()
        rows, columns = problem.places()
        pattern = torch.zeros_like(weight, dtype=torch.bool)
        pattern[rows, columns] = True  # a weight of exactly 0 is a connection too
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CSR tensors are in beta, torch says
            self.w = _csr(weight, pattern)
            self.wt = _csr(weight.t().contiguous(), pattern.t().contiguous())
            self.zero = torch.sparse_csr_tensor(
                self.w.crow_indices(), self.w.col_indices(), torch.zeros(problem.budget), self.w.shape
            )
        self.x, self.dy = problem.x, problem.dy
        self.xt, self.dyt = self.x.t().contiguous(), self.dy.t().contiguous()
        self.rows, self.columns = rows, columns

    def views(self) -> tuple[Tensor, Tensor, Tensor]:
        y, dx = torch.mm(self.w, self.x.t()).t(), torch.mm(self.wt, self.dy.t()).t()
        return y, dx, torch.sparse.sampled_addmm(self.zero, self.dy.t(), self.x, beta=0.0)

    def copies(self) -> tuple[Tensor, Tensor, Tensor]:
        xt, dyt = self.x.t().contiguous(), self.dy.t().contiguous()
        y, dx = torch.mm(self.w, xt).t(), torch.mm(self.wt, dyt).t()
        return y, dx, torch.sparse.sampled_addmm(self.zero, dyt, xt.t(), beta=0.0)

    def right(self) -> tuple[Tensor, Tensor, Tensor]:
        y, dx = torch.mm(self.x, self.w.t()), torch.mm(self.dy, self.w)
        return y, dx, torch.sparse.sampled_addmm(self.zero, self.dy.t(), self.x, beta=0.0)

    def transposed(self) -> tuple[Tensor, Tensor, Tensor]:
        y, dx = torch.mm(self.w, self.xt).t(), torch.mm(self.wt, self.dyt).t()
        return y, dx, torch.sparse.sampled_addmm(self.zero, self.dyt, self.xt.t(), beta=0.0)

    def contender(self, name: str, formulation: str) -> Contender:
        run = getattr(self, formulation)

        def answer() -> Answer:
            y, dx, dw = run()
            return Answer(y, dx, dw.to_dense()[self.rows, self.columns])

        return Contender(name, run, answer)


def _csr(dense: Tensor, pattern: Tensor) -> Tensor:
    shape = torch.where(pattern, torch.ones_like(dense), torch.zeros_like(dense)).to_sparse_csr()
    return torch.sparse_csr_tensor(shape.crow_indices(), shape.col_indices(), dense[pattern], dense.shape)


def csr_kernels(problem: Problem) -> tuple[Contender, Contender, str]:
    """torch's CSR on the same row-major inputs; on activations kept transposed; the formulation of the first.

    The first is the fastest formulation. The second gets transposed activations free of charge, which is
    better than any formulation can be within one layer.
    """
    csr = _Csr(problem)
    trial = race({name: getattr(csr, name) for name in CSR_FORMULATIONS}, seconds=0.1, rounds=4)
    fastest = min(trial, key=lambda name: trial[name].best)
    return csr.contender("torch CSR", fastest), csr.contender("CSR transposed", "transposed"), fastest
