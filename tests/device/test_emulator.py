"""On emulated chips (`make device`): the same bits as on this computer, inside the stated memory, the stack included."""

import json
import shutil

import pytest
from device_helpers import random_steps, small

from wirebound.export import write_trainer
from wirebound.export.device_network import Rates
from wirebound_lab import data as datasets
from wirebound_lab.device import DeviceError, build, connect
from wirebound_lab.run.config import make_config

NEEDED = ("qemu-system-arm", "arm-none-eabi-gcc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in NEEDED), reason="emulated chips need `make emulator`, as root"),
]
PAPER = {"sizes": (784, 300, 100, 10), "counts": (1751, 685, 226), "rates": Rates(0.05, 1e-4)}
# numbers, chip, bytes of memory: what is promised of 784-300-100-10 at 1 %
PROMISED = [("float", "cortex-m4", 28 * 1024), ("fixed", "cortex-m4", 20 * 1024), ("fixed", "cortex-m0", 16 * 1024)]


@pytest.mark.parametrize(("numbers", "chip", "ram"), PROMISED)
def test_the_same_bits_inside_the_promised_memory(numbers, chip, ram, tmp_path):
    network = small(numbers, **PAPER)
    folder = write_trainer(network, tmp_path / "trainer").folder
    reports, steps = [], random_steps(network, 500)
    for machine, limit in (("host", None), (chip, ram)):
        with connect(build(folder, machine, limit), network, machine, ram=limit) as trainer:
            trainer.steps(*steps, checked=True)
            reports.append(trainer.report())
    host, emulated = reports
    assert host.state == emulated.state
    assert emulated.variables > network.memory
    assert emulated.stack > 0
    assert emulated.ram < ram


def test_noise_momentum_and_biases_on_the_chip(numbers, tmp_path):
    network = small(numbers, bias=True, rates=Rates(0.05, 1e-3, noise=0.01, momentum=0.5))
    folder = write_trainer(network, tmp_path / "trainer").folder
    states = []
    for machine in ("host", "cortex-m4", "cortex-m0"):
        with connect(build(folder, machine), network, machine) as trainer:
            trainer.steps(*random_steps(network, 300), checked=True)
            states.append(trainer.report().state)
    assert states[0] == states[1] == states[2]


def test_too_little_memory_is_noticed(tmp_path):
    network = small("fixed", **PAPER)
    folder = write_trainer(network, tmp_path / "trainer").folder
    with pytest.raises(DeviceError, match="does not fit"):
        build(folder, "cortex-m4", 15 * 1024)
    with connect(build(folder, "cortex-m4"), network, "cortex-m4") as trainer:
        trainer.steps(*random_steps(network, 50))
        needed = trainer.report()
    tight = (needed.ram - 64) // 8 * 8  # the variables fit, the stack does not
    with pytest.raises(DeviceError), connect(build(folder, "cortex-m4", tight), network, "cortex-m4", ram=tight) as trainer:
        trainer.steps(*random_steps(network, 50))
        trainer.report()


def test_an_epoch_of_mnist_checked_after_every_step(tmp_path):
    data = datasets.load("mnist")
    network = small("float", **PAPER)
    x, y = data.train_x.flatten(1).numpy(), data.train_y.numpy()
    rates = random_steps(network, 1)[2].repeat(len(x), 0)
    with connect(build(write_trainer(network, tmp_path / "trainer").folder, "cortex-m4"), network, "cortex-m4") as chip:
        losses = chip.steps(x, y, rates, checked=True)
        report = chip.report()
        right = (chip.predict(data.test_x.flatten(1).numpy()[:2000]) == data.test_y.numpy()[:2000]).mean()
    assert report.step == len(x)
    assert sum(report.active) == 2662
    assert losses[-5000:].mean() < 0.6
    assert right > 0.8


def test_a_run_on_a_chip(tmp_path):
    from wirebound_lab.device import train_on_device

    config = make_config({"data": "digits", "budget": 400, "hidden": [40], "batch_size": 1, "l1": 1e-4, "lr": 0.1, "epochs": 3, "noise": 0.0})
    result, last = train_on_device(config, tmp_path / "run", machine="cortex-m0", numbers="fixed")
    assert result.summary["test_accuracy"] > 0.6
    assert {"stack", "context", "theta"} <= {entry["part"] for entry in result.summary["ledger"]}
    assert sum(entry["bytes"] for entry in result.summary["ledger"]) == last.ram


def test_the_study_of_costs(tmp_path):
    import device_cost  # benchmarks/

    assert device_cost.main(["--out", str(tmp_path), "--before", "500", "--steps", "100"]) == 0
    lines = json.loads((tmp_path / "cost.json").read_text())
    dense = lines.pop()
    assert len(lines) == 6
    for line in lines:
        assert 50_000 < line["instructions"] < dense["instructions"]
        assert line["ram"] < dense["ram"] / 40
