"""A layer that could not exist dense: 1,000,000 × 1,000,000, whose weights alone would take 4,000 GB:

    python examples/huge_layer.py

It is made on the meta device and becomes sparse before any dense weight exists. What one sees: it trains with Adam and
rewires, the loss falls, and memory grows with the connections, not with the matrix.
"""

import argparse
import resource
from collections.abc import Sequence

import torch
from torch import nn

import wirebound as wb

SIZE = 1_000_000


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Return the loss of every step."""
    parser = argparse.ArgumentParser(description="A layer that could not exist dense.")
    parser.add_argument("--quick", action="store_true", help="fewer connections and steps")
    parser.add_argument("--budget", type=int, default=4_000_000)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args(arguments)
    budget, steps = (200_000, 4) if options.quick else (options.budget, options.steps)

    with torch.device("meta"):
        plan = nn.Linear(SIZE, SIZE, bias=False)  # shapes only, no memory
    model = wb.sparsify(plan, budget=budget, init="sparse-fan-in", seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rewiring = wb.DeepR(model, optimizer, l1=1e-2)

    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, SIZE, generator=draw)
    losses: list[float] = []
    for step in range(1, steps + 1):
        y = model(x)
        loss = (y - x).square().mean()  # the task: reproduce the input
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        losses.append(loss.item())
        print(f"step {step}: loss {loss:.5f}, {info.active:,} of {SIZE * SIZE:,} possible, {info.rewired:,} rewired")
    print(wb.ledger(model, rewiring))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of the process, torch included: {peak:.2f} GB")
    return losses


if __name__ == "__main__":
    main()
