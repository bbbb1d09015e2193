"""MNIST with one connection in a hundred, in a plain PyTorch loop:

    python examples/mnist.py              # 10 epochs, about a minute on one core
    python examples/mnist.py --quick      # scikit-learn's small digits, seconds

What one sees: about 97 % after ten epochs (a dense network reaches 98.5 %), and 2,662 connections in every line, of the
266,200 possible ones.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound_lab import data as datasets


def main(arguments: Sequence[str] | None = None) -> float:
    """Return the test accuracy of the last epoch."""
    parser = argparse.ArgumentParser(description="DEEP R on MNIST.")
    parser.add_argument("--quick", action="store_true", help="small data, few epochs")
    parser.add_argument("--connectivity", type=float, help="share of the possible connections (default: 0.01)")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(arguments)
    data = datasets.load("digits" if options.quick else "mnist")
    connectivity = options.connectivity or (0.1 if options.quick else 0.01)
    x, y = data.inputs("train", flatten=True), data.train_y

    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(
        nn.Linear(data.features, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, data.classes)
    )
    model = wb.sparsify(model, connectivity=connectivity, init="sparse-fan-in", seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    # A high learning rate first, to rewire a lot; then it falls to nearly zero, to settle.
    per_epoch = len(y) // 20
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * per_epoch)
    rewiring = wb.DeepR(model, optimizer, l1=1e-4, newborns="share")

    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        rewired = 0
        for batch in torch.randperm(len(y))[: per_epoch * 20].view(-1, 20):
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
            info = rewiring.info
            scheduler.step()
            rewired += info.rewired
        with torch.no_grad():
            guess = model(data.inputs("test", flatten=True)).argmax(1)
        accuracy = (guess == data.test_y).double().mean().item()
        print(f"epoch {epoch}: {100 * accuracy:.2f} %, {info.active} of {info.budget} connections, {rewired} rewired")
    print(wb.ledger(model, rewiring))
    return accuracy


if __name__ == "__main__":
    main()
