"""What int8 weights cost a network on a microcontroller: bytes of flash and RAM, and accuracy of the compiled code.

    python -m wirebound_lab.paper.c_export --out results/export

MNIST, 784-300-100-10 with the recommended settings at several connectivities, a few seeds each. Each network is
written as C with float weights and with int8 weights (one scale for each layer, or for each row), compiled by gcc,
and run on all 10,000 test images: the accuracies are those of the compiled code.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wirebound.export import read_network, to_c
from wirebound_lab import data as datasets
from wirebound_lab.paper.study import study_parser, write_study
from wirebound_lab.run import train
from wirebound_lab.run.config import make_config
from wirebound_lab.run.presets import preset
from wirebound_lab.tables import markdown_table

CONNECTIVITIES = (0.005, 0.01, 0.02)
SEEDS = (0, 1, 2)
KINDS = (("float", "layer"), ("int8", "layer"), ("int8", "row"))
FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2")

_MAIN = """#include <stdio.h>
#include "{header}"
int main(void) {{
  static {name}_input x[{upper}_INPUTS];
  while (fread(x, sizeof x[0], {upper}_INPUTS, stdin) == {upper}_INPUTS) {{
    fwrite({name}_run(x), sizeof(float), {upper}_OUTPUTS, stdout);
    if ({name}_predict(x) < 0) return 1;
  }}
  return 0;
}}
"""


def run_header(header: Path, x: np.ndarray, name: str = "network") -> np.ndarray:
    """What the compiled header computes for inputs [examples, features], float32 or bytes as it wants them."""
    with tempfile.TemporaryDirectory() as place:
        source, program = Path(place) / "main.c", Path(place) / "main"
        source.write_text(_MAIN.format(header=header.resolve(), name=name, upper=name.upper()), encoding="utf-8")
        made = subprocess.run(
            ["gcc", *FLAGS, str(source), "-o", str(program), "-lm"], capture_output=True, text=True, check=False
        )
        if made.returncode:
            raise RuntimeError(f"gcc refused {header}:\n{made.stderr}")
        done = subprocess.run([str(program)], input=np.ascontiguousarray(x).tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(x), -1)


def run_rows(connectivities: Sequence[float], seeds: Sequence[int], epochs: int | None) -> list[dict[str, Any]]:
    """Train, write, compile, run: one line for each connectivity and kind of weights."""
    data = datasets.load("mnist")
    pixels, labels = data.test_x.flatten(1).numpy(), data.test_y.numpy()
    more = {} if epochs is None else {"epochs": epochs}
    lines: list[dict[str, Any]] = []
    for connectivity in connectivities:
        mine: dict[tuple[str, str], dict[str, Any]] = {}
        for seed in seeds:
            result = train(make_config(preset("recommended"), {"connectivity": connectivity, "seed": seed, **more}))
            network = read_network(result.model)
            for weights, scales in KINDS:
                with tempfile.TemporaryDirectory() as place:
                    header = Path(place) / "network.h"
                    written = to_c(network, header, weights=weights, scales=scales, pixels=1 / data.maximum)
                    accuracy = float((run_header(header, pixels).argmax(1) == labels).mean())
                line = mine.setdefault((weights, scales), {
                    "connectivity": connectivity, "connections": result.summary["budget"],
                    "weights": weights if weights == "float" else f"int8, a scale for each {scales}",
                    "accuracy_percent": [], "loss_points": [], "flash_bytes": [], "ram_bytes": written.ram,
                    "seeds": list(seeds),
                })  # fmt: skip
                line["accuracy_percent"].append(round(100 * accuracy, 2))
                line["loss_points"].append(round(100 * (result.summary["test_accuracy"] - accuracy), 2))
                line["flash_bytes"].append(written.flash)
        for line in mine.values():
            mean = statistics.mean(line["accuracy_percent"])
            print(f"{connectivity:.3%} {line['weights']:<28} {mean:.2f} %", flush=True)
        lines += mine.values()
    return lines


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    about = (
        "MNIST, 784-300-100-10, recommended settings, one network a seed; C99 code compiled by gcc -O2 and run on the "
        "10,000 test images, mean over seeds (each seed in brackets).\n"
        "Made by `python -m wirebound_lab.paper.c_export --out results/export`."
    )
    columns = ["connections", "weights", "test accuracy of the compiled code", "lost against torch, points"]
    columns += ["flash, bytes", "RAM, bytes"]
    rows = []
    for line in lines:
        accuracies = line["accuracy_percent"]
        each = ", ".join(f"{a:.2f}" for a in accuracies)
        losses = ", ".join(f"{loss:+.2f}" for loss in line["loss_points"])
        rows.append([
            f"{line['connections']:,} ({100 * line['connectivity']:g} %)", line["weights"],
            f"{statistics.mean(accuracies):.2f} % ({each})", losses, f"{round(statistics.mean(line['flash_bytes'])):,}",
            f"{line['ram_bytes']:,}",
        ])  # fmt: skip
    return f"{about}\n\n{markdown_table(columns, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Accuracy and bytes of MNIST networks as C code.")
    parser.add_argument("--epochs", type=int, help="instead of the recommended number")
    options = parser.parse_args(arguments)
    if shutil.which("gcc") is None:
        parser.error("gcc is needed to compile the code")
    torch.set_num_threads(1)
    lines = run_rows(CONNECTIVITIES, SEEDS, options.epochs)
    write_study(options.out, "c", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
