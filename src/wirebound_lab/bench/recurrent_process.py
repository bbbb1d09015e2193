"""Trains one LSTM, sparse or dense, in a process of its own, so that the peak memory is its own.

Run as ``python -m wirebound_lab.bench.recurrent_process '{"sparse": true, "hidden": …}'``; prints one JSON object.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

import wirebound as wb
from wirebound_lab.bench.scale_process import Peak


def measure(sparse: bool, hidden: int, connectivity: float, steps: int, batch: int) -> dict[str, float]:
    """Peak memory of two training steps."""
    torch.set_num_threads(1)
    peak = Peak()
    found: dict[str, float] = {"peak of imports": peak.read()}
    layer: nn.Module = wb.SparseLSTM(hidden, hidden, connectivity=connectivity) if sparse else nn.LSTM(hidden, hidden)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-4)
    method = wb.DeepR(layer, optimizer, l1=1e-4) if sparse else wb.Dense(layer, optimizer)
    x = torch.randn(steps, batch, hidden, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        method.zero_grad()
        layer(x)[0].square().mean().backward()
        method.step()
    found["peak"] = peak.whole()
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
