"""Products with CSR tensors of torch (cuSPARSE on CUDA, MKL on the CPU) as operators that graphs and fake tensors know."""

import functools
import warnings

import torch
from torch import Tensor


@functools.cache
def _warned() -> None:
    """torch says once that CSR tensors are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        none = torch.empty(0, device="cpu")
        torch.sparse_csr_tensor(torch.zeros(2, dtype=torch.int64, device="cpu"), none.to(torch.int64), none, (1, 1))


def _csr(pointers: Tensor, others: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    _warned()
    return torch.sparse_csr_tensor(pointers, others, values, size, check_invariants=False)


@torch.library.custom_op("wirebound::csr_product", mutates_args=())
def csr_product(pointers: Tensor, others: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """The matrix of CSR arrays, [pointers − 1, rows of ``dense``], times ``dense``."""
    rows = pointers.numel() - 1
    matrix = _csr(pointers, others, values, (rows, dense.shape[0]))
    return torch.mm(matrix, dense, out=dense.new_empty(rows, dense.shape[1]))  # autocast leaves ``out`` alone


@csr_product.register_fake
def _(pointers: Tensor, others: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    return dense.new_empty(pointers.shape[0] - 1, dense.shape[1])


@torch.library.custom_op("wirebound::csr_sampled", mutates_args=())
def csr_sampled(pointers: Tensor, others: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """left · right at the places of a CSR pattern, as its values."""
    values = left.new_zeros(others.numel())
    pattern = _csr(pointers, others, values, (left.shape[0], right.shape[1]))
    torch.sparse.sampled_addmm(pattern, left, right, out=pattern)
    return pattern.values().clone()


@csr_sampled.register_fake
def _(pointers: Tensor, others: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty(others.shape[0])
