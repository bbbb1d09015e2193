"""Linear layers and Adam's step with deaths as Triton kernels: an optional way on CUDA (``pip install wirebound[triton]``).

A program takes one row forward and one column backward, reads where its connections are from the pointers, and walks along
them: no padding to the longest row, no atomics, and a layer of a wiring over several costs what its own connections cost.
For each connection there are, in bytes: θ 4, packed row 4, its gradient 4, two moments 8, the step of its birth 4, and the
order by rows (column and place) 8: 32 for forward, backward and Adam together.

``WIREBOUND_TRITON=1`` asks for them. They are tested in Triton's interpreter; nobody has run them on a card yet.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BYTES = {"theta": 4, "packed_rows": 4, "gradient": 4, "exp_avg": 4, "exp_avg_sq": 4, "born": 4, "column by row": 4, "place by row": 4}
_SAMPLES = 64  # of a batch that a program holds at a time
_CONNECTIONS = 256  # that a program of the update takes


@triton.jit  # type: ignore[untyped-decorator]
def _weight(theta, packed, bound: tl.constexpr):  # type: ignore[no-untyped-def]
    """sign · θ; bound to its sign, 0 where θ is below 0. The sign is bit 31, which makes the packed row negative."""
    weight = tl.where(packed < 0, -theta, theta)
    if bound:
        weight = tl.where(theta >= 0, weight, 0.0)
    return weight


@triton.jit  # type: ignore[untyped-decorator]
def _forward(x, y, theta, packed_rows, rowptr, columns, places, bias, samples, has_bias: tl.constexpr, bound: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """One output for some samples; x is [n_in, samples], y [n_out, samples]."""
    row = tl.program_id(0)
    at = tl.program_id(1) * width + tl.arange(0, width)
    inside = at < samples
    total = tl.zeros((width,), dtype=tl.float32)
    first = tl.load(rowptr + row)
    last = tl.load(rowptr + row + 1)
    for k in range(first, last):
        place = tl.load(places + k)
        weight = _weight(tl.load(theta + place), tl.load(packed_rows + place), bound)
        column = tl.load(columns + k).to(tl.int64)
        total += weight * tl.load(x + column * samples + at, mask=inside, other=0.0)
    if has_bias:
        total += tl.load(bias + row)
    tl.store(y + row.to(tl.int64) * samples + at, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(x, dy, dx, dtheta, theta, packed_rows, colptr, first_column, samples, need_dx: tl.constexpr, need_dtheta: tl.constexpr, bound: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """One input: its gradient, and those of its connections."""
    column = tl.program_id(0)
    first = tl.load(colptr + first_column + column)
    last = tl.load(colptr + first_column + column + 1)
    for start in range(0, samples, width):
        at = start + tl.arange(0, width)
        inside = at < samples
        own = tl.load(x + column.to(tl.int64) * samples + at, mask=inside, other=0.0)
        total = tl.zeros((width,), dtype=tl.float32)
        for k in range(first, last):
            packed = tl.load(packed_rows + k)
            value = tl.load(theta + k)
            row = (packed & 0x7FFFFFFF).to(tl.int64)
            upstream = tl.load(dy + row * samples + at, mask=inside, other=0.0)
            if need_dx:
                total += _weight(value, packed, bound) * upstream
            if need_dtheta:
                found = tl.sum(own * upstream)
                found = tl.where(packed < 0, -found, found)
                if bound:
                    found = tl.where(value >= 0, found, 0.0)
                before = tl.load(dtheta + k)  # this column's alone, so nobody else writes it
                tl.store(dtheta + k, before + found)
        if need_dx:
            tl.store(dx + column.to(tl.int64) * samples + at, total, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _adam(theta, gradient, exp_avg, exp_avg_sq, born, nu, dead, count, clock, lr, beta1, beta2, eps, shrink, noise_std, has_noise: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adam by the age of each connection, ℓ1 and noise, and who is below 0 afterwards."""
    at = tl.program_id(0) * width + tl.arange(0, width)
    inside = at < count
    g = tl.load(gradient + at, mask=inside, other=0.0)
    value = tl.load(theta + at, mask=inside, other=0.0)
    first = tl.load(exp_avg + at, mask=inside, other=0.0)
    second = tl.load(exp_avg_sq + at, mask=inside, other=0.0)
    age = (clock - tl.load(born + at, mask=inside, other=0)).to(tl.float32)
    first = first + (g - first) * (1 - beta1)
    second = second * beta2 + g * g * (1 - beta2)
    correction1 = 1 - tl.exp(age * tl.log(beta1))
    correction2 = tl.sqrt(1 - tl.exp(age * tl.log(beta2)))
    value = value - lr * (first / correction1) / (tl.sqrt(second) / correction2 + eps) - shrink
    if has_noise:
        value += noise_std * tl.load(nu + at, mask=inside, other=0.0)
    tl.store(theta + at, value, mask=inside)
    tl.store(exp_avg + at, first, mask=inside)
    tl.store(exp_avg_sq + at, second, mask=inside)
    tl.store(dead + at, (value < 0).to(tl.int8), mask=inside)


