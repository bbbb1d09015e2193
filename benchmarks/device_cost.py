"""What a training step costs on a microcontroller: instructions, memory and code, beside a dense trainer of the same network.

    python benchmarks/device_cost.py --out results/device

MNIST, 784-300-100-10 with 2,662 connections, in the steady state: after an epoch on this computer the connections move to
the emulated chip, which goes on. QEMU counts instructions (`-icount shift=0` makes its clock advance by one nanosecond for
each), and the chip reads its SysTick before and after every step; what a tick is worth is measured on the chip, by a loop of
2^20 instructions. Instructions are no cycles: a Cortex-M takes one or two for most, more for branches, divisions and loads
from slow flash, so times are those of one cycle for each instruction.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wirebound.export.device_network import DeviceNetwork, Rates, decode, first_scales
from wirebound.export.to_c_trainer import write_trainer
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset
from wirebound_lab.device import build, connect
from wirebound_lab.paper.study import study_parser, write_study
from wirebound_lab.tables import markdown_table

SIZES, COUNTS = (784, 300, 100, 10), (1751, 685, 226)
LR, L1, REWIRE_EVERY = 0.1, 1e-4, 10
CLOCK = 64e6  # Hz
DENSE_RAM = 2 << 20
CASES = (("float", "cortex-m4"), ("fixed", "cortex-m4"), ("fixed", "cortex-m0"))


def network(numbers: str, rewire_every: int) -> DeviceNetwork:
    scales = first_scales(SIZES, COUNTS, "sparse-fan-in")
    return DeviceNetwork(SIZES, COUNTS, scales, rates=Rates(LR, L1), numbers=numbers, rewire_every=rewire_every)


def rates(steps: int) -> np.ndarray:
    return np.tile([LR, LR * L1, 0.0], (steps, 1))


def measure(numbers: str, machine: str, rewire_every: int, data: Dataset, before: int, steps: int) -> dict[str, Any]:
    """One line: a trainer whose connections have learned for ``before`` steps, over the next ``steps``."""
    x, y = data.train_x.flatten(1).numpy(), data.train_y.numpy()
    mine = network(numbers, rewire_every)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "trainer"
        with connect(build(write_trainer(mine, folder).folder, "host"), mine, "host") as here:
            here.steps(x[:before], y[:before], rates(before))
            state = here.report().state
        decode(mine, state)  # whole, or an error
        program = build(write_trainer(mine, folder, state).folder, machine)
        with connect(program, mine, machine, count=True) as chip:
            chip.steps(x[before : before + steps], y[before : before + steps], rates(steps))
            last = chip.report()
            instructions = chip.instructions()
        code = _code_size(folder, machine)
    line = {"trainer": f"{numbers}, {mine.connections:,} connections", "machine": machine, "rewire_every": rewire_every, "steps": steps}
    return {**line, "newborns": sum(last.newborns) / steps, **_cost(instructions, last.ram, last.stack), "code": code}


def measure_dense(data: Dataset, steps: int) -> dict[str, Any]:
    """The same network in full, on a Cortex-M4 with two megabytes of memory."""
    x, y = data.train_x.flatten(1).numpy(), data.train_y.numpy()
    mine = network("float", 1)
    with tempfile.TemporaryDirectory() as place:
        folder = write_trainer(mine, Path(place) / "trainer").folder
        shutil.copyfile(Path(__file__).parent / "dense_trainer.c", folder / "emulator" / "main.c")
        program = build(folder, "cortex-m4", DENSE_RAM)
        with connect(program, mine, "cortex-m4", ram=DENSE_RAM, count=True) as chip:
            losses = chip.steps(x[:steps], y[:steps], rates(steps) * [0.1, 1, 1])
            instructions, last = chip.instructions(), chip.report()
    if not losses[-steps // 4 :].mean() < losses[: steps // 4].mean():
        raise RuntimeError("the dense trainer does not learn")
    line = {"trainer": "dense, float, 266,200 weights", "machine": "cortex-m4", "rewire_every": None, "steps": steps}
    return {**line, "newborns": 0.0, **_cost(instructions, last.ram, last.stack), "code": None}


def _cost(instructions: float, ram: int, stack: int) -> dict[str, Any]:
    return {"instructions": round(instructions), "milliseconds": 1000 * instructions / CLOCK, "ram": ram, "stack": stack}


def _code_size(folder: Path, machine: str) -> int:
    """Bytes of flash of the library alone, compiled with -Os; what it takes of libc and libgcc is not in it."""
    kind = ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"] if machine == "cortex-m4" else ["-mcpu=cortex-m0"]
    source, made = folder / "src" / "wirebound_device.c", folder / "size.o"
    subprocess.run(["arm-none-eabi-gcc", "-mthumb", "-Os", "-std=c99", *kind, "-c", source, "-o", made], check=True)
    text = subprocess.run(["arm-none-eabi-size", made], capture_output=True, text=True, check=True).stdout
    return int(text.splitlines()[1].split()[0])


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    about = (
        "MNIST, 784-300-100-10, one example a step, measured on emulated chips (QEMU's count of instructions; `benchmarks/"
        "device_cost.py` says how). Times are for 64 MHz at one cycle an instruction. RAM is all that was in use: state, "
        "activations, one example, stack. Code is the library compiled with -Os.\n"
        "Made by `python benchmarks/device_cost.py --out results/device`."
    )
    columns = ["trainer", "chip", "rewiring", "newborns a step", "instructions a step", "at 64 MHz", "RAM, bytes", "of it stack", "code, bytes"]
    rows = []
    for line in lines:
        every = {None: "–", 1: "every step"}.get(line["rewire_every"], f"every {line['rewire_every']} steps")
        cells = [line["trainer"], line["machine"], every, f"{line['newborns']:.1f}", f"{line['instructions']:,}"]
        code = "–" if line["code"] is None else f"{line['code']:,}"
        rows.append([*cells, f"{line['milliseconds']:.1f} ms", f"{line['ram']:,}", f"{line['stack']:,}", code])
    return f"{about}\n\n{markdown_table(columns, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Instructions, memory and code of a training step on a microcontroller.")
    parser.add_argument("--before", type=int, default=50_000, help="steps before the measurement")
    parser.add_argument("--steps", type=int, default=1000, help="steps that are measured")
    options = parser.parse_args(arguments)
    data = datasets.load("mnist")
    lines = []
    for numbers, machine in CASES:
        for every in (REWIRE_EVERY, 1):
            lines.append(measure(numbers, machine, every, data, options.before, options.steps))
            print({name: lines[-1][name] for name in ("trainer", "machine", "rewire_every", "instructions")}, flush=True)
    lines.append(measure_dense(data, options.steps))
    write_study(options.out, "cost", lines, markdown(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
