"""Train MNIST with 1 % of the connections and the paper's settings, and write a report of the run.

example: wirebound demo --epochs 3
"""

import argparse
from pathlib import Path

from wirebound_lab.cli import train as train_command
from wirebound_lab.cli.info import kernels
from wirebound_lab.data import DataUnavailable, load
from wirebound_lab.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="run folder (default: runs/demo)")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training data (default: 20)")


def run(options: argparse.Namespace) -> int:
    print(f"kernels: {kernels()}")
    data, connectivity = "mnist", "0.01"
    try:
        print(f"MNIST from {load('mnist').source}")
    except DataUnavailable as error:
        print(f"{error}\nThe demo goes on with scikit-learn's 1,797 digits, at 5 % connectivity.")
        data, connectivity = "digits", "0.05"
    print(f"DEEP R, 784-300-100-10, {float(connectivity):.0%} of the connections, the paper's settings" if data == "mnist" else "")
    arguments = ["train", "--preset", "paper", "--data", data, "--connectivity", connectivity, "--epochs", str(options.epochs)]
    arguments += ["--out", str(options.out), "--overwrite"]
    from wirebound_lab.cli.main import build_parser

    code = train_command.run(build_parser(arguments).parse_args(arguments))
    page = write_report([options.out], options.out.with_name(options.out.name + ".html"))
    print(f"report: {page}  (open it in a browser)")
    return code
