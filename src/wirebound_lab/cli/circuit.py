"""Make one HTML page to walk through the network of a run: for a neuron, an attention head or a token, the connections that
lead to it and from it. With --find, also the fewest connections that answer the questions of its task, checked by ablation.

example: wirebound circuit runs/x --out circuit.html
"""

import argparse
import json
from pathlib import Path
from typing import Any

from wirebound_lab.circuit.page import MOST, write_circuit_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="RUN", help="a finished run folder")
    parser.add_argument("--out", type=Path, default=Path("circuit.html"), help="page to write (default: circuit.html)")
    said = f"connections on the page; of more, each node keeps its strongest (default: {MOST:,})"
    parser.add_argument("--most", type=int, default=MOST, help=said)
    parser.add_argument("--find", action="store_true", help="find the circuit of the task, mark it on the page, write it beside as .json")
    parser.add_argument("--accuracy", type=float, default=0.99, help="--find: what the circuit alone must reach (default: 0.99)")


def run(options: argparse.Namespace) -> int:
    circuit: dict[str, Any] | None = None
    if options.find:
        from wirebound_lab.circuit.study import find_in_run  # torch, which the page alone does not need

        circuit = find_in_run(options.folder, options.accuracy).as_dict()
        print(f"circuit: {len(circuit['connections']):,} of {circuit['budget']:,} connections")
        names = {"whole": "whole network", "kept": "circuit alone", "zeroed": "circuit at zero", "others": "as many others at zero"}
        for name, said in names.items():
            print(f"{said}: {100 * circuit[name]:.2f} %")
        options.out.with_suffix(".json").write_text(json.dumps(circuit) + "\n", encoding="utf-8")
    print(f"page: {write_circuit_page(options.folder, options.out, options.most, circuit)}")
    return 0
