"""The recurrent layers in plain torch: a Python loop over time, any device, O(K + steps · batch · hidden) memory.

The backend's own linear ops do all the work that grows with K. Where a sequence has ended, its state stands still, its
output is 0, and no gradient arises.
"""

from __future__ import annotations

import torch
from torch import Tensor

from wirebound.ops.layer_shapes import Kept, Recurrence, RecurrentGradients, WatchedGradients
from wirebound.ops.reference.linear import ReferenceLinear


class ReferenceRecurrent(ReferenceLinear):
    def recurrent_forward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, y: Tensor, keep: bool
    ) -> Kept:
        """One direction of a recurrent layer over x [steps, batch, n_in] from h_0 and c_0 (the LSTM's alone) [batch,
        hidden]: fills ``y``; the last states, and what the backward pass needs if ``keep``."""
        steps, batch, n_in = x.shape
        running = cell.running(x)
        from_x = self.linear_forward(x.reshape(-1, n_in), cell.theta_ih, cell.index_ih, cell.rows, cell.bias_ih)
        from_x = from_x.view(steps, batch, cell.rows)
        if cell.is_simple:
            return self._simple_forward(cell, from_x, running, h_0, y, keep)
        gates = x.new_empty(steps if keep else 0, batch, 4 * cell.hidden)
        h_before = x.new_empty(steps if keep else 0, batch, cell.hidden)
        c_before = None if c_0 is None else torch.empty_like(h_before)
        h, c = h_0, c_0
        for t in cell.order(steps):
            from_h = self.linear_forward(h, cell.theta_hh, cell.index_hh, cell.rows, cell.bias_hh)
            if c is not None:
                i, f, g, o = (from_x[t] + from_h).chunk(4, 1)
                four = (i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid())
                new_c = four[1] * c + four[0] * four[2]
                new_h = four[3] * new_c.tanh()
            else:
                (xr, xz, xn), (hr, hz, hn) = from_x[t].chunk(3, 1), from_h.chunk(3, 1)
                r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
                n = (xn + r * hn).tanh()
                four = (r, z, n, hn)
                new_h = n + z * (h - n)
            if keep:
                torch.cat(four, 1, out=gates[t])
                h_before[t] = h
                if c_before is not None and c is not None:
                    c_before[t] = c
            if running is None:
                h, c = new_h, new_c if c is not None else None
                y[t] = h
            else:
                h = torch.where(running[t], new_h, h)
                c = None if c is None else torch.where(running[t], new_c, c)
                y[t] = torch.where(running[t], new_h, 0.0)
        return Kept(h, c, () if not keep else (gates, h_before) if c_before is None else (gates, h_before, c_before))

    def _simple_forward(
        self, cell: Recurrence, from_x: Tensor, running: Tensor | None, h_0: Tensor, y: Tensor, keep: bool
    ) -> Kept:
        """h ← φ(W_ih x + W_hh h); keeps h after each step."""
        steps, batch, _ = from_x.shape
        after = from_x.new_empty(steps if keep else 0, batch, cell.hidden)
        h = h_0.contiguous()
        for t in cell.order(steps):
            total = self.linear_forward(h, cell.theta_hh, cell.index_hh, cell.rows, cell.bias_hh) + from_x[t]
            new = total.tanh_() if cell.kind == "rnn_tanh" else total.relu_()
            h = new if running is None else torch.where(running[t], new, h)
            y[t] = new if running is None else torch.where(running[t], new, 0.0)
            if keep:
                after[t] = h
        return Kept(h, None, (after,) if keep else ())

    def recurrent_backward(
        self, cell: Recurrence, x: Tensor, h_0: Tensor, c_0: Tensor | None, kept: tuple[Tensor, ...],
        dy: Tensor | None, dh_n: Tensor | None, dc_n: Tensor | None, need_dx: bool, watched: bool,
    ) -> RecurrentGradients:  # fmt: skip
        """All gradients of such a pass, by backpropagation through time; one that comes in as None is 0."""
        steps, batch, n_in = x.shape
        running = cell.running(x)
        dh = torch.zeros_like(h_0) if dh_n is None else dh_n
        dc = None if c_0 is None else torch.zeros_like(c_0) if dc_n is None else dc_n
        if cell.is_simple:
            dh, from_x, h_before = self._simple_backward(cell, kept[0], running, h_0, dy, dh)
            from_h = from_x
        else:
            dh, dc, from_x, from_h = self._gated_backward(cell, x, running, h_0, kept, dy, dh, dc)
            h_before = kept[1]
        flat_x, flat_h, h_before = from_x.view(-1, cell.rows), from_h.view(-1, cell.rows), h_before.view(-1, cell.hidden)
        dx, dtheta_ih = self.linear_backward(x.reshape(-1, n_in), flat_x, cell.theta_ih, cell.index_ih, need_dx, True)
        _, dtheta_hh = self.linear_backward(h_before, flat_h, cell.theta_hh, cell.index_hh, False, True)
        assert dtheta_ih is not None
        assert dtheta_hh is not None
        dbias_ih, dbias_hh = (None if b is None else f.sum(0) for b, f in ((cell.bias_ih, flat_x), (cell.bias_hh, flat_h)))
        seen = WatchedGradients(flat_x, flat_h, h_before) if watched else None
        dx = None if dx is None else dx.view(steps, batch, n_in)
        return RecurrentGradients(dx, dh, dc, dtheta_ih, dtheta_hh, dbias_ih, dbias_hh, seen)

    def _gated_backward(
        self, cell: Recurrence, x: Tensor, running: Tensor | None, h_0: Tensor, kept: tuple[Tensor, ...],
        dy: Tensor | None, dh: Tensor, dc: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
        """Gradients of h_0, of c_0, and of the gates' sums from x and from h in every step."""
        steps, batch, _ = x.shape
        from_x = x.new_zeros(steps, batch, cell.rows)
        from_h = from_x if dc is not None else torch.zeros_like(from_x)
        past: Tensor | None
        for t in reversed(cell.order(steps)):
            total = dh if dy is None else dh + dy[t]
            if dc is not None:
                gates_x, new_dc = _lstm_step(kept, t, total, dc)
                gates_h, past = gates_x, None
            else:
                gates_x, gates_h, past = _gru_step(kept, t, total)
            if running is not None:
                gates_x = torch.where(running[t], gates_x, 0.0)
                gates_h = gates_x if dc is not None else torch.where(running[t], gates_h, 0.0)
                past = torch.where(running[t], 0.0 if past is None else past, dh)
            from_x[t] = gates_x
            if from_h is not from_x:
                from_h[t] = gates_h
            back, _ = self.linear_backward(h_0, gates_h, cell.theta_hh, cell.index_hh, True, False)
            assert back is not None
            dh = back if past is None else back + past
            if dc is not None:
                dc = new_dc if running is None else torch.where(running[t], new_dc, dc)
        return dh, dc, from_x, from_h

    def _simple_backward(
        self, cell: Recurrence, after: Tensor, running: Tensor | None, h_0: Tensor, dy: Tensor | None, dh: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of h_0 and of W_ih x + W_hh h in every step, and the h that went into each."""
        before = torch.cat((after[1:], h_0[None]) if cell.reverse else (h_0[None], after[:-1]))[: len(after)]
        slope = 1 - after * after if cell.kind == "rnn_tanh" else (after > 0).to(after.dtype)
        if running is not None:
            slope = slope * running
        sums = torch.empty_like(after)
        for t in reversed(cell.order(len(after))):
            sums[t] = (dh if dy is None else dh + dy[t]) * slope[t]
            back, _ = self.linear_backward(before[t], sums[t], cell.theta_hh, cell.index_hh, True, False)
            assert back is not None
            dh = back if running is None else torch.where(running[t], back, dh)
        return dh, sums, before


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
