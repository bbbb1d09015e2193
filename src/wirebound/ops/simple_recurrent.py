"""The simple recurrent layer, h ← φ(W_ih x + W_hh h): a Python loop over time around two sparse products.

It has no kernel of its own: ``products`` are the linear ops, native or reference, and do all the work that grows with K.
Where a sequence has ended, its state stands still, its output is 0, and no gradient arises.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from wirebound.ops.recurrence import Kept, Recurrence, RecurrentGradients, WatchedGradients

KINDS = ("rnn_tanh", "rnn_relu")


def recurrent_forward(
    products: ModuleType, cell: Recurrence, x: Tensor, h_0: Tensor, y: Tensor, keep: bool
) -> Kept:
    """Fills ``y`` [steps, batch, hidden]; keeps h after each step."""
    steps, batch, n_in = x.shape
    running = cell.running(x)
    flat = x.reshape(-1, n_in)
    from_x = products.linear_forward(flat, cell.theta_ih, cell.index_ih, cell.rows, cell.bias_ih)
    from_x = from_x.view(steps, batch, cell.rows)
    after = x.new_empty(steps if keep else 0, batch, cell.hidden)
    h = h_0.contiguous()
    for t in cell.order(steps):
        total = products.linear_forward(h, cell.theta_hh, cell.index_hh, cell.rows, cell.bias_hh) + from_x[t]
        new = total.tanh_() if cell.kind == "rnn_tanh" else total.relu_()
        h = new if running is None else torch.where(running[t], new, h)
        y[t] = new if running is None else torch.where(running[t], new, 0.0)
        if keep:
            after[t] = h
    return Kept(h, None, (after,) if keep else ())


def recurrent_backward(
    products: ModuleType,
    cell: Recurrence,
    x: Tensor,
    h_0: Tensor,
    kept: tuple[Tensor, ...],
    dy: Tensor | None,
    dh_n: Tensor | None,
    need_dx: bool,
    watched: bool,
) -> RecurrentGradients:
    """All gradients, from what the forward pass kept; a gradient that is None is 0."""
    steps, batch, n_in = x.shape
    running, (after,) = cell.running(x), kept
    before = torch.cat((after[1:], h_0[None]) if cell.reverse else (h_0[None], after[:-1]))[:steps]
    slope = 1 - after * after if cell.kind == "rnn_tanh" else (after > 0).to(after.dtype)
    if running is not None:
        slope = slope * running
    sums = torch.empty_like(after)  # gradients of W_ih x + W_hh h
    dh = torch.zeros_like(h_0) if dh_n is None else dh_n
    for t in reversed(cell.order(steps)):
        sums[t] = (dh if dy is None else dh + dy[t]) * slope[t]
        back, _ = products.linear_backward(before[t], sums[t], cell.theta_hh, cell.index_hh, True, False)
        dh = back if running is None else torch.where(running[t], back, dh)
    flat, h_before = sums.view(-1, cell.hidden), before.view(-1, cell.hidden)
    dx, dtheta_ih = products.linear_backward(
        x.reshape(-1, n_in), flat, cell.theta_ih, cell.index_ih, need_dx, True
    )
    _, dtheta_hh = products.linear_backward(h_before, flat, cell.theta_hh, cell.index_hh, False, True)
    dbias = flat.sum(0)
    return RecurrentGradients(
        None if dx is None else dx.view(steps, batch, n_in),
        dh,
        None,
        dtheta_ih,
        dtheta_hh,
        None if cell.bias_ih is None else dbias,
        None if cell.bias_hh is None else dbias.clone(),
        WatchedGradients(flat, flat, h_before) if watched else None,
    )
