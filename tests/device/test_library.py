"""The C source by itself: warnings, what it needs, how much memory it takes, and a million steps."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from device_helpers import random_steps, small

from wirebound.export import write_trainer
from wirebound.export.device_network import Rates, decode
from wirebound_lab.device import DeviceError, build, connect

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_trainer(small(), tmp_path_factory.mktemp("library") / "trainer").folder / "src"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(("fixed", "in_bytes"), [(0, 1), (0, 0), (1, 1), (1, 0)])
def test_no_compiler_warns(compiler, fixed, in_bytes, source):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    switches = [f"-DWB_FIXED={fixed}", f"-DWB_INPUT_BYTES={in_bytes}"]
    subprocess.run([compiler, *STRICT, *switches, "-fsyntax-only", source / "wirebound_device.c"], check=True)


@pytest.mark.parametrize("fixed", [0, 1])
def test_it_needs_nothing_but_a_few_functions(fixed, source, tmp_path):
    made = tmp_path / "x.o"
    command = ["cc", "-std=c99", "-Os", "-fno-stack-protector", f"-DWB_FIXED={fixed}", "-c", source / "wirebound_device.c", "-o", made]
    subprocess.run(command, check=True)
    listed = subprocess.run(["nm", made], capture_output=True, text=True, check=True).stdout
    kinds = dict((line.split()[-1], line.split()[-2]) for line in listed.splitlines())
    taken = {name.lstrip("_") for name, kind in kinds.items() if kind == "U"} - {"GLOBAL_OFFSET_TABLE_"}
    assert taken <= {"memcpy", "memset", "memmove"} | (set() if fixed else {"logf", "sqrtf"})
    assert not {name for name, kind in kinds.items() if kind in "BbDdCGgSs"}, "global variables"
    assert all(name.startswith("wb_") for name, kind in kinds.items() if kind == "T")
    included = re.findall(r"#include <(.*)>", (source / "wirebound_device.c").read_text())
    assert included == ["string.h", "math.h"]


def test_every_variant_keeps_its_budget_under_sanitizers(numbers, variant, sanitized):
    """Thirteen kinds of networks, checked on the spot after each of 400 steps; memory is what Python says."""
    network = small(numbers, **variant)
    with connect(sanitized(network), network, "host") as trainer:
        assert trainer.memory == network.memory
        for layer in network.frozen:
            trainer.freeze(layer)
        before, _ = decode(network, trainer.report().state)
        losses = trainer.steps(*random_steps(network, 400), checked=True)
        report = trainer.report()
        after, steps = decode(network, report.state)
    assert steps == 400
    assert np.isfinite(losses).all()
    assert sum(report.active) == network.connections
    if network.per_layer:
        assert tuple(report.active) == network.counts
    for layer in network.frozen:
        first = sum(network.sizes[:layer])
        a, b = (arrays["start"][[first, first + network.sizes[layer]]] for arrays in (before, after))
        for name in ("theta", "row"):
            assert np.array_equal(before[name][a[0] : a[1]], after[name][b[0] : b[1]])
        assert report.newborns[layer] == 0


def test_bytes_of_a_connection():
    for numbers, momentum, most in (("float", 0.0, 6), ("fixed", 0.0, 4), ("float", 0.9, 10), ("fixed", 0.9, 6)):
        network = small(numbers, rates=Rates(momentum=momentum))
        assert sum(kind.itemsize for _, kind, length in network.arrays() if length == network.connections) == most


def test_extreme_inputs_and_rates_do_no_harm_in_fixed_point(sanitized):
    network = small("fixed", rates=Rates(0.99, 0.5, noise=0.99, momentum=0.99), bias=True)
    x, labels, _ = random_steps(network, 300)
    with connect(sanitized(network), network, "host") as trainer:
        trainer.steps(np.full_like(x, 255), labels, np.tile([0.9999, 0.9999, 0.9999], (300, 1)), checked=True)
        trainer.steps(x, labels, np.tile([0.9999, 0.0, 0.0], (300, 1)), checked=True)


def test_what_is_not_finite_is_refused_and_changes_nothing(sanitized):
    network = small(pixels=None)
    x, labels, rates = random_steps(network, 4)
    with connect(sanitized(network), network, "host") as trainer:
        before = trainer.report().state
        with pytest.raises(DeviceError, match="WB_NOT_FINITE"):
            trainer.steps(np.full_like(x, np.inf), labels, rates)
        assert trainer.report().state == before
        with pytest.raises(DeviceError, match="WB_BAD_LABEL"):
            trainer.steps(x, labels + 5, rates)
        with pytest.raises(DeviceError, match="WB_BAD_LAYER"):
            trainer.freeze(3)
        assert trainer.report().state == before


@pytest.mark.slow
def test_a_million_steps_on_the_paper_s_network(numbers, tmp_path):
    network = small(numbers, sizes=(784, 300, 100, 10), counts=(1751, 685, 226), rates=Rates(0.05, 1e-4))
    program = build(write_trainer(network, tmp_path / "trainer").folder, "host")
    with connect(program, network, "host") as trainer:
        for part in range(100):
            trainer.steps(*random_steps(network, 10_000, seed=part), checked=True)
        report = trainer.report()
    assert report.step == 1_000_000
    assert sum(report.active) == 2662
