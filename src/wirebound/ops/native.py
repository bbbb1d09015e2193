"""The ops by the C++ kernels, under the signatures of the reference. ``csrc/wirebound.h`` says what each does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from wirebound.ops import library, structs
from wirebound.ops.layout import Geometry
from wirebound.ops.rule import Kind, Rule, State, Walk, not_finite

_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
_MIN_DEAD = 1024  # room for the indices of the dead; more than that is asked for a second time


def available() -> bool:
    return library.load() is not None


def _function(name: str, dtype: torch.dtype) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(library.load(), f"{name}_{_SUFFIX[dtype]}")
    return function


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _row_major(tensor: Tensor) -> Tensor:
    """The tensor itself if its rows are contiguous, as the kernels read it; else a copy."""
    return tensor if tensor.stride(1) == 1 and tensor.stride(0) >= tensor.shape[1] else tensor.contiguous()


def linear_forward(
    x: Tensor, theta: Tensor, code: Tensor, colptr: Tensor, n_out: int, bias: Tensor | None
) -> Tensor:
    x = _row_major(x)
    batch, n_in = x.shape
    y = x.new_empty(batch, n_out)
    _function("wb_linear_forward", theta.dtype)(
        x.data_ptr(),
        x.stride(0),
        y.data_ptr(),
        n_out,
        batch,
        n_in,
        n_out,
        colptr.data_ptr(),
        code.data_ptr(),
        theta.data_ptr(),
        _address(bias),
        torch.get_num_threads(),
    )
    return y


def linear_backward(
    x: Tensor,
    dy: Tensor,
    theta: Tensor,
    code: Tensor,
    colptr: Tensor,
    need_dx: bool,
    need_dtheta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    x, dy = _row_major(x), _row_major(dy)
    batch, n_in = x.shape
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if need_dx else None
    dtheta = torch.empty_like(theta) if need_dtheta else None
    _function("wb_linear_backward", theta.dtype)(
        x.data_ptr(),
        x.stride(0),
        dy.data_ptr(),
        dy.stride(0),
        _address(dx),
        n_in,
        _address(dtheta),
        batch,
        n_in,
        dy.shape[1],
        colptr.data_ptr(),
        code.data_ptr(),
        theta.data_ptr(),
        torch.get_num_threads(),
    )
    return dx, dtheta


def update_(
    theta: Tensor,
    grad: Tensor | None,
    rule: Rule,
    state: State,
    walks: Sequence[Walk],
    seed: int,
    stream: int,
    step: int,
    *,
    sign_bound: bool,
    clamp: bool,
) -> Tensor:
    c_rule = structs.Rule(
        kind=rule.kind,
        nesterov=rule.nesterov,
        fresh=rule.fresh,
        decoupled=rule.decoupled,
        maximize=rule.maximize,
        bound=sign_bound,
        clamp=clamp,
        stream=stream,
        seed=seed,
        step=step,
        lr=rule.lr,
        momentum=rule.momentum,
        dampening=rule.dampening,
        weight_decay=rule.weight_decay,
        beta1=rule.beta1,
        beta2=rule.beta2,
        eps=rule.eps,
    )
    c_walks = (structs.Walk * len(walks))(*((w.first, w.last, w.shrink, w.noise_std) for w in walks))
    count = theta.numel()
    dead = torch.empty(min(count, max(_MIN_DEAD, count // 64)), dtype=torch.int64)
    bad = ctypes.c_int32()
    if grad is not None:
        grad = grad.contiguous()
    first_moment = state.exp_avg if rule.kind is Kind.ADAM else state.momentum
    found = _function("wb_update", theta.dtype)(
        ctypes.byref(c_rule),
        count,
        theta.data_ptr(),
        _address(grad),
        _address(first_moment),
        _address(state.exp_avg_sq),
        _address(state.max_exp_avg_sq),
        _address(state.born),
        c_walks,
        len(walks),
        dead.data_ptr(),
        dead.numel(),
        ctypes.byref(bad),
        torch.get_num_threads(),
    )
    increment_version(theta)  # the kernel wrote behind autograd's back
    if bad.value:
        raise not_finite(step)
    if found > dead.numel():
        dead = torch.empty(found, dtype=torch.int64)
        _function("wb_dead", theta.dtype)(theta.data_ptr(), count, dead.data_ptr(), found)
    return dead[:found]


def _bits(value: float, dtype: torch.dtype) -> int:
    """A number of this dtype as the integer with the same bytes."""
    number = torch.tensor([value], dtype=dtype)
    return int(number.view(torch.int32 if number.element_size() == 4 else torch.int64))


def rewire_(
    geometry: Geometry,
    colptr: Tensor,
    code: Tensor,
    riders: Sequence[tuple[Tensor, float]],
    dead: Tensor,
    seed: int,
    wiring_index: int,
    step: int,
    shares: Sequence[float] | None,
) -> tuple[list[int], list[int]]:
    layers = geometry.layers
    longs = ctypes.c_int64 * layers
    c_riders = (structs.Rider * len(riders))(
        *((t.data_ptr(), t.element_size(), _bits(fill, t.dtype) if fill else 0) for t, fill in riders)
    )
    born, died = longs(), longs()
    function = library.load().wb_rewire  # type: ignore[union-attr]
    function(
        code.numel(),
        layers,
        longs(*geometry.n_in),
        longs(*geometry.n_out),
        colptr.data_ptr(),
        code.data_ptr(),
        c_riders,
        len(riders),
        dead.data_ptr(),
        dead.numel(),
        seed,
        wiring_index,
        step,
        None if shares is None else (ctypes.c_double * layers)(*shares),
        born,
        died,
        torch.get_num_threads(),
    )
    for tensor in (code, colptr, *(tensor for tensor, _ in riders)):
        increment_version(tensor)
    return list(born), list(died)
