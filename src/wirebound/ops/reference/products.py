"""Products with the sparse matrix of a layer by torch's own CSR tensors, where torch has them: on the CPU.

The index of a wiring is the CSR of Wᵀ already. W itself needs the connections by row; that order costs a sort, so it is
kept for as long as the positions stay what they are. Nothing dense is made: O(K) for the order, and activations.
"""

import functools
import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._C import _DisableTorchDispatch
from torch._C import _len_torch_dispatch_stack as watchers
from torch.utils.weak import WeakTensorKeyDictionary

from wirebound.ops.faults import BAD_INDEX, raise_fault
from wirebound.ops.layer_shapes import Gradients
from wirebound.ops.layout import ROW_MASK, LayerIndex, for_connections, signs_of

_PANEL_ELEMENTS = 1 << 17  # activations of a product, so that they stay in the second cache, but at least so many samples:
_PANEL_SAMPLES = 32


class _Pattern(NamedTuple):
    """Where the connections of a layer are: down the columns, as the wiring has them, and along the rows."""

    packed_rows: Tensor  # both as they were in the wiring, to be compared
    layer_colptr: Tensor
    signs: Tensor
    colptr: Tensor
    rows: Tensor
    rowptr: Tensor
    columns: Tensor  # by row
    by_row: Tensor  # which connection each of these is

    def holds(self, packed_rows: Tensor, layer_colptr: Tensor, dtype: torch.dtype) -> bool:
        # numpy compares without memory of K numbers, and five times faster than torch.equal.
        same = packed_rows.shape == self.packed_rows.shape and self.signs.dtype is dtype
        return (
            same
            and torch.equal(layer_colptr, self.layer_colptr)
            and np.array_equal(packed_rows.numpy(), self.packed_rows.numpy())
        )


# By the array of a wiring, and a layer's first column in it. Compared with what the array holds in every use: positions can
# be written where no version counts, and a product reads memory by them.
_patterns: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def _pattern(index: LayerIndex, n_out: int, dtype: torch.dtype) -> _Pattern:
    known = _patterns.setdefault(index.packed_rows, {})
    packed_rows, layer_colptr = index.layer_packed_rows(), index.layer_colptr()
    pattern: _Pattern | None = known.get(index.first)
    if pattern is None or not pattern.holds(packed_rows, layer_colptr, dtype):
        pattern = known[index.first] = _new_pattern(index, n_out, dtype)
    return pattern


def _new_pattern(index: LayerIndex, n_out: int, dtype: torch.dtype) -> _Pattern:
    packed_rows, layer_colptr = index.layer_packed_rows(), index.layer_colptr()
    connections, device = packed_rows.numel(), packed_rows.device
    numbers = torch.int32 if connections <= ROW_MASK else torch.int64
    columns = torch.arange(layer_colptr.numel() - 1, dtype=numbers, device=device)
    columns = for_connections(columns, layer_colptr, connections)  # which refuses pointers that were overwritten
    rows = (packed_rows & ROW_MASK).to(numbers)
    if int(layer_colptr[0]) != index.start or int(rows.max()) >= n_out:
        raise_fault(BAD_INDEX)
    small = rows.to(torch.int16) if n_out <= 1 << 15 else rows  # sorts faster
    by_row = torch.sort(small, stable=True).indices.to(numbers)
    rowptr = torch.zeros(n_out + 1, dtype=numbers, device=device)
    torch.cumsum(torch.bincount(rows, minlength=n_out), 0, out=rowptr[1:])
    colptr, signs = (layer_colptr - index.start).to(numbers), signs_of(packed_rows, dtype)
    by_column = (packed_rows.clone(), layer_colptr.clone(), signs, colptr, rows)
    return _Pattern(*by_column, rowptr, columns.index_select(0, by_row), by_row)


