"""The weight matrices of a plain model, for methods whose storage is dense by nature."""

from __future__ import annotations

import fnmatch
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn, optim

from wirebound.methods.attach import require_free
from wirebound.methods.method import Unbounded
from wirebound.nn.sparse_layer import wirings
from wirebound.wiring import LayerShape


@dataclass(frozen=True)
class Matrix:
    """A parameter with more than one dimension, read as a matrix: the first dimension is the outputs."""

    shape: LayerShape
    theta: nn.Parameter  # the name that the adapter to optimisers knows

    @property
    def budget(self) -> int:
        return self.theta.numel()

    @property
    def weight(self) -> Tensor:
        """The weights as one row, sharing the parameter's memory."""
        return self.theta.detach().view(-1)

    @property
    def grad(self) -> Tensor | None:
        """Their gradient as one row, sharing its memory; None where the matrix is no part of the loss."""
        if self.theta.grad is None:
            return None
        if not self.theta.grad.is_contiguous():
            self.theta.grad = self.theta.grad.contiguous()
        return self.theta.grad.view(-1)


def find_matrices(method: str, model: nn.Module, optimizer: optim.Optimizer, exclude: str | Iterable[str]) -> list[Matrix]:
    """The weight matrices of a plain model that are trained and not excluded by the patterns of their names."""
    if wirings(model):
        raise ValueError(f"{method} needs a plain model, but this one has sparse layers: pass wb.to_dense(model)")
    patterns = [exclude] if isinstance(exclude, str) else list(exclude)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found = []
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or not parameter.numel() or not parameter.requires_grad:
            continue
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        if id(parameter) not in held:
            raise ValueError(f"optimizer (={type(optimizer).__name__}) lacks parameter {name!r}: train it, or exclude it")
        if not parameter.is_contiguous():
            raise ValueError(f"parameter {name!r} must be contiguous in memory to be trained by {method}")
        rows = parameter.shape[0]
        found.append(Matrix(LayerShape(name, rows, parameter.numel() // rows), parameter))
    if not found:
        raise ValueError(f"model (={type(model).__name__}) has no weight matrix for {method} that is not excluded")
    return found


class MatrixMethod(Unbounded):
    """A method on the plain model, without a bound on its connections."""

    plain = True

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, exclude: str | Iterable[str]) -> None:
        require_free(optimizer)
        self.model, self.optimizer = model, optimizer
        self.matrices = find_matrices(type(self).__name__, model, optimizer, exclude)
        self.shapes = tuple(matrix.shape for matrix in self.matrices)

    @abstractmethod
    def layer_active(self) -> list[int]:
        """Connections of each layer now."""

    def masks(self) -> list[Tensor]:
        """Which weights of each matrix are connections now, as one row of numbers or truths."""
        return [matrix.weight != 0 for matrix in self.matrices]

    def layer_positions(self) -> list[Tensor]:
        return [
            mask.view(shape.n_out, shape.n_in).t().reshape(-1).nonzero().view(-1).cpu()
            for shape, mask in zip(self.shapes, self.masks(), strict=True)
        ]

    def lr(self, matrix: Matrix) -> float:
        """η of the matrix's parameter group, as a scheduler has left it."""
        for group in self.optimizer.param_groups:
            if any(parameter is matrix.theta for parameter in group["params"]):
                return float(group["lr"])
        raise ValueError(f"parameter {matrix.shape.name!r} is no longer in the optimiser")
