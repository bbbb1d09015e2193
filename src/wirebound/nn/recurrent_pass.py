"""The matrices of a recurrent layer, and the pass of sequences, which may differ in length, as one autograd node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils._pytree import tree_map_only

from wirebound import ops
from wirebound.nn.inputs import in_memory, refuse_second_derivative, require_kept, settle_bias
from wirebound.nn.linear import LinearGradient
from wirebound.nn.options import WiringOptions, settle_options
from wirebound.nn.sparse_layer import Matrix, SparseLayer, SparseModule
from wirebound.nn.weight import refuse
from wirebound.ops.faults import DormantThetaError
from wirebound.wiring import LayerShape, Wiring

Outcome = tuple[Tensor, Tensor, Tensor | None]  # y, h_n, c_n
_EACH = 4  # parameters of a direction


class SparseMatrix(SparseLayer):
    """A layer of a wiring without a forward of its own, where torch has a parameter (``lstm.weight_ih_l0``).

    What it is asked as a tensor, its ``weight`` answers.
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
    """A layer of several matrices under torch's names for them (``weight_…``), with biases (``bias_…``) beside them."""

    matrix_names: list[str]

    def hold(self, shapes: Sequence[LayerShape], bias: bool, options: WiringOptions) -> None:
        self.matrix_names = [shape.name for shape in shapes]
        for shape, (wiring, layer_id, owner) in zip(shapes, settle_options(options, shapes), strict=True):
            self.add_module(shape.name, SparseMatrix(wiring, layer_id, owner=owner))
            if bias:
                zeros = nn.Parameter(wiring.theta.new_zeros(shape.n_out))
                self.register_parameter(shape.name.replace("weight", "bias"), zeros)

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
        """Of the first matrix: of all, unless ``sparsify`` gave each one of its own."""
        return self.matrices()[0].wiring

    def matrices(self) -> list[SparseMatrix]:
        return [self.get_submodule(name) for name in self.matrix_names]  # type: ignore[misc]

    def bias_of(self, name: str) -> Tensor | None:
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


@dataclass(frozen=True)
class Direction:
    """The matrices and biases of one direction of one layer."""

    ih: SparseMatrix
    hh: SparseMatrix
    bias_ih: Tensor | None
    bias_hh: Tensor | None


def _at(tensor: Tensor | None, number: int) -> Tensor | None:
    return None if tensor is None else tensor[number]


@dataclass(frozen=True)
class Pass:
    """One layer, and how sequences go through it; x and y are [steps, batch, features]."""

    kind: str
    hidden: int
    directions: Sequence[Direction]
    lengths: Tensor | None
    batch_first: bool  # how y lies in memory

    def cells(self, parameters: Sequence[Tensor | None]) -> list[ops.Recurrence]:
        found = []
        for d, one in enumerate(self.directions):
            theta_ih, theta_hh, bias_ih, bias_hh = cast(Any, parameters[_EACH * d : _EACH * (d + 1)])
            ih, hh = (matrix.fast_wiring.layer_index(matrix.layer_id) for matrix in (one.ih, one.hh))
            shape = (self.kind, self.hidden, d == 1, self.lengths)
            found.append(ops.Recurrence(*shape, theta_ih, ih, theta_hh, hh, bias_ih, bias_hh))
        return found

    def forward(
        self, cells: Sequence[ops.Recurrence], x: Tensor, h_0: Tensor, c_0: Tensor | None, keep: bool
    ) -> tuple[Outcome, list[Tensor]]:
        """(y, h_n, c_n), and what the backward pass needs, as many tensors for each direction."""
        steps, batch, _ = x.shape
        width = len(cells) * self.hidden
        y = x.new_empty(batch, steps, width).transpose(0, 1) if self.batch_first else x.new_empty(steps, batch, width)
        own = [y[:, :, d * self.hidden : (d + 1) * self.hidden] for d in range(len(cells))]
        calls = [(cell, x, h_0[d], _at(c_0, d), own[d], keep) for d, cell in enumerate(cells)]
        outcomes = ops.backend_of(cells[0].theta_ih).recurrent_forward_each(calls)
        h_n = torch.stack([o.h_n for o in outcomes])
        c_n = None if c_0 is None else torch.stack([o.c_n for o in outcomes if o.c_n is not None])
        return (y, h_n, c_n), [tensor for o in outcomes for tensor in o.kept]

    def watch(self, cell: int, x: Tensor, gradients: ops.RecurrentGradients) -> None:
        if (watched := gradients.watched) is None:
            return
        of_ih = LinearGradient(x.reshape(-1, x.shape[2]), watched.gates_ih)
        sources = (of_ih, LinearGradient(watched.h_before, watched.gates_hh))
        for matrix, source in zip((self.directions[cell].ih, self.directions[cell].hh), sources, strict=True):
            if (watch := matrix.fast_wiring.watch) is not None:
                watch.setdefault(matrix.layer_id, []).append(source)


