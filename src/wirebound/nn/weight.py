"""``layer.weight``: a matrix that is described at once and made dense, from θ, for each operation that computes with it.

A gradient to it reaches θ at the active positions. Views of it are descriptions too; every way to write is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from wirebound.ops.layout import LayerIndex, for_connections, rows_of, signs_of
from wirebound.wiring import mapping
from wirebound.wiring.trust import version_of

if TYPE_CHECKING:
    from wirebound.nn.sparse_layer import SparseLayer

View = Callable[[Tensor], Tensor]
_LIKE = (
    "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "empty_like", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like",
)


def refuse(what: str) -> NoReturn:
    why = f"the weight of a sparse layer cannot be changed ({what}): it is made from its K connections whenever it is read"
    advice = "wb.sparsify(model, keep='largest') takes over the weights of a dense model"
    raise RuntimeError(f"{why}. {advice}; the parameter is θ, layer.wiring.theta, with weight = sign · θ")


class DenseGradient:
    """A dense gradient that is there anyway (``GradientSource``)."""

    def __init__(self, gradient: Tensor) -> None:
        self.gradient = gradient.flatten(1)

    def block(self, first: int, last: int) -> Tensor:
        return self.gradient[:, first:last]

    def at(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.gradient[rows, columns]


class Reading:
    """What makes the matrix of a layer as it was at the moment of reading, and brings a gradient back."""

    def __init__(self, layer: SparseLayer) -> None:
        self.layer = layer
        wiring, layer_id = layer.fast_wiring, layer.layer_id
        self.shape = wiring.layers[layer_id].n_out, wiring.layers[layer_id].n_in
        self.theta = wiring.layer_theta(layer_id)
        self.values = self.theta.detach()
        self.index: LayerIndex = wiring.layer_index(layer_id)
        self.version = version_of(self.values)

    def dense(self) -> Tensor:
        if version_of(self.values) != self.version:
            raise RuntimeError("θ was changed since layer.weight was read, and connections may have moved: read it again")
        self.layer.made_dense += 1
        values = self.values
        if self.index.bound and isinstance(values, FakeTensor):
            values = values.clamp(min=0)  # there is nothing to look at
        elif self.index.bound and bool((values < 0).any()):
            values = self.layer.fast_wiring.dormant_as_zero(values)
        return mapping.scatter(values, self.index.layer_packed_rows(), self.index.layer_colptr(), *self.shape)

    def gradient(self, dense: Tensor) -> Tensor:
        """∂E/∂θ from the gradient of the dense matrix; in torch operators, so that it has a gradient itself."""
        if (watch := self.layer.fast_wiring.watch) is not None:
            watch.setdefault(self.layer.layer_id, []).append(DenseGradient(dense.detach()))
        packed_rows, colptr = self.index.layer_packed_rows(), self.index.layer_colptr()
        columns = for_connections(torch.arange(self.shape[1], device=packed_rows.device), colptr, packed_rows.numel())
        slope = signs_of(packed_rows, self.values.dtype)
        if self.index.bound:
            slope = torch.where(self.values >= 0, slope, 0.0)
        return dense[rows_of(packed_rows), columns] * slope


class SparseWeight(Tensor):
    """A tensor without memory: rows of one or more readings, seen through ``views``."""

    _readings: Sequence[Reading]
    _views: tuple[View, ...]
    _described: Tensor  # the same on the meta device

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are ordinary tensors

    @staticmethod
    def __new__(cls: Any, readings: Sequence[Reading], described: Tensor, views: tuple[View, ...]) -> SparseWeight:
        made: Any = Tensor._make_wrapper_subclass(
            cls, described.shape, strides=described.stride(), storage_offset=described.storage_offset(),
            dtype=described.dtype, device=readings[0].values.device,
        )
        made._readings, made._described, made._views = readings, described, views
        return made

    def __init__(self, *args: Any) -> None:
        super().__init__()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        schema = func._schema
        for number, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[number] if number < len(args) else kwargs.get(argument.name)
                if any(isinstance(t, cls) for t in (given if isinstance(given, list | tuple) else (given,))):
                    refuse(schema.name.partition("::")[2])
        if any(result.alias_info is not None for result in schema.returns) and isinstance(args[0], cls):
            return args[0]._view(func, args[1:], kwargs)
        make = cls._outline if func._opname in _LIKE else cls._dense
        args, kwargs = tree_map_only(cls, make, (args, kwargs))
        return func(*args, **kwargs)

    def _view(self, func: Any, rest: Any, kwargs: Any) -> Any:
        seen = func(self._described, *rest, **kwargs)
        if isinstance(seen, Tensor):
            return SparseWeight(self._readings, seen, (*self._views, lambda dense: func(dense, *rest, **kwargs)))
        views = [(*self._views, lambda dense, i=i: func(dense, *rest, **kwargs)[i]) for i in range(len(seen))]  # type: ignore[misc]
        return [SparseWeight(self._readings, one, view) for one, view in zip(seen, views, strict=True)]

    def _dense(self) -> Tensor:
        matrices = [reading.dense() for reading in self._readings]
        dense = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
        for view in self._views:
            dense = view(dense)
        return dense

    def _outline(self) -> Tensor:
        """A tensor of this shape, dtype and device that takes next to no memory."""
        return torch.empty((), dtype=self.dtype, device=self.device).expand(self.shape)

    @property
    def requires_grad(self) -> bool:
        return any(reading.theta.requires_grad for reading in self._readings)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> NoReturn:
        raise RuntimeError("requires_grad of layer.weight is that of θ: use wb.freeze(layer) and wb.unfreeze(layer)")

    @property
    def grad(self) -> None:
        """None, always: gradients are those of θ."""

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            refuse("grad")

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        refuse("data")

    def register_hook(self, *args: Any) -> NoReturn:
        raise RuntimeError("layer.weight is made again at each reading: hooks and gradients are those of layer.wiring.theta")

    register_post_accumulate_grad_hook = retain_grad = register_hook

    def numpy(self, *, force: bool = False) -> Any:
        array = self.clone().numpy(force=force)
        array.flags.writeable = False  # nobody would see what is written
        return array

    def tolist(self) -> Any:
        return self.clone().tolist()

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.detach().clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().clone().__reduce_ex__(protocol)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        active = sum(reading.values.numel() for reading in self._readings)
        return f"SparseWeight(shape={tuple(self.shape)}, dtype={self.dtype}, device={self.device}, active={active})"


class _Weight(torch.autograd.Function):
    """θ of the layers → the description of their weight; a gradient to the weight goes back to each θ."""

    @staticmethod
    def forward(ctx: Any, readings: Sequence[Reading], arrange: View, *thetas: Tensor) -> Tensor:
        ctx.readings = readings
        ctx.save_for_backward(*thetas)
        rows, columns = sum(reading.shape[0] for reading in readings), readings[0].shape[1]
        ctx.described = arrange(torch.empty(rows, columns, dtype=thetas[0].dtype, device="meta"))
        # To arrange the description, not the weight: operators on the weight would load half of torch first.
        return SparseWeight(readings, ctx.described, (arrange,))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # raises if someone has changed θ since
        readings: Sequence[Reading] = ctx.readings
        gradient, described = grads[0], ctx.described
        if described.is_contiguous():
            flat = gradient.reshape(-1)
        else:  # the numbers in the order of the matrix that the weight is a view of
            flat = gradient.new_zeros(gradient.numel()).as_strided_scatter(gradient, described.shape, described.stride())
        blocks = flat.view(-1, readings[0].shape[1]).split([reading.shape[0] for reading in readings])
        needed = zip(readings, blocks, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(reading.gradient(block) if need else None for reading, block, need in needed)


def lazy_weight(layers: Sequence[SparseLayer], arrange: View) -> Tensor:
    """The matrices of these layers, one below the other, and that as ``arrange`` views it: a ``SparseWeight``."""
    readings = [Reading(layer) for layer in layers]
    return cast(Tensor, _Weight.apply(readings, arrange, *(reading.theta for reading in readings)))
