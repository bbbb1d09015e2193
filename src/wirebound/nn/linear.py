"""``SparseLinear``: ``nn.Linear`` with K connections instead of a matrix, and the same for Hugging Face's ``Conv1D``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound import ops
from wirebound.nn.inputs import settle_bias, settle_input, sparse_product
from wirebound.nn.options import WiringOptions
from wirebound.nn.sparse_input import csr_product, is_sparse_input, settle_rows
from wirebound.nn.sparse_layer import Matrix, SparseLayer
from wirebound.nn.trace import by_operators, in_graph, recorded
from wirebound.nn.traced import is_watched, run_outside, traced_linear
from wirebound.ops.layout import LayerIndex, index_of
from wirebound.wiring import LayerShape

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass
class LinearGradient:
    """Input and output gradient of one pass: the gradient of any weight is their product (``GradientSource``)."""

    x: Tensor  # [batch, n_in]
    dy: Tensor  # [batch, n_out]

    def block(self, first: int, last: int) -> Tensor:
        return self.dy.t() @ self.x[:, first:last]

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        index = index_of(rows, columns, self.x.shape[1])  # as if these were the connections of the layer
        theta = self.dy.new_zeros(rows.numel())
        return cast(Tensor, ops.backend_of(theta).linear_backward(self.x.detach(), self.dy, theta, index, False, True)[1])


class SparseLinear(SparseLayer):
    """y = x Wᵀ + b with a W of exactly K connections, stored and computed as such.

    The input is dense, or a CSR or COO tensor [batch, in_features]: then only meetings of a nonzero input and a connection
    are computed, y is dense, and there is no gradient to the input.

    Args:
        in_features, out_features, bias: as in ``nn.Linear``.
        options: connectivity, budget and the other fields of ``WiringOptions``.
    """

    dense_class = nn.Linear
    arguments = ("in_features", "out_features", "bias")
    bias_sums = (0,)  # what the gradient of the bias sums over
    gradient_source = LinearGradient

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **options: "Unpack[WiringOptions]") -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.wire(LayerShape("linear", out_features, in_features), bias, options)

    def forward(self, x: Tensor) -> Tensor:
        if recorded(x, self.fast_wiring):
            if in_graph(x):
                outside = is_watched(self.fast_wiring) or is_sparse_input(x)
                return cast(Tensor, run_outside(self.forward, x)) if outside else traced_linear(self, x)
            if is_sparse_input(x):
                raise ValueError(f"{type(self).__name__} cannot be traced, exported or transformed with a sparse input")
            return cast(Tensor, by_operators(self, F.linear, x))
        theta = self.fast_wiring.layer_theta(self.layer_id)
        if is_sparse_input(x):
            return csr_product(settle_rows(x, theta, self), theta, self._settled_bias(theta), self)
        x = settle_input(x, theta, self, pieces=True)
        shape = x.shape
        if not shape or shape[-1] != self.in_features:
            last = shape[-1] if shape else "none"
            raise ValueError(f"the last dimension of the input (={last}) must be in_features (={self.in_features})")
        rows = x if len(shape) == 2 else x.reshape(-1, self.in_features)
        y = sparse_product(rows, theta, self._settled_bias(theta), self)
        return y if len(shape) == 2 else y.view(*shape[:-1], self.out_features)

    def _settled_bias(self, theta: Tensor) -> Tensor | None:
        try:
            bias: Tensor | None = self._parameters["bias"]  # nn.Module takes longer to find an attribute
        except KeyError:  # a parametrization computes it
            bias = self.bias
        return settle_bias(bias, theta, self.out_features, self)

    def op_forward(self, x: Tensor, theta: Tensor, index: LayerIndex, bias: Tensor | None) -> Tensor:
        return ops.backend_of(theta).linear_forward(x, theta, index, self.out_features, bias)

    def op_backward(
        self, x: Tensor, dy: Tensor, theta: Tensor, index: LayerIndex, need_dx: bool, need_dtheta: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        return ops.backend_of(theta).linear_backward(x, dy, theta, index, need_dx, need_dtheta)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}, {self.repr_active()}"


def is_conv1d(kind: type) -> bool:
    """Whether a class is Hugging Face's ``Conv1D``; their package need not be installed."""
    return kind.__name__ == "Conv1D" and kind.__module__ in ("transformers.pytorch_utils", "transformers.modeling_utils")


class SparseTransposedLinear(SparseLinear):
    """Made by ``sparsify`` from Hugging Face's ``Conv1D`` (GPT-2), a linear layer whose dense weight lies as [in, out]."""

    def __init__(self, nf: int, nx: int, **options: "Unpack[WiringOptions]") -> None:
        super().__init__(nx, nf, True, **options)
        self.nf, self.nx = nf, nx

    @classmethod
    def matrices_of(cls, dense: Any) -> list[Matrix]:
        return [Matrix("", dense.weight, dense.nf, dense.weight.shape[0], lambda weight: weight.t())]

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"nf": module.nf, "nx": module.weight.shape[0]}

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.t()

    def dense_twin(self) -> Any:
        from transformers.pytorch_utils import Conv1D

        theta = self.wiring.theta
        twin = Conv1D(self.nf, self.nx).to(device=theta.device, dtype=theta.dtype)
        with torch.no_grad():
            self.fill_dense(twin)
        return twin
