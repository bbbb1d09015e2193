"""``SparseMatrix``: one matrix of a layer that has several, and ``SparseMatrices``, what such layers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from wirebound.nn.inputs import settle_bias
from wirebound.nn.options import WiringOptions
from wirebound.nn.sparse_layer import Matrix, SparseLayer, SparseModule, zero_bias
from wirebound.nn.weight import refuse
from wirebound.wiring import LayerShape, Wiring


class SparseMatrix(SparseLayer):
    """A layer of a wiring without a forward of its own: the module that holds it knows what to do with it.

    Where torch has a parameter, ``lstm.weight_ih_l0``, a sparse layer has this module: what it is asked as a tensor, its
    ``weight`` answers.
    """

    def __init__(self, wiring: Wiring, layer_id: int, *, owner: bool) -> None:
        super().__init__()
        self.attach(wiring, layer_id, owner=owner)

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
        shape = self.wiring.layers[self.layer_id]
        return f"{shape.n_out}×{shape.n_in}, {self.repr_active()}"


class SparseMatrices(SparseModule):
    """A layer of several matrices, each a ``SparseMatrix`` under torch's name for it (``weight_…``), with biases
    (``bias_…``) beside them."""

    matrix_names: list[str]

    def hold(self, shapes: Sequence[LayerShape], bias: bool, options: dict[str, Any]) -> None:
        """Make the matrices that the options ask for, and biases of zeros."""
        self.matrix_names = [shape.name for shape in shapes]
        for shape, (wiring, layer_id, owner) in zip(shapes, WiringOptions(**options).slots(shapes), strict=True):
            self.add_module(shape.name, SparseMatrix(wiring, layer_id, owner=owner))
            if bias:
                self.register_parameter(shape.name.replace("weight", "bias"), zero_bias(wiring, shape.n_out))

    @classmethod
    def weight_names(cls, dense: nn.Module) -> list[str]:
        return [name for name in dense._parameters if name.startswith("weight")]

    @classmethod
    def matrices_of(cls, dense: nn.Module) -> list[Matrix]:
        return [Matrix.rows_first(name, dense.get_parameter(name)) for name in cls.weight_names(dense)]

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and name in self.__dict__.get("matrix_names", ()):
            refuse(f"layer.{name} = …")
        super().__setattr__(name, value)

    @property
    def wiring(self) -> Wiring:  # type: ignore[override]
        """The wiring of the first matrix: of all, unless ``sparsify`` gave each one of its own."""
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
        return settle_bias(bias, matrix.wiring.theta, matrix.wiring.layers[matrix.layer_id].n_out, self)

    def fill_dense(self, twin: Any) -> None:
        for name, matrix in zip(self.matrix_names, self.matrices(), strict=True):
            twin.get_parameter(name).copy_(matrix.dense_weight())
            if (bias := self.bias_of(name)) is not None:
                twin.get_parameter(name.replace("weight", "bias")).copy_(bias)
