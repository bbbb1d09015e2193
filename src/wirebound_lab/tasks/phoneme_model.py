"""The network of the paper's speech experiment: an LSTM in each direction and a softmax for every frame."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wirebound.nn import SparseLinear, SparseLSTM
from wirebound.wiring import LayerShape, Wiring, allocate
from wirebound_lab.data.sequences import NO_LABEL, Batch

# Connectivity of each matrix in units of the global one (appendix A): inputs, recurrent, output.
MULTIPLIERS = {"ih": 1.8, "hh": 0.6, "readout": 6.0}


class TwoWayLSTM(nn.Module):
    """A dense bidirectional LSTM that takes padded batches as ``SparseLSTM`` does.

    Two one-way passes, one over reversed sequences: torch's packed sequences would do the same, several times slower
    on a CPU.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.ahead = nn.LSTM(inputs, hidden, batch_first=True)
        self.back = nn.LSTM(inputs, hidden, batch_first=True)

    def forward(self, x: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        """[B, T, 2 · hidden]; what stands beyond a sequence's length is without meaning."""
        if state is not None:
            raise ValueError("state must be None: every sequence starts anew")
        turned = reverse(x, lengths)
        back = reverse(self.back(turned)[0], lengths)
        return torch.cat([self.ahead(x)[0], back], dim=2), None


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of x [B, T, F] from its end to its start; padding stays where it is."""
    steps = torch.arange(x.shape[1])
    if lengths is None:
        return x.flip(1)
    places = torch.where(steps < lengths[:, None], lengths[:, None] - 1 - steps, steps)
    return x.gather(1, places.unsqueeze(2).expand(-1, -1, x.shape[2]))


class PhonemeNet(nn.Module):
    """Logits of every frame, [B, T, classes], from inputs [B, T, features] and lengths [B]."""

    def __init__(self, lstm: nn.Module, readout: nn.Module) -> None:
        super().__init__()
        self.lstm, self.readout = lstm, readout

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        hidden, _ = self.lstm(x, lengths=lengths)
        logits: Tensor = self.readout(hidden)
        return logits


def frame_loss(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy over the frames that have a label."""
    return F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=NO_LABEL)


@torch.no_grad()
def frame_errors(model: nn.Module, batch: Batch) -> tuple[int, int, float]:
    """(wrong frames, frames that have a label, their summed cross-entropy)."""
    logits = model(batch.x, batch.lengths).flatten(0, 1)
    y = batch.y.flatten()
    labelled = y != NO_LABEL
    wrong = int((logits.argmax(1)[labelled] != y[labelled]).sum())
    loss = F.cross_entropy(logits, y, ignore_index=NO_LABEL, reduction="sum").item()
    return wrong, int(labelled.sum()), loss


def dense_model(features: int, hidden: int, classes: int, seed: int) -> PhonemeNet:
    """All connections, with the paper's first weights N(0,1)/√n_in; biases start at 0, as in the sparse one."""
    model = PhonemeNet(TwoWayLSTM(features, hidden), nn.Linear(2 * hidden, classes))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            else:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
    return model


def shares_of(connectivity: float) -> list[float]:
    """Connectivity of the five matrices; where the paper's multiple is more than all, others take the rest."""
    return [min(1.0, MULTIPLIERS[kind] * connectivity) for kind in ("ih", "hh", "ih", "hh", "readout")]


def sparse_model(
    features: int, hidden: int, classes: int, connectivity: float | None, budget: int | None, seed: int
) -> PhonemeNet:
    """One budget for all five matrices, shared out at the start as the paper does."""
    shapes = [
        LayerShape(f"lstm.weight_{kind}_l0{end}", 4 * hidden, features if kind == "ih" else hidden)
        for end in ("", "_reverse")
        for kind in ("ih", "hh")
    ]
    shapes.append(LayerShape("readout", classes, 2 * hidden))
    possible = sum(shape.possible for shape in shapes)
    p0 = connectivity if connectivity is not None else (budget or 0) / possible
    shares = shares_of(max(p0, 1e-9))  # one of 0 or less is left for allocate to refuse, which says why
    sizes = [(shape.n_out, shape.n_in) for shape in shapes]
    counts = allocate([shape.name for shape in shapes], sizes, shares, connectivity, budget)
    wiring = Wiring(shapes, counts, seed=seed)
    lstm = SparseLSTM(features, hidden, batch_first=True, bidirectional=True, wiring=wiring, part=0)
    readout = SparseLinear(2 * hidden, classes, wiring=wiring, part=len(shapes) - 1, owner=False)
    return PhonemeNet(lstm, readout)
