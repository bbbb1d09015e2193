"""A network for a microcontroller: trained within a budget, written as one C header, compiled and compared:

    python examples/microcontroller.py

What one sees: a classifier of handwritten digits with 600 connections takes about 1.4 kB of flash with 8-bit weights,
and the compiled C code gives the same answers as the network in torch. The comparison needs a C compiler (`cc`).
"""

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import wirebound as wb
from wirebound.export import to_c
from wirebound_lab import data as datasets

BUDGET = 600
PROGRAM = """
#include <stdio.h>
#include "digits.h"
int main(void) {
  static digits_input x[64];
  for (;;) {
    for (int i = 0; i < 64; i++) {
      float pixel;
      if (scanf("%f", &pixel) != 1) return 0;
      x[i] = pixel;
    }
    printf("%d\\n", digits_predict(x));
  }
}
"""


def train(data: datasets.Dataset, steps: int) -> nn.Module:
    x, y = data.inputs("train", flatten=True), data.train_y
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    model = wb.sparsify(model, budget=BUDGET, init="sparse-fan-in", seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rewiring = wb.DeepR(model, optimizer, l1=1e-4)
    for _ in range(steps):
        batch = torch.randint(len(y), (20,))
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        optimizer.zero_grad()
        info = rewiring.info
        scheduler.step()
        assert info.active == BUDGET
    return model


def run_in_c(folder: Path, images: Tensor) -> Tensor:
    """Return the predictions of the compiled header."""
    (folder / "main.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O2", "-std=c99", "-o", "main", "main.c", "-lm"], cwd=folder, check=True)
    text = "\n".join(" ".join(f"{pixel:.6g}" for pixel in image) for image in images.tolist())
    done = subprocess.run([folder / "main"], input=text, capture_output=True, text=True, check=True)
    return torch.tensor([int(line) for line in done.stdout.split()])


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Return the test accuracy in torch and in C (nan without a compiler)."""
    parser = argparse.ArgumentParser(description="A network for a microcontroller.")
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    options = parser.parse_args(arguments)
    data = datasets.load("digits")
    model = train(data, 600 if options.quick else 4000)
    images = data.inputs("test", flatten=True)
    with torch.no_grad():
        guess = model(images).argmax(1)
    accuracy = (guess == data.test_y).double().mean().item()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        header = to_c(model, folder / "digits.h", weights="int8", name="digits")
        print(f"torch: {100 * accuracy:.1f} % with {BUDGET} connections")
        print(f"C header: {header.flash} bytes of flash, {header.ram} bytes of memory")
        if shutil.which("cc") is None:
            return accuracy, float("nan")
        in_c = run_in_c(folder, images)
    compiled = (in_c == data.test_y).double().mean().item()
    same = (in_c == guess).double().mean().item()
    print(f"C, 8-bit weights: {100 * compiled:.1f} %; the same answer as torch for {100 * same:.1f} % of the images")
    return accuracy, compiled


if __name__ == "__main__":
    main()
