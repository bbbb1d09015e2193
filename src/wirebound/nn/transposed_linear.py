"""``SparseTransposedLinear``: Hugging Face's ``Conv1D`` (GPT-2), a linear layer whose dense weight lies as [in, out]."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from wirebound.nn.linear import SparseLinear

_MODULES = ("transformers.pytorch_utils", "transformers.modeling_utils")


def is_conv1d(kind: type) -> bool:
    """Whether a class is Hugging Face's ``Conv1D``; their package need not be there to say no."""
    return kind.__name__ == "Conv1D" and kind.__module__ in _MODULES


class SparseTransposedLinear(SparseLinear):
    """Made by ``sparsify`` from a ``Conv1D``; it has that layer's ``nf`` and ``nx``, and becomes one again.

    Args:
        nf, nx: outputs and inputs, as in ``Conv1D``.
        wired: wiring, part and owner, as in ``SparseLinear``.
    """

    def __init__(self, nf: int, nx: int, **wired: Any) -> None:
        super().__init__(nx, nf, True, **wired)
        self.nf, self.nx = nf, nx

    def arranged(self, matrix: Tensor) -> Tensor:
        return matrix.t()

    def dense_twin(self) -> nn.Module:  # type: ignore[override]
        from transformers.pytorch_utils import Conv1D

        theta = self.wiring.theta
        twin = Conv1D(self.nf, self.nx).to(device=theta.device, dtype=theta.dtype)
        with torch.no_grad():
            twin.weight.copy_(self.dense_weight())
            twin.bias.copy_(cast(Tensor, self.bias))
        return twin
