"""Ours beside dense torch at densities from 1 to 100 %: up to which one ours is faster, and how much slower it ever is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from . import contenders as ways
from .contenders import LinearProblem, LinearWorkload
from .contest import Contender, Measurement, Section, Settings, Table, Wanted, compete, threads
from .layers import RECURRENT, ConvWorkload, RecurrentWorkload, convolutions, recurrent

DENSITIES = (1, 2, 3, 5, 7, *range(10, 101, 5))  # per cent
QUICK_DENSITIES = (1, 20, 50, 100)
FASTER_UP_TO, SLOWEST = "faster than dense up to, %", "slowest, ours ÷ dense"
FASTER_GOAL, SLOWEST_GOAL = Wanted(avx2=60, avx512=50), Wanted(avx2=1.15, avx512=1.15)
_BRIEF = 1 / 3  # of the seconds that other workloads get: there are many densities


@dataclass(frozen=True)
class Swept:
    """A layer at any density: dense and ours, in this order."""

    label: str
    line_up: Callable[[float], Sequence[Contender]]
    faster: Wanted | None = None
    tolerance: float = 1e-4


def linear(size: int, batch: int) -> Swept:
    def line_up(density: float) -> Sequence[Contender]:
        problem = LinearProblem(LinearWorkload(size, size, density, batch))
        return ways.dense_kernel(problem), ways.through_ops(problem, "ours")

    return Swept(f"Linear {size}→{size}, B {batch}", line_up, FASTER_GOAL)


def conv(channels: int, kernel: int, size: int, batch: int) -> Swept:
    def line_up(density: float) -> Sequence[Contender]:
        found = {one.name: one for one in convolutions(ConvWorkload(channels, kernel, size, density, batch))}
        return found["dense"], found["kernel"]

    return Swept(f"Conv {kernel}×{kernel} {channels}→{channels} on {size}×{size}, B {batch}", line_up)


def lstm(inputs: int, hidden: int, steps: int, batch: int) -> Swept:
    def line_up(density: float) -> Sequence[Contender]:
        return recurrent(RecurrentWorkload("LSTM", inputs, hidden, steps, batch, density))

    return Swept(f"LSTM {inputs}→{hidden}, T {steps}, B {batch}", line_up, tolerance=RECURRENT.tolerance)


LAYERS = (linear(1024, 32), linear(1024, 128), conv(64, 5, 12, 32), lstm(39, 200, 300, 32))


def sweep(layer: Swept, densities: Sequence[float], settings: Settings) -> Measurement:
    brief, curve = replace(settings, seconds=_BRIEF * settings.seconds), {}
    for density in densities:
        contenders = layer.line_up(density / 100)
        found = compete(f"{layer.label}, {density:g} %", contenders, brief, tolerance=layer.tolerance)
        dense, ours = (found.times[contender.name].best for contender in contenders)
        curve[float(density)] = dense / ours
    slowest = min(curve, key=lambda density: curve[density])
    numbers = {FASTER_UP_TO: faster_up_to(curve), SLOWEST: 1 / curve[slowest], "slowest at, %": slowest}
    return Measurement(layer.label, {}, numbers, curve)


def faster_up_to(curve: Mapping[float, float]) -> float:
    """The highest density of a rising sweep up to which ours is at least as fast as dense everywhere."""
    return max(takewhile(lambda density: curve[density] >= 1, curve), default=0.0)


def measure(settings: Settings) -> Section:
    densities = QUICK_DENSITIES if settings.quick else DENSITIES
    with threads(settings.threads):
        found = [sweep(layer, densities, settings) for layer in LAYERS]
    goals = []
    for layer, one in zip(LAYERS, found, strict=True):
        faster, slowest = one.numbers[FASTER_UP_TO], one.numbers[SLOWEST]
        goals += settings.goal(f"{layer.label}: faster than dense up to a density of", layer.faster, faster, "%")
        goals += settings.goal(f"{layer.label}: slowest at any density, ours ÷ dense", SLOWEST_GOAL, slowest, at_most=True)
    notes = [
        "One layer's work as in the other tables; ours are the operations as layers call them, results allocated. "
        "A density counts as faster only if all lower ones are."
    ]
    return Section("density", "Any density", [Table("Dense ÷ ours, by density", found)], goals, notes)
