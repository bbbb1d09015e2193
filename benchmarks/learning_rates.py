"""Is the learning rate that suits the dense network right for the sparse one, if ``--dense-lr`` raises it by the fan-in?

    python benchmarks/learning_rates.py                    all runs that are not there yet, then the table

784-300-100-10 on MNIST, three epochs, accuracy on 10,000 held-out training images, DEEP R with ``l1="auto"`` from 0.3 to
20 % and the dense network, under SGD, momentum and Adam. Each finished run is a file below ``OUT/runs``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from wirebound.checkpoint.atomic import write_file
from wirebound.engine.modules import DivergedError
from wirebound_lab.run import train
from wirebound_lab.run.config import make_config
from wirebound_lab.tables import markdown_table

RATES = {"sgd": (20, (0.05, 0.1, 0.2, 0.4)), "momentum": (32, (0.005, 0.01, 0.02, 0.04)), "adam": (64, (0.001, 0.002, 0.004, 0.008))}
LEVELS = (0.003, 0.01, 0.05, 0.2, 1.0)  # 1: the dense network
COMMON: dict[str, Any] = {
    "bias": True, "init": "sparse-fan-in", "epochs": 3, "validation": 10_000, "schedule": "cosine", "final_lr": 0.001,
}  # fmt: skip


def accuracy(out: Path, optimizer: str, lr: float, level: float, seed: int) -> float:
    """In percent; 0 of a run that diverged."""
    file = out / "runs" / f"{optimizer}-{lr:g}-{level:g}-s{seed}.json"
    if not file.exists():
        sparse: dict[str, Any] = {"connectivity": level, "dense_lr": True} if level < 1 else {"method": "dense"}
        own = {"optimizer": optimizer, "lr": lr, "batch_size": RATES[optimizer][0], "seed": seed, **sparse}
        try:
            reached = 100 * float(train(make_config(COMMON, own)).summary["test_accuracy"])
        except DivergedError:
            reached = 0.0
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps({"accuracy": reached, **COMMON, **own}).encode())
    return float(json.loads(file.read_text(encoding="utf-8"))["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description="The dense network's learning rate on sparse ones.")
    parser.add_argument("--out", type=Path, default=Path("results/no_tuning/learning_rates"), help="(default: %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="(default: 0)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for optimizer, (_, rates) in RATES.items():
        for level in LEVELS:
            found = [[accuracy(options.out, optimizer, lr, level, seed) for seed in options.seeds] for lr in rates]
            means = [sum(each) / len(each) for each in found]
            cells = [f"**{mean:.2f}**" if mean == max(means) else f"{mean:.2f}" for mean in means]
            rows.append([optimizer, "dense" if level == 1 else f"{100 * level:g} %", *cells])
            print(*rows[-1], flush=True)
    head = "# The dense network's learning rate on sparse networks\n\nMade by `python benchmarks/learning_rates.py`: held-out accuracy "
    head += f"in percent after three epochs, seeds {options.seeds}. Each column is one learning rate of the dense network, from low to "
    head += "high (" + "; ".join(f"{name} {', '.join(f'{lr:g}' for lr in rates)}" for name, (_, rates) in RATES.items()) + "); "
    head += "sparse networks train with `--dense-lr`. The best of each row is bold; a run that diverged counts as 0.\n\n"
    table = markdown_table(("optimiser", "connectivity", "lowest", "", "", "highest"), rows, range(2, 6))
    write_file(options.out / "README.md", f"{head}{table}\n".encode())


if __name__ == "__main__":
    main()
