"""A run whose steps a chip takes: the same loop, run folder and report as any other, with ``path`` saying where."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirebound.export.device_network import DeviceNetwork, Rates, first_scales, read_trained
from wirebound.export.to_c_trainer import write_trainer
from wirebound.ledger import Entry
from wirebound.methods import DeepR
from wirebound_lab.device.engine import DeviceEngine
from wirebound_lab.device.machine import MACHINES, Report, build, connect
from wirebound_lab.run.config import ConfigError, RunConfig
from wirebound_lab.run.loop import RunResult, summarise
from wirebound_lab.run.processes import StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import RunState
from wirebound_lab.run.running import Listener, TrainingRun
from wirebound_lab.tasks.perceptron import Perceptron

# Settings that a chip has only one value of, and why.
_ONLY: dict[str, tuple[Any, str]] = {
    "task": ("perceptron", "a chip trains perceptrons"),
    "method": ("deep-r", "a chip trains by DEEP R"),
    "activation": ("relu", "a chip has ReLU between its layers"),
    "weight_decay": (0.0, "a chip has no weight decay"),
    "temperature": (None, "a chip has noise, of amplitude η g"),
    "on_nan": ("stop", "a chip does not take a step that is not finite"),
}


def require_on_device(config: RunConfig) -> None:
    """Refuse settings that the C trainer does not have, each with one sentence."""
    for name, (value, why) in _ONLY.items():
        found = getattr(config, name, value)
        if found != value:
            raise ConfigError(f"{name} (={found!r}) must be {value!r}: {why}")
    if isinstance(config.l1, str):
        raise ConfigError(f"l1 (={config.l1!r}) must be a number: only `wirebound train` adjusts it while it runs; 1e-4 is the paper's")
    if config.optimizer not in ("sgd", "momentum"):
        raise ConfigError(f"optimizer (={config.optimizer!r}) must be sgd or momentum: a chip has no memory for others")


def device_network(config: RunConfig, model: Any, *, numbers: str = "float", freeze: tuple[int, ...] = (), pixels: float | None = 1 / 255) -> DeviceNetwork:
    """The settings of a trainer for a run."""
    require_on_device(config)
    momentum = config.momentum if config.optimizer == "momentum" else 0.0
    rates = Rates(config.lr, config.l1, config.noise, momentum)
    settings = {"newborns": config.newborns, "rewire_every": config.rewire_every, "pixels": pixels, "frozen": freeze}
    network = read_trained(model, numbers=numbers, rates=rates, **settings)
    return dataclasses.replace(network, scales=first_scales(network.sizes, network.counts, config.init, config.gain))


def train_on_device(
    config: RunConfig, out: Path, *, machine: str = "host", numbers: str = "float", ram: int | None = None, checked: bool = False,
    sizes: Sequence[int] | None = None, overwrite: bool = False, listener: Listener | None = None,
) -> tuple[RunResult, Report]:  # fmt: skip
    """Train from nothing by the C library on a machine, and write a run folder; also the trainer's last report."""
    config.check()
    require_on_device(config)
    folder, task = RunFolder(out, overwrite=overwrite), Perceptron(config)
    method, model, data = task.method, task.method.model, task.data
    assert isinstance(method, DeepR)
    network = device_network(config, model, numbers=numbers, pixels=1 / data.maximum)
    if sizes is not None and tuple(sizes) != network.sizes:
        needed = "-".join(map(str, network.sizes))
        raise ConfigError(f"sizes (={'-'.join(map(str, sizes))}) must be {needed} for data {config.data!r}")
    with tempfile.TemporaryDirectory(prefix="wirebound-") as place:
        program = build(write_trainer(network, Path(place) / "trainer").folder, machine, ram)
        with connect(program, network, machine, ram=ram) as chip, StopRequest() as stop, folder:
            name = f"{MACHINES[machine].title}, {numbers} numbers"
            engine = DeviceEngine(chip, model, method, data.train_x, data.train_y, name, checked)
            run = TrainingRun(task, engine, RunState(method.layer_active()), folder, listener)
            folder.write_json("config.json", config.as_dict())
            run.go(stop)
            on_chip = float((chip.predict(data.test_x.flatten(1).numpy()) == data.test_y.numpy()).mean())
            last = chip.report()
            summary = _summary(run, network, last, on_chip, ram or MACHINES[machine].ram)
            folder.finish(summary, model, {"config": config.identity(), "result": {"steps": summary["steps"]}})
    return RunResult(summary, model, folder.path), last


def _summary(run: TrainingRun, network: DeviceNetwork, last: Report, on_chip: float, ram: int) -> dict[str, Any]:
    """As of any run; the ledger is that of the chip, and the accuracy is what the chip itself has measured."""
    summary = summarise(run)
    sizes = {name: kind.itemsize * length for name, kind, length in network.arrays()}
    entries = [Entry(name, size, "in the chip's memory") for name, size in sizes.items()]
    entries += [
        Entry("activations", network.memory - sum(sizes.values()), "activations, then deltas, then lists of a rewiring"),
        Entry("context", last.context, "wb_context"),
    ]
    if last.variables:
        entries.append(Entry("program", last.variables - network.memory - last.context, "one example, and counters"))
        entries.append(Entry("stack", last.stack, "painted and measured"))
    chip = {"accuracy": on_chip, "ram": last.ram, "stack": last.stack, "limit": ram, "numbers": network.numbers}
    return {**summary, "test_accuracy": on_chip, "ledger": [entry.__dict__ for entry in entries], "device": chip}


