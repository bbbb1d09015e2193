"""Write a C library that trains a network on a microcontroller, from nothing, inside a budget of connections. With --train
the library trains here, on this computer or on an emulated chip, and leaves a run folder like any other. Settings are those
of `wirebound train`; a chip learns from one example at a time. `wirebound export RUN --to c-trainer` starts from a run.

example: wirebound device 784-300-100-10 --budget 2662 --lr 0.1 --out trainer
"""

import argparse
from pathlib import Path
from typing import Any

from wirebound.export import write_trainer
from wirebound.export.device_network import NUMBERS
from wirebound_lab.cli.settings import add_settings, parse_given
from wirebound_lab.device import MACHINES, device_network, train_on_device
from wirebound_lab.run.config import ConfigError, RunConfig, make_config, settings_of
from wirebound_lab.run.models import build_model
from wirebound_lab.run.running import RunProgress

# What a chip begins with where nothing else is said: one example a step, a price that is a number, no noise.
DEFAULTS: dict[str, Any] = {"batch_size": 1, "l1": 1e-4, "noise": 0.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "inputs, hidden layers and outputs, such as 784-300-100-10"
    parser.add_argument("sizes", type=_sizes, metavar="SIZES", help=text)
    parser.add_argument("--out", type=Path, help="folder for the library")
    parser.add_argument("--overwrite", action="store_true", help="replace a library or a run that exists")
    parser.add_argument("--numbers", choices=NUMBERS, default="float", help="float, or fixed: 16-bit θ, for chips without an FPU")
    text = "inputs are bytes, as pixels are, or numbers (float, or 16 bits in units of 1/2048)"
    parser.add_argument("--inputs", choices=("bytes", "numbers"), default="bytes", help=text)
    parser.add_argument("--freeze", type=int, nargs="*", default=[], metavar="N", help="layers that stay as they are, from 0")
    parser.add_argument("--train", type=Path, metavar="RUN", help="train on --on with --data and write this run folder")
    parser.add_argument("--on", choices=MACHINES, default="host", help="machine that trains (default: host)")
    parser.add_argument("--ram", type=int, help="bytes of memory of an emulated chip (default: the board's, or 28 KB)")
    parser.add_argument("--checked", action="store_true", help="check all connections after every step of --train")
    parser.add_argument("--quiet", action="store_true", help="no line for each epoch")
    add_settings(parser)


def run(options: argparse.Namespace) -> int:
    if options.out is None and options.train is None:
        raise ConfigError("give --out, a folder for the library, or --train, a run folder")
    config = read_config(options)
    if options.out is not None:
        if options.out.exists() and not options.overwrite:
            raise ConfigError(f"out (={options.out}) exists already; choose another name or pass --overwrite")
        model = build_model(config, options.sizes[0], options.sizes[-1])
        settings = {"numbers": options.numbers, "freeze": tuple(options.freeze), "pixels": 1 / 255 if options.inputs == "bytes" else None}
        written = write_trainer(device_network(config, model, **settings), options.out)
        bytes_each = sum(kind.itemsize for name, kind, _ in written.network.arrays() if name in ("theta", "row", "buffer"))
        print(f"ram: {written.memory:,} bytes for {written.network.connections:,} connections of {bytes_each} bytes, an index and activations")
        print(f"library: {options.out}")
    if options.train is not None:
        _train(config, options)
    return 0


def read_config(options: argparse.Namespace) -> RunConfig:
    """The settings of a run with a network of these sizes."""
    names = settings_of("perceptron", "deep-r")
    given = {name: value for name, value in vars(options).items() if name in names}
    if "hidden" in given:
        raise ConfigError("the hidden layers are those of SIZES: omit --hidden")
    typed = parse_given(given, given)
    config = make_config(DEFAULTS, typed, {"hidden": list(options.sizes[1:-1])})
    if config.batch_size != 1:
        raise ConfigError(f"batch_size (={config.batch_size}) must be 1: a chip learns from one example at a time")
    return config


def _train(config: RunConfig, options: argparse.Namespace) -> None:
    told = 0

    def listener(now: RunProgress) -> None:
        nonlocal told
        if now.accuracy is not None and now.epoch > told and not options.quiet:
            told = now.epoch
            print(f"epoch {now.epoch}/{now.epochs}: loss {now.loss:.4f}, accuracy {100 * now.accuracy:.2f} %", flush=True)

    how = {"machine": options.on, "numbers": options.numbers, "ram": options.ram, "checked": options.checked}
    result, last = train_on_device(config, options.train, sizes=options.sizes, overwrite=options.overwrite, listener=listener, **how)
    summary = result.summary
    part = "validation" if config.validation else "test"
    print(f"{part} accuracy on {summary['path']}: {100 * summary['test_accuracy']:.2f} %")
    print(f"connections after every report: {summary['min_active']:,} to {summary['max_active']:,} of a budget of {summary['budget']:,}")
    if last.stack:
        print(f"ram: {last.ram:,} bytes, {last.stack:,} of them stack, of {summary['device']['limit']:,}")
    print(f"run folder: {result.folder}")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in text.split("-"))
    except ValueError:
        sizes = ()
    if len(sizes) < 2 or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be sizes with - between them, such as 784-300-100-10")
    return sizes
