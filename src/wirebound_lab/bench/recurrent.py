"""LSTM and GRU layers: torch's dense ones against ours, and the memory of a training step of both."""

from __future__ import annotations

from dataclasses import dataclass

from wirebound.nn.recurrent import SparseGRU, SparseLSTM
from wirebound_lab.bench.contest import Contender, Contest, Ratio
from wirebound_lab.bench.memory import measure_lstm
from wirebound_lab.bench.problem import LayerProblem
from wirebound_lab.bench.results import Section, Settings, Table

_CLASSES: dict[str, type[SparseLSTM] | type[SparseGRU]] = {"LSTM": SparseLSTM, "GRU": SparseGRU}
HIDDEN, QUICK_HIDDEN = 2048, 512


@dataclass(frozen=True)
class RecurrentWorkload:
    """A layer and its sequences. Work: forward and backward through autograd, gradients to the layer and to x."""

    kind: str
    n_in: int
    hidden: int
    steps: int
    batch: int
    connectivity: float

    @property
    def label(self) -> str:
        size = f"{self.n_in}→{self.hidden}, T {self.steps}, B {self.batch}"
        return f"{self.kind} {size}, {100 * self.connectivity:g} %"


def line_up(workload: RecurrentWorkload) -> list[Contender]:
    """The dense twin, and ours."""
    layer = _CLASSES[workload.kind](workload.n_in, workload.hidden, connectivity=workload.connectivity, seed=0)
    x, dy = ((workload.steps, workload.batch, width) for width in (workload.n_in, workload.hidden))
    problem = LayerProblem(layer, x, dy)
    return [problem.dense_module("dense", layer.matrix_names), problem.module("ours")]


SPEED = Ratio("dense ÷ ours", "dense", "ours", "{}: dense ÷ ours")
LAYERS = Contest(
    "One layer through time",
    (
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.01), {SPEED.name: (14, 12.9)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.05), {SPEED.name: (8, 7.3)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.10), {SPEED.name: (5.5, 5.0)}),
        (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.20), {SPEED.name: (3, 2.9)}),
        (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.01), {}),
        (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.10), {}),
    ),
    line_up,
    (SPEED,),
    tolerance=1e-3,  # gradients of float32 through hundreds of steps in another order
    effort=4,
)


def measure(settings: Settings) -> Section:
    layers, goals = LAYERS.run(settings)
    memory = measure_lstm(QUICK_HIDDEN if settings.quick else HIDDEN, settings)
    notes = [
        "Work of a layer: forward and backward through autograd, as modules; gradients to the input, the weights (at "
        "the active positions if sparse) and the biases; float32.",
        "Memory: peak RSS of a process that takes training steps (Adam; ours with rewiring). Activations are the same "
        "for both; what grows with the weights is not.",
    ]
    return Section("lstm", "Recurrent layers", [layers, Table("Memory of a training step", [memory])], goals, notes)