def _csr(pointers: Tensor, others: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(pointers, others, values, size, check_invariants=False)


@functools.cache
def _torch_has_products(dtype: torch.dtype) -> bool:
    """Builds of torch differ in which products of CSR tensors they have."""
    if dtype not in (torch.float32, torch.float64):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once that CSR tensors are in beta
        try:
            pointers = torch.tensor([0, 1], dtype=torch.int32, device="cpu")
            dense = torch.ones(1, 1, dtype=dtype, device="cpu")
            matrix = _csr(pointers, pointers[:1], dense[0].clone(), (1, 1))
            torch.sparse.sampled_addmm(matrix, dense, dense, out=matrix)
            return float(product(matrix, dense)) == 2.0
        except (AttributeError, RuntimeError):
            return False


def has_products(theta: Tensor, samples: int) -> bool:
    """Whether the work of a layer with this θ is done here. Measured on the CPU, gathering and scattering is slower for
    every K and batch, from twice (K 600, batch 32) to 30 times; on other devices nothing was measured."""
    return theta.is_cpu and theta.numel() > 0 and samples > 0 and _torch_has_products(theta.dtype)


def product(matrix: Tensor, dense: Tensor) -> Tensor:
    """matrix · dense. Into memory of its own, because autocast would have another precision for what it allocates."""
    found = dense.new_empty(matrix.shape[0], dense.shape[1])
    if not watchers():
        return torch.mm(matrix, dense, out=found)
    with _DisableTorchDispatch():  # who counts would take the matrix for a dense one; ``work.py`` has told them
        return torch.mm(matrix, dense, out=found)


class LayerProducts:
    """The matrix W of one layer, [n_out, n_in]."""

    def __init__(self, theta: Tensor, index: LayerIndex, n_out: int) -> None:
        self.theta, self.size = theta.detach(), (n_out, index.last - index.first)
        self.pattern = _pattern(index, n_out, theta.dtype)

    def weight(self) -> Tensor:
        """W."""
        _, _, signs, _, _, rowptr, columns, by_row = self.pattern
        return _csr(rowptr, columns, (self.theta * signs).index_select(0, by_row), self.size)

    def transposed(self) -> Tensor:
        """Wᵀ."""
        _, _, signs, colptr, rows, *_ = self.pattern
        return _csr(colptr, rows, self.theta * signs, self.size[::-1])

    def panels(self, samples: int) -> list[slice]:
        width = max(_PANEL_SAMPLES, _PANEL_ELEMENTS // max(self.size))
        return [slice(start, start + width) for start in range(0, samples, width)]


class ThetaGradient:
    """The gradient to θ, added up panel by panel."""

    def __init__(self, layer: LayerProducts) -> None:
        self._sum, self._signs = torch.zeros_like(layer.theta), layer.pattern.signs
        self._csr = _csr(layer.pattern.colptr, layer.pattern.rows, self._sum, layer.size[::-1])  # the same memory

    def add(self, inputs: Tensor, gradients: Tensor) -> None:
        """Σ_sample input · gradient for inputs [n_in, samples] and gradients [samples, n_out]."""
        torch.sparse.sampled_addmm(self._csr, inputs, gradients, out=self._csr)

    def finish(self) -> Tensor:
        return self._csr.values().mul_(self._signs)


def linear_forward(x: Tensor, theta: Tensor, index: LayerIndex, n_out: int, bias: Tensor | None) -> Tensor:
    layer, y = LayerProducts(theta, index, n_out), x.new_empty(x.shape[0], n_out)
    weight = layer.weight()
    for panel in layer.panels(x.shape[0]):
        found = product(weight, x[panel].t()).t()
        if bias is None:
            y[panel] = found
        else:
            torch.add(found, bias, out=y[panel])
    return y


def linear_backward(
    x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
) -> Gradients:
    layer = LayerProducts(theta, index, dy.shape[1])
    transposed = layer.transposed() if need_dx else None
    dtheta = ThetaGradient(layer) if need_dtheta else None
    found = []
    for panel in layer.panels(x.shape[0]):
        upstream = dy[panel].t().contiguous()  # once for both
        if transposed is not None:
            found.append(product(transposed, upstream).t())
        if dtheta is not None:
            dtheta.add(x[panel].t(), upstream.t())
    # Of one panel the gradient stays transposed, as the layer before will want it.
    dx = None if transposed is None else found[0] if len(found) == 1 else torch.cat(found)
    return dx, None if dtheta is None else dtheta.finish()
