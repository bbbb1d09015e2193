"""Write a trained network for SciPy, ONNX, NIR, PyNN or C, or a C library that goes on training it.

example: wirebound export runs/x --to c --out model.h
"""

import argparse
from pathlib import Path
from typing import Any

from wirebound.export import FORMATS, CHeader, ExportError, Network, Trainer, read_network
from wirebound.export.c_code import quantised
from wirebound_lab.data import Dataset
from wirebound_lab.run.export_source import Source, open_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    folders = [name for name, form in FORMATS.items() if form.folder]
    parser.add_argument("source", type=Path, metavar="RUN_OR_MODEL", help="a finished run folder, or a model's file")
    parser.add_argument("--to", choices=FORMATS, required=True, dest="form", help="format")
    parser.add_argument("--out", type=Path, required=True, help=f"file to write ({' and '.join(folders)}: folder)")
    parser.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    text = "of one example, such as 1,28,28: for models with convolutions"
    parser.add_argument("--input-shape", type=_shape, metavar="C,H,W", help=text)
    for name, form in FORMATS.items():
        for option, default, choices, said in form.options():
            given: Any = {"type": _shape if isinstance(default, tuple) else type(default), "choices": choices or None}
            if default is False:
                given = {"action": "store_true"}
            parser.add_argument(f"--{option}", default=default, help=f"{name}: {said}", **given)
    parser.add_argument("--bytes", action="store_true", help="c: inputs are bytes as the run's data set stores them")


def run(options: argparse.Namespace) -> int:
    source = open_source(options.source)
    out: Path = options.out
    if (out.exists() or out.is_symlink()) and not options.overwrite:
        raise ExportError(f"out (={out}) exists already; choose another name or pass --overwrite")
    form = FORMATS[options.form]
    if form.of_model:
        return _write_trainer(source, out, options)
    network = read_network(source.model, options.input_shape)
    settings = {name: getattr(options, name) for name in form.settings}
    data = source.test_data() if options.form == "c" else None
    if options.form == "c" and options.bytes:
        if data is None:
            raise ExportError("--bytes needs the data set of the run, which says what a byte means, and it was not found")
        settings["pixels"] = 1 / data.maximum
    written = form.write(network, out, **settings)
    if isinstance(written, CHeader):
        print(f"flash: {written.flash:,} bytes for {written.connections:,} connections; ram: {written.ram:,} bytes")
        if data is not None:
            _print_accuracy(source, network, data, options)
    print(f"{options.form}: {out}")
    return 0


def _write_trainer(source: Source, out: Path, options: argparse.Namespace) -> int:
    """The C library of a run; what its settings say about rewiring, the chip does too."""
    form, config = FORMATS[options.form], source.config
    settings: dict[str, Any] = {name: getattr(options, name) for name in form.settings}
    if config is not None and config.method == "deep-r":
        momentum = config.momentum if config.optimizer == "momentum" else 0.0
        settings |= {"newborns": config.newborns, "rewire_every": config.rewire_every, "momentum": momentum}
    data = source.test_data()
    if data is not None:
        settings["pixels"] = 1 / data.maximum
    written: Trainer = form.write(source.model, out, **settings)
    print(f"ram: {written.memory:,} bytes for {written.network.connections:,} connections; flash: {written.state:,} bytes of them")
    print(f"{options.form}: {out}")
    return 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers with commas between them") from None


def _print_accuracy(source: Source, network: Network, data: Dataset, options: argparse.Namespace) -> None:
    x, y = data.inputs("test", flatten=True).numpy(), data.test_y.numpy()
    part = "held-out" if source.config is not None and source.config.validation else "test"

    def accuracy(found: Network) -> float:
        return float((found.forward(x).argmax(1) == y).mean())

    before = accuracy(network)
    print(f"{part} accuracy: {100 * before:.2f} %")
    if options.weights == "int8":
        after = accuracy(quantised(network, options.scales))
        print(f"with int8 weights: {100 * after:.2f} % ({100 * (after - before):+.2f} points)")
