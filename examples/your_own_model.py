"""A model of your own, with parts that stay dense: trained, saved, loaded and turned into ordinary torch layers:

    python examples/your_own_model.py

What one sees: a budget for each layer (`scope="layer"`), a head that stays dense, the bytes of every part, and a dense
copy that computes the same.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound_lab import data as datasets


class TwoEyes(nn.Module):
    """Each half of an image goes through its own layers; a shared layer and a head combine them."""

    def __init__(self, pixels: int, classes: int) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(pixels // 2, 128), nn.ReLU(), nn.LayerNorm(128))
        self.right = nn.Sequential(nn.Linear(pixels // 2, 128), nn.ReLU(), nn.LayerNorm(128))
        self.shared = nn.Linear(256, 128)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, dim=1)
        both = torch.cat([self.left(left), self.right(right)], dim=1)
        return self.head(F.relu(self.shared(both)))


def make(data: datasets.Dataset) -> wb.DeepR:
    torch.manual_seed(0)
    model: nn.Module = TwoEyes(data.features, data.classes)
    start = {"allocation": "erdos-renyi", "init": "sparse-fan-in", "seed": 0}
    model = wb.sparsify(model, connectivity=0.05, scope="layer", exclude="head", **start)
    return wb.DeepR(model, torch.optim.AdamW(model.parameters(), lr=3e-3), l1=3e-3)


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="A model of your own within a budget.")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    options = parser.parse_args(arguments)
    data = datasets.load("digits")
    x, y = data.inputs("train", flatten=True), data.train_y
    rewiring = make(data)
    optimizer = rewiring.optimizer
    for step in range(1, (200 if options.quick else 1500) + 1):
        batch = torch.randint(len(y), (32,))
        F.cross_entropy(rewiring.model(x[batch]), y[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        if step % 100 == 0:
            layers = ", ".join(f"{layer.name} {layer.active}/{layer.possible}" for layer in info.layers)
            print(f"step {step}: {layers}; {info.rewired} rewired")

    with tempfile.TemporaryDirectory() as folder:
        wb.save(Path(folder) / "model.safetensors", method=rewiring)
        again = make(data)
        wb.load(Path(folder) / "model.safetensors", method=again)
    print(wb.ledger(again.model, again))

    test = data.inputs("test", flatten=True)
    with torch.no_grad():
        sparse, dense = again.model(test), wb.to_dense(again.model)(test)
    torch.testing.assert_close(sparse, dense, rtol=1e-4, atol=1e-4)
    accuracy = (dense.argmax(1) == data.test_y).double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %, the same from the file and from its dense copy")
    return accuracy


if __name__ == "__main__":
    main()
