"""The task changes during training, and the network rewires itself for the new one:

    python examples/online_adaptation.py

Every few epochs the class labels are shuffled: a 3 is now called 7, and so on. Weights, wiring and optimiser are not
reset. What one sees: accuracy falls to chance at every change and recovers within the phase, with the same number of
connections throughout.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound_lab import data as datasets


def main(arguments: Sequence[str] | None = None) -> list[tuple[float, float]]:
    """Return the accuracy right after each change and at the end of that phase."""
    parser = argparse.ArgumentParser(description="The task changes during training.")
    parser.add_argument("--quick", action="store_true", help="fewer phases")
    options = parser.parse_args(arguments)
    phases, steps = (3, 600) if options.quick else (6, 1500)
    data = datasets.load("digits")
    x, y = data.inputs("train", flatten=True), data.train_y
    test_x, test_y = data.inputs("test", flatten=True), data.test_y

    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 60), nn.ReLU(), nn.Linear(60, 10))
    model = wb.sparsify(model, connectivity=0.1, init="sparse-fan-in", seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    rewiring = wb.DeepR(model, optimizer, l1=1e-4, newborns="share")

    def accuracy(names: torch.Tensor) -> float:
        with torch.no_grad():
            return (model(test_x).argmax(1) == names[test_y]).double().mean().item()

    seen: list[tuple[float, float]] = []
    for phase in range(phases):
        names = torch.randperm(10) if phase else torch.arange(10)
        before, rewired = accuracy(names), 0
        for _ in range(steps):
            batch = torch.randint(len(y), (20,))
            F.cross_entropy(model(x[batch]), names[y[batch]]).backward()
            optimizer.step()
            optimizer.zero_grad()
            info = rewiring.info
            rewired += info.rewired
            assert info.active == info.budget
        seen.append((before, accuracy(names)))
        print(
            f"phase {phase + 1}: {100 * before:.1f} % at first, {100 * seen[-1][1]:.1f} % after {steps} steps, "
            f"{info.active} connections, {rewired} rewired"
        )
    return seen


if __name__ == "__main__":
    main()
