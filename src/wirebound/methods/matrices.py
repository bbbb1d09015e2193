"""The weight matrices of a plain model, for methods whose storage is dense by nature."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, optim

from wirebound import ops
from wirebound.methods.attach import require_free
from wirebound.methods.method import Unbounded
from wirebound.nn.sparse_layer import wirings
from wirebound.wiring import LayerShape


def count_of(row: Tensor) -> Any:
    """How many are not 0: a number, or a scalar that stays on its device."""
    count = torch.count_nonzero(row)
    return count if ops.whole_wirings(row) else int(count)


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


class MatrixMethod(Unbounded):
    """A method on the matrices of a plain model that are trained and not excluded, without a bound on connections."""

    plain = True

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer, exclude: str | Iterable[str]) -> None:
        require_free(optimizer)
        self.model, self.optimizer, mine = model, optimizer, type(self).__name__
        if wirings(model):
            raise ValueError(f"{mine} needs a plain model, but this one has sparse layers: pass wb.to_dense(model)")
        patterns = [exclude] if isinstance(exclude, str) else list(exclude)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.matrices: list[Matrix] = []
        for name, parameter in model.named_parameters():
            excluded = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            if excluded or parameter.dim() < 2 or not parameter.numel() or not parameter.requires_grad:
                continue
            if id(parameter) not in held:
                raise ValueError(f"optimizer (={type(optimizer).__name__}) lacks parameter {name!r}: train it, or exclude it")
            if not parameter.is_contiguous():
                raise ValueError(f"parameter {name!r} must be contiguous in memory to be trained by {mine}")
            rows = parameter.shape[0]
            self.matrices.append(Matrix(LayerShape(name, rows, parameter.numel() // rows), parameter))
        if not self.matrices:
            raise ValueError(f"model (={type(model).__name__}) has no weight matrix for {mine} that is not excluded")
        self.shapes = tuple(matrix.shape for matrix in self.matrices)

    def layer_active(self) -> list[int]:
        return [count_of(matrix.weight) for matrix in self.matrices]

    def masks(self) -> list[Tensor]:
        """Which weights of each matrix are connections now, as one row of numbers or truths."""
        return [matrix.weight != 0 for matrix in self.matrices]

    def layer_positions(self) -> list[Tensor]:
        masks = (mask.view(s.n_out, s.n_in).t() for s, mask in zip(self.shapes, self.masks(), strict=True))
        return [mask.reshape(-1).nonzero().view(-1).cpu() for mask in masks]

    def lr(self, matrix: Matrix) -> float:
        """η of the matrix's parameter group, as a scheduler has left it."""
        for group in self.optimizer.param_groups:
            if any(parameter is matrix.theta for parameter in group["params"]):
                return float(group["lr"])
        raise ValueError(f"parameter {matrix.shape.name!r} is no longer in the optimiser")
