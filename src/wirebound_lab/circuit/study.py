"""The circuit of a finished run, and the ablations that say whether it is the one."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wirebound.checkpoint import load
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.circuit.ablate import accuracies, accuracy, chance, connection_count
from wirebound_lab.circuit.find import find_circuit
from wirebound_lab.circuit.stored import MODEL
from wirebound_lab.report import ReportError
from wirebound_lab.run.config import make_config, read_settings, tasks
from wirebound_lab.tasks.task import Questions

_ASKED = 1000  # questions by which the circuit is found; held-out ones judge it
_DRAWS = 20  # of other connections


@dataclass(frozen=True)
class Ablations:
    """A circuit, and shares of right answers on held-out questions."""

    question: str
    budget: int
    connections: list[int]
    core: int  # connections that are enough alone; the others of the circuit stand in for them
    chance: float  # of the best constant answer
    whole: float  # with all connections
    kept: float  # with the circuit alone
    core_kept: float  # with the core alone
    zeroed: float  # without the circuit
    zeroed_centred: float  # the same, less the mean score of each choice
    others: float  # without as many others, drawn at random: the mean
    others_worst: float
    draws: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_in_run(folder: Path, least: float = 0.99) -> Ablations:
    """Find the circuit of a run on questions like those of its training, and ablate it on held-out ones."""
    model, task = load_run(folder)
    try:
        found = find_circuit(model, task.questions("train", _ASKED), (1 + least) / 2)  # room for what is not held out
    except ValueError as error:
        raise ReportError(f"run folder (={folder}): {error}") from error
    return ablate(model, task.questions("held-out", 2 * _ASKED), found.circuit, found.core)


def load_run(folder: Path) -> tuple[nn.Module, Any]:
    """The trained network of a finished run with a sparse method, and its task."""
    if not (folder / MODEL).is_file() or not (folder / "config.json").is_file():
        raise ReportError(f"run folder (={folder}) must hold {MODEL} and config.json: it must be a finished run")
    config = make_config(read_settings(folder / "config.json"))
    task = tasks()[config.task](config)
    model = task.method.model
    load(folder / MODEL, model=model)
    if not wirings(model):
        raise ReportError(f"run folder (={folder}) must be of a sparse method, not of {config.method}")
    return model.eval(), task


def ablate(model: nn.Module, asked: Questions, circuit: Tensor, core: Tensor) -> Ablations:
    numbers, others = circuit.nonzero().flatten(), (~circuit).nonzero().flatten()
    draws = []
    generator = torch.Generator().manual_seed(0)
    for _ in range(_DRAWS):
        chosen = others[torch.randperm(len(others), generator=generator)[: len(numbers)]]
        without = torch.ones_like(circuit)
        without[chosen] = False
        draws.append(accuracy(model, asked, without))
    zeroed, centred = accuracies(model, asked, ~circuit)
    return Ablations(
        question=asked.what, budget=connection_count(model), connections=numbers.tolist(), core=int(core.sum()),
        chance=chance(asked), whole=accuracy(model, asked), kept=accuracy(model, asked, circuit),
        core_kept=accuracy(model, asked, core), zeroed=zeroed, zeroed_centred=centred,
        others=sum(draws) / len(draws), others_worst=min(draws), draws=_DRAWS,
    )  # fmt: skip
