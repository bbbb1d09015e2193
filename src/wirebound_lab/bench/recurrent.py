"""LSTM and GRU layers: torch's dense ones against ours, and the memory of a training step of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wirebound.nn.recurrent import SparseGRU, SparseLSTM
from wirebound.ops.layout import rows_of, signs_of
from wirebound_lab.bench.fresh_process import run_fresh
from wirebound_lab.bench.results import Goal, Measurement, Section, Settings, Table, WrongAnswerError
from wirebound_lab.bench.timing import race, threads

_CLASSES: dict[str, type[SparseLSTM] | type[SparseGRU]] = {"LSTM": SparseLSTM, "GRU": SparseGRU}
_TOLERANCE = 1e-3  # of the largest number: gradients of float32 through hundreds of steps in another order
HIDDEN, QUICK_HIDDEN, CONNECTIVITY = 2048, 512, 0.01


@dataclass(frozen=True)
class RecurrentWorkload:
    """A layer and its sequences. Work: forward and backward through autograd, gradients to all of the layer and to x."""

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


# Goal, and what the prototype reached.
ROWS: tuple[tuple[RecurrentWorkload, float | None, float | None], ...] = (
    (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.01), 14, 12.9),
    (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.05), 8, 7.3),
    (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.10), 5.5, 5.0),
    (RecurrentWorkload("LSTM", 39, 200, 300, 32, 0.20), 3, 2.9),
    (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.01), None, None),
    (RecurrentWorkload("GRU", 39, 200, 300, 32, 0.10), None, None),
)


@dataclass(frozen=True)
class RecurrentContender:
    """A pass through a layer, and its answer: y, dx, the gradient at each connection, and those of the biases."""

    run: Callable[[], Tensor]
    answer: Callable[[], dict[str, Tensor]]


class RecurrentProblem:
    """A sparse layer, its dense twin, and their input."""

    def __init__(self, workload: RecurrentWorkload, seed: int = 0) -> None:
        self.layer = _CLASSES[workload.kind](
            workload.n_in, workload.hidden, connectivity=workload.connectivity, seed=seed
        )
        self.twin = self.layer.dense_twin()
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(workload.steps, workload.batch, workload.n_in, generator=generator)
        self.dy = torch.randn(workload.steps, workload.batch, workload.hidden, generator=generator)

    def _contender(self, module: nn.Module, gradient: Callable[[], Tensor]) -> RecurrentContender:
        x = self.x.clone().requires_grad_()

        def run() -> Tensor:
            x.grad = None
            for parameter in module.parameters():
                parameter.grad = None
            y: Tensor = module(x)[0]
            torch.autograd.backward(y, self.dy)
            return y

        def answer() -> dict[str, Tensor]:
            y = run()
            assert x.grad is not None
            found = {"y": y.detach(), "dx": x.grad, "gradient": gradient()}
            for name, parameter in module.named_parameters():
                if name.startswith("bias") and parameter.grad is not None:
                    found[name] = parameter.grad
            return found

        return RecurrentContender(run, answer)

    def ours(self) -> RecurrentContender:
        wiring = self.layer.wiring

        def gradient() -> Tensor:
            assert wiring.theta.grad is not None
            return wiring.theta.grad * signs_of(wiring.packed_rows, wiring.theta.dtype)

        return self._contender(self.layer, gradient)

    def dense(self) -> RecurrentContender:
        def gradient() -> Tensor:
            found = []
            for name, matrix in zip(self.layer.matrix_names, self.layer.matrices(), strict=True):
                index = self.layer.wiring.layer_index(matrix.part)
                counts = index.layer_colptr().diff()
                columns = torch.repeat_interleave(torch.arange(counts.numel()), counts)
                weight = self.twin.get_parameter(name)
                assert weight.grad is not None
                found.append(weight.grad[rows_of(index.layer_packed_rows()), columns])
            return torch.cat(found)

        return self._contender(self.twin, gradient)


def require_equal(ours: RecurrentContender, dense: RecurrentContender) -> None:
    """Raise unless both compute the same."""
    expected = dense.answer()
    for name, found in ours.answer().items():
        scale = float(expected[name].abs().max())
        if not torch.allclose(found, expected[name], rtol=_TOLERANCE, atol=_TOLERANCE * scale):
            raise WrongAnswerError(f"ours: {name} differs from dense torch")


def measure_layer(workload: RecurrentWorkload, settings: Settings) -> Measurement:
    settings.say(workload.label)
    problem = RecurrentProblem(workload)
    dense, ours = problem.dense(), problem.ours()
    require_equal(ours, dense)
    times = race({"dense": dense.run, "ours": ours.run}, 4 * settings.seconds, settings.rounds)
    return Measurement(workload.label, times, {"dense ÷ ours": times["dense"].best / times["ours"].best})


def run_process(sparse: bool, hidden: int, steps: int = 20, batch: int = 8) -> dict[str, float]:
    """``recurrent_process`` in a fresh Python."""
    wanted = {"sparse": sparse, "hidden": hidden, "connectivity": CONNECTIVITY, "steps": steps, "batch": batch}
    found: dict[str, float] = run_fresh("wirebound_lab.bench.recurrent_process", wanted, "the LSTM's memory")
    return found


def measure_memory(hidden: int, settings: Settings) -> Measurement:
    """Peak memory of training steps with Adam, of ours and of dense torch, each in a process of its own."""
    settings.say(f"memory of an LSTM, {hidden}→{hidden}")
    ours, dense = run_process(True, hidden), run_process(False, hidden)
    numbers = {
        "peak RSS of ours, GB": 1e-9 * ours["peak"],
        "peak RSS of dense, GB": 1e-9 * dense["peak"],
        "of which imports, GB": 1e-9 * ours["peak of imports"],
        "above imports, dense ÷ ours": (dense["peak"] - dense["peak of imports"])
        / max(1.0, ours["peak"] - ours["peak of imports"]),
    }
    return Measurement(f"LSTM {hidden}→{hidden}, T 20, B 8, {100 * CONNECTIVITY:g} %, Adam", {}, numbers)


def measure(settings: Settings) -> Section:
    found: list[Measurement] = []
    goals: list[Goal] = []
    with threads(settings.threads):
        for workload, goal, prototype in ROWS:
            measurement = measure_layer(workload, settings)
            found.append(measurement)
            if goal is not None:
                reached = measurement.numbers["dense ÷ ours"]
                goals.append(Goal(f"{workload.label}: dense ÷ ours", goal, reached, prototype=prototype))
    memory = measure_memory(QUICK_HIDDEN if settings.quick else HIDDEN, settings)
    notes = [
        "Work of a layer: forward and backward through autograd, as modules; gradients to the input, the weights (at the "
        "active positions if sparse) and the biases; float32.",
        "Memory: peak RSS of a process that takes two training steps (Adam; ours with rewiring). Activations are the same "
        "for both; what grows with the weights is not.",
    ]
    tables = [Table("One layer through time", found), Table("Memory of a training step", [memory])]
    return Section("lstm", "Recurrent layers", tables, goals, notes)
