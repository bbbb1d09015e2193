"""Products with the sparse matrix of a layer, in O(K) memory beside activations, without asking the device anything.

Two ways: torch's CSR tensors, where the device has them, and gathering and adding up, anywhere. A wiring over several
layers comes whole, because only the device knows where a layer's connections begin: those of other layers have weight 0 in
a row of their own, and cost the work of a connection. Wirings over one layer have none.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from wirebound.ops.device.csr import csr_product, csr_sampled
from wirebound.ops.layout import LayerIndex, for_connections, rows_of, signs_of

CSR_DEVICES = ("cpu", "cuda")  # of torch builds with products of CSR tensors
CSR_DTYPES = (torch.float32, torch.float64)
_CHUNK_ELEMENTS = 1 << 22  # activations gathered at a time, so that scratch does not grow with K
_by_csr = True


@contextmanager
def without_csr() -> Iterator[None]:
    """Within the block, products gather and add up on every device."""
    global _by_csr
    before, _by_csr = _by_csr, False
    try:
        yield
    finally:
        _by_csr = before


class Pattern:
    """Where the connections of a layer are: down its columns, as the wiring has them, and along its rows."""

    def __init__(self, index: LayerIndex, n_out: int, groups: tuple[int, int] | None = None) -> None:
        packed_rows, colptr, device = index.packed_rows, index.colptr, index.packed_rows.device
        connections, n_in = packed_rows.numel(), index.last - index.first
        columns = for_connections(torch.arange(colptr.numel() - 1, device=device), colptr, connections) - index.first
        self.rows, self.n_out, self.n_in, self.bound = rows_of(packed_rows), n_out, n_in, index.bound
        self.own: Tensor | None = None
        if n_in != colptr.numel() - 1:  # connections of other layers too
            self.own = (columns >= 0) & (columns < n_in)
            self.rows, columns = torch.where(self.own, self.rows, 0), torch.where(self.own, columns, 0)
        self.sorted_columns: Tensor | None = colptr[index.first : index.last + 1]
        if groups is not None:  # columns of a grouped convolution: those of the group's channels
            per_group, width = groups
            columns = columns + torch.div(self.rows, per_group, rounding_mode="floor") * width
            self.sorted_columns, self.n_in = None, width * (n_out // per_group)
        self.columns = columns
        self.signs = packed_rows
        self._by_row: tuple[Tensor, Tensor, Tensor] | None = None

    def weights(self, theta: Tensor) -> Tensor:
        found = theta * signs_of(self.signs, theta.dtype)
        if self.bound:
            found = torch.where(theta >= 0, found, 0.0)  # what is below 0 is dormant
        return found if self.own is None else torch.where(self.own, found, 0.0)

    def of_theta(self, gradient: Tensor, theta: Tensor) -> Tensor:
        """From the gradient of weights to that of θ."""
        found = gradient * signs_of(self.signs, gradient.dtype)
        if self.bound:
            found = torch.where(theta >= 0, found, 0.0)
        return found if self.own is None else torch.where(self.own, found, 0.0)

    def by_row(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers, columns, and which connection each is; those of other layers stand in a row behind the last."""
        if self._by_row is None:
            keys = self.rows if self.own is None else torch.where(self.own, self.rows, self.n_out)
            ordered, order = keys.sort(stable=True)
            extra = 1 if self.own is None else 2
            ends = torch.arange(self.n_out + extra, device=keys.device)
            self._by_row = torch.searchsorted(ordered, ends), self.columns[order], order
        return self._by_row

    def by_column(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Column pointers, rows, and which connection each is (None: as in the wiring); those of other layers before the
        first column and behind the last."""
        if self.sorted_columns is not None and self.own is None:
            return self.sorted_columns, self.rows, None
        if self.sorted_columns is not None:
            zero, count = self.rows.new_zeros(1), self.rows.new_full((1,), self.rows.numel())
            return torch.cat((zero, self.sorted_columns, count)), self.rows, None
        keys = self.columns if self.own is None else torch.where(self.own, self.columns, self.n_in)
        ordered, order = keys.sort(stable=True)
        ends = torch.arange(self.n_in + (1 if self.own is None else 2), device=keys.device)
        pointers = torch.searchsorted(ordered, ends)
        if self.own is not None:
            pointers = torch.cat((pointers.new_zeros(1), pointers))  # nobody before the first
        return pointers, self.rows[order], order


def _chunks(samples: int, connections: int) -> list[slice]:
    size = max(1, _CHUNK_ELEMENTS // max(1, samples))
    return [slice(start, start + size) for start in range(0, connections, size)]


class Products:
    """W [n_out, n_in] of a pattern and its θ: products with features × samples."""

    def __init__(self, pattern: Pattern, theta: Tensor) -> None:
        self.pattern, self.theta = pattern, theta.detach()
        self.weights = pattern.weights(self.theta)
        self.by_csr = _by_csr and theta.device.type in CSR_DEVICES and theta.dtype in CSR_DTYPES and theta.numel() > 0

    def forward(self, inputs: Tensor) -> Tensor:
        """W · inputs."""
        pattern, samples = self.pattern, inputs.shape[1]
        if self.by_csr and samples:
            pointers, columns, order = pattern.by_row()
            return csr_product(pointers, columns, self.weights[order], inputs.contiguous())[: pattern.n_out]
        found = inputs.new_zeros(pattern.n_out, samples)
        for part in _chunks(samples, self.theta.numel()):
            found.index_add_(0, pattern.rows[part], inputs[pattern.columns[part]] * self.weights[part, None])
        return found

    def backward(self, gradients: Tensor) -> Tensor:
        """Wᵀ · gradients."""
        pattern, samples = self.pattern, gradients.shape[1]
        if self.by_csr and samples:
            pointers, rows, order = pattern.by_column()
            values = self.weights if order is None else self.weights[order]
            found = csr_product(pointers, rows, values, gradients.contiguous())
            return found if pattern.own is None else found[1:-1]
        found = gradients.new_zeros(pattern.n_in, samples)
        for part in _chunks(samples, self.theta.numel()):
            found.index_add_(0, pattern.columns[part], gradients[pattern.rows[part]] * self.weights[part, None])
        return found

    def sampled(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """The gradient to θ: Σ_sample input · gradient at each connection."""
        pattern, samples = self.pattern, inputs.shape[1]
        if self.by_csr and samples and pattern.own is None:  # others would be many at one place, which no pattern may have
            pointers, rows, order = pattern.by_column()
            found = csr_sampled(pointers, rows, inputs.contiguous(), gradients.t())
            if order is not None:
                found = torch.zeros_like(found).scatter_(0, order, found)
            return pattern.of_theta(found, self.theta)
        found = torch.zeros_like(self.theta)
        for part in _chunks(samples, self.theta.numel()):
            found[part] = (inputs[pattern.columns[part]] * gradients[pattern.rows[part]]).sum(1)
        return pattern.of_theta(found, self.theta)
