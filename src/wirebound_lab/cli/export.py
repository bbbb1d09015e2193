"""``wirebound export``: a trained network for SciPy, ONNX, NIR, PyNN or C."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from wirebound.export import ExportError, Network, read_network, to_c, to_nir, to_onnx, to_pynn, to_scipy
from wirebound.export.compact import SCALES, quantised
from wirebound_lab.run.export_source import Source, open_source

FORMATS = ("scipy", "onnx", "nir", "pynn", "c")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("export", help="write a trained network for SciPy, ONNX, NIR, PyNN or C")
    parser.add_argument("source", type=Path, metavar="RUN_OR_MODEL", help="a finished run folder, or a model's file")
    parser.add_argument("--to", choices=FORMATS, required=True, dest="form", help="format")
    parser.add_argument("--out", type=Path, required=True, help="file to write (scipy and pynn: folder)")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    shape = "of one example, such as 1,28,28: for models with convolutions"
    parser.add_argument("--input-shape", type=_shape, metavar="C,H,W", help=shape)
    parser.add_argument("--dense", action="store_true", help="onnx: dense matrices instead of sparse ones")
    parser.add_argument("--softmax", action="store_true", help="onnx: outputs are probabilities")
    parser.add_argument("--weights", choices=("float", "int8"), default="float", help="c: kind of weights")
    parser.add_argument("--scales", choices=SCALES, default="layer", help="c: int8 scale for each row or layer")
    parser.add_argument("--bytes", action="store_true", help="c: inputs are bytes as the run's data set stores them")
    parser.add_argument("--name", default="network", help="c: prefix of what the header defines")
    parser.add_argument("--delay", type=float, default=1.0, help="pynn: delay of connections in ms")
    parser.add_argument("--gain", type=float, default=1.0, help="pynn: weight in nA or µS for a weight of 1")
    parser.add_argument("--conductance", action="store_true", help="pynn: conductance-based synapses")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    source = open_source(options.source)
    out: Path = options.out
    if (out.exists() or out.is_symlink()) and not options.overwrite:
        raise ExportError(f"out (={out}) exists already; choose another name or pass --overwrite")
    network = read_network(source.model, options.input_shape)
    if options.form == "scipy":
        to_scipy(network, out)
    elif options.form == "onnx":
        to_onnx(network, out, dense=options.dense, softmax=options.softmax)
    elif options.form == "nir":
        to_nir(network, out)
    elif options.form == "pynn":
        to_pynn(network, out, delay=options.delay, gain=options.gain, conductance=options.conductance)
    else:
        _run_c(source, network, options)
    print(f"{options.form}: {out}")
    return 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers with commas between them") from None


def _run_c(source: Source, network: Network, options: argparse.Namespace) -> None:
    data = source.test_data()
    if options.bytes and data is None:
        raise ExportError("--bytes needs the data set of the run, which says what a byte means, and it was not found")
    pixels = 1 / data.maximum if options.bytes and data is not None else None
    written = to_c(
        network, options.out, weights=options.weights, scales=options.scales, name=options.name, pixels=pixels
    )
    print(f"flash: {written.flash:,} bytes for {written.connections:,} connections; ram: {written.ram:,} bytes")
    if data is None:
        return
    x, y = data.inputs("test", flatten=True).numpy(), data.test_y.numpy()
    part = "held-out" if source.config is not None and source.config.validation else "test"
    before = accuracy(network, x, y)
    print(f"{part} accuracy: {100 * before:.2f} %")
    if options.weights == "int8":
        after = accuracy(quantised(network, options.scales), x, y)
        print(f"with int8 weights: {100 * after:.2f} % ({100 * (after - before):+.2f} points)")


def accuracy(network: Network, x: np.ndarray, y: np.ndarray) -> float:
    return float((network.forward(x).argmax(1) == y).mean())
