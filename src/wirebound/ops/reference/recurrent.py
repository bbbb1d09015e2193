"""The recurrent layers in plain torch: a Python loop over time, any device, O(K + steps · batch · hidden) memory.

The backend's own linear ops do all the work that grows with K. Where a sequence has ended, its state stands still, its
output is 0, and no gradient arises.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from wirebound.ops.layer_shapes import BackwardCall, ForwardCall, Kept, Recurrence, RecurrentGradients, WatchedGradients
from wirebound.ops.reference.layers import ReferenceLayers


class ReferenceRecurrent(ReferenceLayers):
    def recurrent_forward_each(self, calls: Sequence[ForwardCall]) -> list[Kept]:
        """``recurrent_forward`` of each direction of a layer, which a backend may take at the same time."""
        return [self.recurrent_forward(*call) for call in calls]

    def recurrent_backward_each(self, calls: Sequence[BackwardCall]) -> list[RecurrentGradients]:
        """``recurrent_backward`` of each direction of a layer, which a backend may take at the same time."""
        return [self.recurrent_backward(*call) for call in calls]

    def recurrent_kept_numbers(self, kind: str, steps: int, batch: int, hidden: int, size: int) -> int:
        """How many numbers of ``size`` bytes ``recurrent_forward_into`` keeps of a pass."""
        return steps * batch * hidden * sum(_kept_widths(kind))

    def recurrent_forward_into(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """``recurrent_forward``, which puts what the backward pass needs into one array of a known length; (h_n, c_n)."""
        found = self.recurrent_forward(cell, x, h_0, c_0, y, kept is not None)
        if kept is not None:
            torch.cat([part.reshape(-1) for part in found.kept], out=kept)
        return found.h_n, found.c_n

    def recurrent_backward_from(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: Tensor,
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool,
    ) -> RecurrentGradients:  # fmt: skip
        """``recurrent_backward`` from that array."""
        (steps, batch, _), widths = x.shape, _kept_widths(cell.kind)
        parts = kept.split([steps * batch * cell.hidden * width for width in widths])
        own = tuple(p.view(steps, batch, width * cell.hidden) for p, width in zip(parts, widths, strict=True))
        return self.recurrent_backward(cell, x, h_0, c_0, own, dy, dh_n, dc_n, need_dx, False)

    def recurrent_forward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, keep: bool
    ) -> Kept:
        """One direction of a recurrent layer over x [steps, batch, n_in] from h_0 and c_0 (the LSTM's alone) [batch,
        hidden]: fills ``y``; the last states, and what the backward pass needs if ``keep``."""
        steps, batch, n_in = x.shape
        running = cell.running(x)
        from_x = self.linear_forward(x.reshape(-1, n_in), cell.theta_ih, cell.index_ih, cell.rows, cell.bias_ih)
        from_x = from_x.view(steps, batch, cell.rows)
        kept = tuple(x.new_empty(steps if keep else 0, batch, width * cell.hidden) for width in _kept_widths(cell.kind))
        h, c = h_0.contiguous(), c_0
        for t in cell.order(steps):
            from_h, new_c = self.linear_forward(h, cell.theta_hh, cell.index_hh, cell.rows, cell.bias_hh), c
            four: tuple[Tensor, ...] = ()
            if cell.is_simple:
                total = from_h + from_x[t]
                new_h = total.tanh_() if cell.kind == "rnn_tanh" else total.relu_()
            elif c is not None:
                i, f, g, o = (from_x[t] + from_h).chunk(4, 1)
                four = (i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid())
                new_c = four[1] * c + four[0] * four[2]
                new_h = four[3] * new_c.tanh()
            else:
                (xr, xz, xn), (hr, hz, hn) = from_x[t].chunk(3, 1), from_h.chunk(3, 1)
                r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
                n = (xn + r * hn).tanh()
                four, new_h = (r, z, n, hn), n + z * (h - n)
            h_before, c_before = h, c
            h = new_h if running is None else torch.where(running[t], new_h, h)
            y[t] = new_h if running is None else torch.where(running[t], new_h, 0.0)
            c = new_c if running is None or new_c is None or c is None else torch.where(running[t], new_c, c)
            if keep:
                states = (h_before,) if c_before is None else (h_before, c_before)
                values = (h,) if cell.is_simple else (torch.cat(four, 1), *states)
                for array, value in zip(kept, values, strict=True):
                    array[t] = value
        return Kept(h, c, kept if keep else ())

    def recurrent_backward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: tuple[Tensor, ...],
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool, watched: bool,
    ) -> RecurrentGradients:  # fmt: skip
        """All gradients of such a pass, by backpropagation through time; one that comes in as None is 0."""
        steps, batch, n_in = x.shape
        running = cell.running(x)
        dh = torch.zeros_like(h_0) if dh_n is None else dh_n
        dc = None if c_0 is None else torch.zeros_like(c_0) if dc_n is None else dc_n
        from_x = x.new_empty(steps, batch, cell.rows)  # gradients of W_ih x, and of W_hh h
        from_h = torch.empty_like(from_x) if cell.kind == "gru" else from_x
        h_before = after = slope = kept[0 if cell.is_simple else 1]
        if cell.is_simple:
            h_before = torch.cat((after[1:], h_0[None]) if cell.reverse else (h_0[None], after[:-1]))[:steps]
            slope = 1 - after * after if cell.kind == "rnn_tanh" else (after > 0).to(after.dtype)
        for t in reversed(cell.order(steps)):
            total, past, new_dc = dh if dy is None else dh + dy[t], None, dc
            if cell.is_simple:
                gates_x = gates_h = total * slope[t]
            elif dc is not None:
                gates_x, new_dc = _lstm_step(kept, t, total, dc)
                gates_h = gates_x
            else:
                gates_x, gates_h, past = _gru_step(kept, t, total)
            if running is not None:
                gates_x, gates_h = (torch.where(running[t], gates, 0.0) for gates in (gates_x, gates_h))
                past = torch.where(running[t], 0.0 if past is None else past, dh)
            dc = new_dc if running is None or dc is None or new_dc is None else torch.where(running[t], new_dc, dc)
            from_x[t], from_h[t] = gates_x, gates_h
            back, _ = self.linear_backward(h_0, gates_h, cell.theta_hh, cell.index_hh, True, False)
            assert back is not None
            dh = back if past is None else back + past
        flat_x, flat_h, h_before = from_x.view(-1, cell.rows), from_h.view(-1, cell.rows), h_before.view(-1, cell.hidden)
        dx, dtheta_ih = self.linear_backward(x.reshape(-1, n_in), flat_x, cell.theta_ih, cell.index_ih, need_dx, True)
        _, dtheta_hh = self.linear_backward(h_before, flat_h, cell.theta_hh, cell.index_hh, False, True)
        assert dtheta_ih is not None
        assert dtheta_hh is not None
        dbias_ih, dbias_hh = (None if b is None else f.sum(0) for b, f in ((cell.bias_ih, flat_x), (cell.bias_hh, flat_h)))
        of_ih, of_hh = (flat.view(len(flat), -1, cell.hidden).transpose(1, 2) for flat in (flat_x, flat_h))
        seen = WatchedGradients(of_ih, of_hh, h_before) if watched else None
        dx = None if dx is None else dx.reshape(steps, batch, n_in)
        return RecurrentGradients(dx, dh, dc, dtheta_ih, dtheta_hh, dbias_ih, dbias_hh, seen)


def _kept_widths(kind: str) -> list[int]:
    """Without gates h after each step is kept; else the gates and the states that went into them."""
    return {"lstm": [4, 1, 1], "gru": [4, 1]}.get(kind, [1])


def _lstm_step(kept: tuple[Tensor, ...], t: int, dh: Tensor, dc: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the gates and of c."""
    i, f, g, o = kept[0][t].chunk(4, 1)
    c_before = kept[2][t]
    tanh_c = (f * c_before + i * g).tanh()
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    di, df, dg, do = dc * g, dc * c_before, dc * i, dh * tanh_c
    gates = torch.cat((di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), do * o * (1 - o)), 1)
    return gates, dc * f


def _gru_step(kept: tuple[Tensor, ...], t: int, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the gates from x, of those from h, and of h past the gates."""
    r, z, n, hn = kept[0][t].chunk(4, 1)
    dn = dh * (1 - z) * (1 - n * n)
    dz = dh * (kept[1][t] - n) * z * (1 - z)
    dr = dn * hn * r * (1 - r)
    return torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1), dh * z
