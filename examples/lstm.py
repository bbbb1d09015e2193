"""An LSTM within a budget of connections reads handwritten digits row by row:

    python examples/lstm.py

torch's own `nn.LSTM` is sparsified without changes: input-to-hidden and hidden-to-hidden matrices become sparse, and
the time loop runs natively. What one sees: accuracy rises with only a tenth of the connections.
"""

import argparse
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound_lab import data as datasets


class RowReader(nn.Module):
    """Reads an image row by row and classifies it after the last row."""

    def __init__(self, pixels: int, classes: int, cells: int = 96) -> None:
        super().__init__()
        self.lstm = nn.LSTM(pixels, cells, batch_first=True)
        self.head = nn.Linear(cells, classes)

    def forward(self, rows: Tensor) -> Tensor:
        states, _ = self.lstm(rows)
        return self.head(states[:, -1])


def main(arguments: Sequence[str] | None = None) -> float:
    """Return the test accuracy at the end."""
    parser = argparse.ArgumentParser(description="An LSTM within a budget of connections.")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    options = parser.parse_args(arguments)
    steps = 200 if options.quick else 1500
    data = datasets.load("digits")
    x, y = data.inputs("train").squeeze(1), data.train_y

    torch.manual_seed(0)
    model: nn.Module = RowReader(x.shape[2], data.classes)
    model = wb.sparsify(model, connectivity=0.1, exclude="head", init="sparse-fan-in", seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rewiring = wb.DeepR(model, optimizer, l1=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        batch = torch.randint(len(y), (32,))
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        scheduler.step()
        assert info.active == info.budget
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.3f}, {info.active} of {info.budget} connections, {info.rewired} rewired")
    with torch.no_grad():
        guess = model(data.inputs("test").squeeze(1)).argmax(1)
    accuracy = (guess == data.test_y).double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main()