def rows_in_order(packed_rows: Tensor, colptr: Tensor, first: int, n_in: int, n_out: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row pointers (int64), and column and place (int32) of each connection by rows; connections of other layers last."""
    connections = packed_rows.numel()
    columns = torch.repeat_interleave(torch.arange(colptr.numel() - 1, device=colptr.device), colptr.diff(), output_size=connections)
    columns = columns - first
    own = (columns >= 0) & (columns < n_in)
    keys, order = torch.where(own, (packed_rows & 0x7FFFFFFF).to(torch.int64), n_out).sort(stable=True)
    rowptr = torch.searchsorted(keys, torch.arange(n_out + 1, device=keys.device))
    return rowptr, columns[order].to(torch.int32), order.to(torch.int32)


def linear_forward(
    x: Tensor, theta: Tensor, packed_rows: Tensor, order: tuple[Tensor, Tensor, Tensor], n_out: int, bias: Tensor | None,
    bound: bool = True,
) -> Tensor:  # fmt: skip
    """y = x Wᵀ + bias for x [batch, n_in]."""
    inputs, samples = x.t().contiguous(), x.shape[0]
    y = x.new_empty(n_out, samples)
    grid = (n_out, triton.cdiv(samples, _SAMPLES))
    given = theta if bias is None else bias  # a pointer that is not read
    _forward[grid](inputs, y, theta, packed_rows, *order, given, samples, bias is not None, bound, _SAMPLES)
    return y.t()


def linear_backward(
    x: Tensor, dy: Tensor, theta: Tensor, packed_rows: Tensor, colptr: Tensor, first: int, need_dx: bool, need_dtheta: bool,
    bound: bool = True,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients to x and to θ of the whole wiring, 0 outside of the layer's columns."""
    inputs, upstream, samples = x.t().contiguous(), dy.t().contiguous(), x.shape[0]
    dx, dtheta = torch.empty_like(inputs), torch.zeros_like(theta)
    grid = (inputs.shape[0],)
    _backward[grid](inputs, upstream, dx, dtheta, theta, packed_rows, colptr, first, samples, need_dx, need_dtheta, bound, _SAMPLES)
    return dx.t() if need_dx else None, dtheta if need_dtheta else None


def adam_and_death(
    theta: Tensor, gradient: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, born: Tensor, clock: int, lr: float,
    betas: tuple[float, float], eps: float, shrink: float, nu: Tensor | None, noise_std: float,
) -> Tensor:  # fmt: skip
    """Move θ and its moments in place; who is below 0 afterwards, as int8."""
    dead, count = torch.empty(theta.numel(), dtype=torch.int8, device=theta.device), theta.numel()
    given = theta if nu is None else nu
    arrays = (theta, gradient, exp_avg, exp_avg_sq, born, given, dead)
    numbers = (count, clock, lr, *betas, eps, shrink, noise_std)
    _adam[(triton.cdiv(count, _CONNECTIONS),)](*arrays, *numbers, nu is not None, _CONNECTIONS)
    return dead
