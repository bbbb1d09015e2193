"""What int8 weights cost a network on a microcontroller: bytes of flash and RAM, and accuracy of the compiled code.

    python benchmarks/c_export.py --out results/export

MNIST, 784-300-100-10 with the recommended settings at several connectivities, a few seeds each. Each network is
written as C with float weights and with int8 weights (one scale for each layer, or for each row), compiled by gcc,
and run on all 10,000 test images: the accuracies are those of the compiled code.
"""

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
from wirebound_lab.run.config import PRESETS, make_config
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
        command = ["gcc", *FLAGS, str(source), "-o", str(program), "-lm"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"gcc refused {header}:\n{made.stderr}")
        done = subprocess.run([str(program)], input=np.ascontiguousarray(x).tobytes(), capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.float32).reshape(len(x), -1)


def run_rows(epochs: int | None) -> list[dict[str, Any]]:
    """Train, write, compile, run: one line for each connectivity and kind of weights."""
    data = datasets.load("mnist")
    pixels, labels = data.test_x.flatten(1).numpy(), data.test_y.numpy()
    more = {} if epochs is None else {"epochs": epochs}
    lines: list[dict[str, Any]] = []
    for connectivity in CONNECTIVITIES:
        mine: dict[tuple[str, str], dict[str, Any]] = {}
        for seed in SEEDS:
            result = train(make_config(PRESETS["recommended"], {"connectivity": connectivity, "seed": seed, **more}))
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
                    "seeds": list(SEEDS),
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
        "Made by `python benchmarks/c_export.py --out results/export`."
    )
    accuracy_columns = ["test accuracy of the compiled code", "lost against torch, points"]
    columns = ["connections", "weights", *accuracy_columns, "flash, bytes", "RAM, bytes"]
    rows = []
    for line in lines:
        each = ", ".join(f"{accuracy:.2f}" for accuracy in line["accuracy_percent"])
        losses = ", ".join(f"{loss:+.2f}" for loss in line["loss_points"])
        accuracy, flash = (statistics.mean(line[key]) for key in ("accuracy_percent", "flash_bytes"))
        cells = [f"{line['connections']:,} ({100 * line['connectivity']:g} %)", line["weights"]]
        rows.append([*cells, f"{accuracy:.2f} % ({each})", losses, f"{round(flash):,}", f"{line['ram_bytes']:,}"])
    return f"{about}\n\n{markdown_table(columns, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Accuracy and bytes of MNIST networks as C code.")
    parser.add_argument("--epochs", type=int, help="instead of the recommended number")
    options = parser.parse_args(arguments)
    if shutil.which("gcc") is None:
        parser.error("gcc is needed to compile the code")
    torch.set_num_threads(1)
    lines = run_rows(options.epochs)
    write_study(options.out, "c", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