class _Recurrent(torch.autograd.Function):
    """Exact gradients to the input, to the initial states, to θ at the active positions, and to the biases."""

    @staticmethod
    def forward(
        ctx: Any, job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None, *parameters: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ctx.job, ctx.cells = job, job.cells(parameters)
        outcome, kept = job.forward(ctx.cells, x, h_0, c_0, keep=True)
        ctx.set_materialize_grads(False)
        # The parameters are among them only to notice if someone changes them before the backward pass.
        saved = x, h_0, c_0, *parameters, *kept
        ctx.save_for_backward(*saved)
        ctx.shapes = [tensor.shape for tensor in saved if tensor is not None]
        return outcome

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a recurrent sparse layer")
        job: Pass = ctx.job
        cells: list[ops.Recurrence] = ctx.cells
        saved = ctx.saved_tensors
        require_kept(saved, ctx.shapes, cells[0].theta_ih)
        (x, h_0, c_0), kept = saved[:3], saved[3 + _EACH * len(cells) :]
        each = len(kept) // len(cells)
        dy, dh_n, dc_n = (None if gradient is None else in_memory(gradient) for gradient in grads)
        watched = any(m.fast_wiring.watch is not None for one in job.directions for m in (one.ih, one.hh))
        dx: Tensor | None = None
        dh_0, dc_0, gradients, calls = [], [], [], []
        for d, cell in enumerate(cells):
            own_dy = None if dy is None else dy[:, :, d * job.hidden : (d + 1) * job.hidden]
            start = (h_0[d], _at(c_0, d), kept[each * d : each * (d + 1)])
            dy_and_ends = (own_dy, _at(dh_n, d), _at(dc_n, d))
            calls.append((cell, x, *start, *dy_and_ends, ctx.needs_input_grad[1], watched))
        for d, found in enumerate(ops.backend_of(cells[0].theta_ih).recurrent_backward_each(calls)):
            job.watch(d, x, found)
            dx = found.dx if dx is None or found.dx is None else dx.add_(found.dx)
            dh_0.append(found.dh_0)
            dc_0.append(found.dc_0)
            gradients += [found.dtheta_ih, found.dtheta_hh, found.dbias_ih, found.dbias_hh]
        return (None, dx, torch.stack(dh_0), None if c_0 is None else torch.stack(cast(list[Tensor], dc_0)), *gradients)


def run_layer(job: Pass, x: Tensor, h_0: Tensor, c_0: Tensor | None) -> Outcome:
    parameters: list[Tensor | None] = []
    for one in job.directions:
        parameters += [matrix.fast_wiring.layer_theta(matrix.layer_id) for matrix in (one.ih, one.hh)]
        parameters += [one.bias_ih, one.bias_hh]

    def run() -> Outcome:
        if torch.is_grad_enabled():
            return cast(Outcome, _Recurrent.apply(job, x, h_0, c_0, *parameters))
        return job.forward(job.cells(parameters), x, h_0, c_0, keep=False)[0]

    try:
        return run()
    except DormantThetaError:
        for d, one in enumerate(job.directions):
            for at, matrix in enumerate((one.ih, one.hh), _EACH * d):
                parameters[at] = matrix.fast_wiring.dormant_as_zero(cast(Tensor, parameters[at]))
        return run()


def settle_lengths(x: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Steps of each sequence of x [time, batch, features], int64 on the CPU; None where all have all of them. Those of
    other devices stay there, where they cannot be looked at: what is beyond the input ends with it."""
    steps, batch = x.shape[:2]
    if lengths is None and mask is None:
        return None
    if lengths is not None and mask is not None:
        raise ValueError("at most one of lengths and mask may be given")
    if mask is not None:
        if mask.dtype is not torch.bool or tuple(mask.shape) != (batch, steps):
            given = f"{mask.dtype}, shape {tuple(mask.shape)}"
            raise ValueError(f"mask (={given}) must be boolean of shape (batch, time) = {(batch, steps)}")
        if x.is_cpu and bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise ValueError("mask must be true up to each sequence's end and false beyond: gaps are not supported")
        settled = mask.sum(1)
    else:
        settled = torch.as_tensor(lengths)
        if settled.is_floating_point() or settled.dtype is torch.bool or tuple(settled.shape) != (batch,):
            given = f"{settled.dtype}, shape {tuple(settled.shape)}"
            raise ValueError(f"lengths (={given}) must be whole numbers of shape (batch,) = {(batch,)}")
    if not x.is_cpu:
        return settled.detach().to(x.device, torch.int64).clamp(0, steps)
    settled = settled.detach().to("cpu", torch.int64).contiguous()
    if batch:
        shortest, longest = int(settled.min()), int(settled.max())
        if shortest < 0 or longest > steps:
            raise ValueError(f"lengths (from {shortest} to {longest}) must be in [0, {steps}], the steps of the input")
        if shortest == steps:
            return None
    return settled


def packed_like(y: Tensor, packed: PackedSequence, lengths: Tensor, batch_first: bool) -> PackedSequence:
    order = packed.sorted_indices
    if order is not None:
        y, lengths = y.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    data = pack_padded_sequence(y, lengths, batch_first).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
