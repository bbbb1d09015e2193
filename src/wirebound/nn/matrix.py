"""``SparseMatrix``: one matrix of a layer that has several, and ``SparseMatrices``, what such layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from wirebound.nn.inputs import settle_bias
from wirebound.nn.sparse_layer import SparseLayer
from wirebound.nn.weight import refuse
from wirebound.wiring import Allocation, LayerShape, Wiring, allocate


class SparseMatrix(SparseLayer):
    """A part of a wiring without a forward of its own: the layer that holds it knows what to do with it.

    Where torch has a parameter, ``lstm.weight_ih_l0``, a sparse layer has this module: what it is asked as a tensor, its
    ``weight`` answers.
    """

    def __init__(self, wiring: Wiring, part: int, *, owner: bool) -> None:
        super().__init__()
        self.attach(wiring, part, owner=owner)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_") or not hasattr(Tensor, name):
                raise
        return getattr(self.weight, name)

    @property
    def data(self) -> Tensor:
        return self.weight.data

    @data.setter
    def data(self, value: Any) -> NoReturn:
        refuse("data")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(SparseMatrix, lambda matrix: matrix.weight, (args, kwargs or {}))
        return func(*args, **kwargs)

    def extra_repr(self) -> str:
        shape = self.wiring.layers[self.part]
        return f"{shape.n_out}×{shape.n_in}, active={self.active} ({100 * self.active / max(1, shape.possible):.3g} %)"


class SparseMatrices(nn.Module):
    """A layer of several matrices, each a ``SparseMatrix`` under torch's name for it (``weight_…``), with biases
    (``bias_…``) beside them."""

    requires_grad_ = SparseLayer.requires_grad_
    matrix_names: list[str]

    def hold(
        self,
        shapes: Sequence[LayerShape],
        bias: bool,
        *,
        connectivity: float | None,
        budget: int | None,
        allocation: Allocation,
        seed: int,
        init: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        wiring: Wiring | None,
        part: int,
        owner: bool,
    ) -> None:
        """Make the matrices, from ``part`` on of the wiring if there is one; biases start at 0."""
        if wiring is None:
            if part:
                raise ValueError(f"part (={part}) must be 0 where no wiring is given")
            sizes = [(shape.n_out, shape.n_in) for shape in shapes]
            counts = allocate([shape.name for shape in shapes], sizes, allocation, connectivity, budget)
            wiring = Wiring(shapes, counts, seed=seed, init=init, device=device, dtype=dtype)
        self.matrix_names = []
        for number, shape in enumerate(shapes):
            given = wiring.layers[part + number] if part + number < len(wiring.layers) else None
            if given is None or (given.n_out, given.n_in) != (shape.n_out, shape.n_in):
                raise ValueError(
                    f"part {part + number} of the wiring (={given}) must be {shape.n_out}×{shape.n_in} for {shape.name}"
                )
            self.matrix_names.append(shape.name)
            self.add_module(shape.name, SparseMatrix(wiring, part + number, owner=owner and number == 0))
            if bias:
                zeros = torch.zeros(shape.n_out, device=wiring.theta.device, dtype=wiring.theta.dtype)
                self.register_parameter(shape.name.replace("weight", "bias"), nn.Parameter(zeros))

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and name in self.__dict__.get("matrix_names", ()):
            refuse(f"layer.{name} = …")
        super().__setattr__(name, value)

    @property
    def wiring(self) -> Wiring:
        """The wiring of all matrices."""
        return self.matrices()[0].wiring

    def matrices(self) -> list[SparseMatrix]:
        """All matrices, in torch's order."""
        return [self.get_submodule(name) for name in self.matrix_names]  # type: ignore[misc]

    def bias_of(self, name: str) -> Tensor | None:
        """The bias beside a matrix, by the name of the matrix, as a kernel may read it."""
        bias = self._parameters.get(name.replace("weight", "bias"))
        if bias is None:
            return None
        matrix = cast(SparseMatrix, self._modules[name])
        return settle_bias(bias, matrix.wiring.theta, matrix.wiring.layers[matrix.part].n_out, self)

    def fill_dense(self, twin: nn.Module) -> None:
        """Copy weights and biases into the torch layer, which has the same names."""
        with torch.no_grad():
            for name, matrix in zip(self.matrix_names, self.matrices(), strict=True):
                twin.get_parameter(name).copy_(matrix.dense_weight())
                if (bias := self.bias_of(name)) is not None:
                    twin.get_parameter(name.replace("weight", "bias")).copy_(bias)
