"""Refining the first allocation by what training made of it, as the paper suggests (appendix A, "Initialization of
connectivity matrices"): look at the connectivity of each layer after convergence, and start from there.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wirebound.methods import METHODS
from wirebound.wiring.budget import apportion
from wirebound_lab.run.config import make_config, read_settings
from wirebound_lab.run.loop import train
from wirebound_lab.run.record import RunFolderError, read_layer_counts, read_summary
from wirebound_lab.tables import deviation, markdown_table, plus_minus

_NEEDED = ("layers", "budget", "test_accuracy")  # of a run's summary
LAST = 0.25  # share of a run's epochs over which connections are averaged


@dataclass(frozen=True)
class Round:
    """All seeds with one allocation: round 0 is the run's own."""

    allocation: str
    initial: list[int]
    final: list[float]  # of each layer, averaged over the last epochs and over seeds
    accuracy: list[float]  # of each seed

    @property
    def mean(self) -> float:
        return statistics.mean(self.accuracy)

    @property
    def spread(self) -> float:
        return deviation(self.accuracy) or 0.0


def converged(folder: Path, last: float = LAST) -> list[float]:
    """Connections of each layer in a finished run, averaged over the ``last`` share of its epochs."""
    if not 0 < last <= 1:
        raise ValueError(f"last (={last}) must be in (0, 1]")
    if not (folder / "summary.json").exists():
        raise RunFolderError(f"run (={folder}) must be the folder of a finished run")
    epochs = read_layer_counts(folder)
    if not epochs:
        raise RunFolderError(f"run (={folder}) has recorded no epoch")
    late = epochs[-max(1, math.ceil(last * len(epochs))) :]
    return [statistics.mean(layer) for layer in zip(*late, strict=True)]


def refined_counts(final: Sequence[Sequence[float]], possible: Sequence[int], budget: int | None) -> list[int]:
    """The next allocation: what several runs ended with on average, adding up to the budget, or without one to their total."""
    means = [statistics.mean(layer) for layer in zip(*final, strict=True)]
    total = max(1, round(sum(means))) if budget is None else budget
    return apportion(means, possible, total)


def refine(
    run: Path, out: Path, *, rounds: int, seeds: Sequence[int], last: float = LAST,
    listener: Callable[[int, Round], None] = lambda number, one: None,
) -> list[Round]:  # fmt: skip
    """Train with the allocation of ``run`` for all seeds, then ``rounds`` times with what the round before converged to."""
    if rounds < 1:
        raise ValueError(f"rounds (={rounds}) must be >= 1")
    if not seeds:
        raise ValueError("seeds must name at least one")
    # What is wrong with the run is said before anything is trained.
    found_layers, layers = converged(run, last), read_summary(run, *_NEEDED)["layers"]
    if len(found_layers) != len(layers):
        raise RunFolderError(f"run (={run}) has {len(layers)} layers in summary.json and others in metrics.jsonl")
    config = make_config(read_settings(run / "config.json"))
    own = config.seed
    if config.scope != "global":
        raise ValueError(f"scope (={config.scope!r}) of {run} must be 'global': elsewhere layers keep their counts")
    if not METHODS[config.method].rewires:
        rewiring = ", ".join(name for name, kind in METHODS.items() if kind.rewires)
        raise ValueError(f"method (={config.method!r}) of {run} must be one that moves connections: {rewiring}")
    found: list[Round] = []
    for number in range(rounds + 1):
        summaries, final = [], []
        for seed in seeds:
            if number == 0 and seed == own:
                folder, summary = run, read_summary(run, *_NEEDED)
            else:
                folder = out / f"round-{number}-s{seed}"
                summary = train(config.replace(seed=seed), folder, overwrite=True).summary
            summaries.append(summary)
            final.append(converged(folder, last))
        layers = summaries[0]["layers"]
        ends = [statistics.mean(layer) for layer in zip(*final, strict=True)]
        accuracies = [summary["test_accuracy"] for summary in summaries]
        found.append(Round(config.allocation, [layer["initial"] for layer in layers], ends, accuracies))
        listener(number, found[-1])
        counts = refined_counts(final, [layer["possible"] for layer in layers], summaries[0]["budget"])
        if number < rounds:
            allocation = ",".join(map(str, counts))
            config = config.replace(allocation=allocation, budget=sum(counts), connectivity=None).check()
    record = {
        "evaluated_on": "validation" if config.validation else "test",
        "seeds": list(seeds),
        "rounds": [{**dataclasses.asdict(one), "mean": one.mean, "spread": one.spread} for one in found],
        "settings": config.as_dict(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (("refined.json", {**config.as_dict(), "seed": seeds[0]}), ("rounds.json", record)):
        (out / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return found


def markdown(rounds: Sequence[Round], seeds: Sequence[int]) -> str:
    rows = []
    for number, one in enumerate(rounds):
        start, end = " + ".join(f"{n:,}" for n in one.initial), " + ".join(f"{n:,.0f}" for n in one.final)
        each = ", ".join(f"{100 * a:.2f}" for a in one.accuracy)
        rows.append([number, start, end, plus_minus(one.mean, one.spread, unit="%"), each])
    table = markdown_table(["round", "connections at the start", "at the end", "accuracy", "seed by seed"], rows)
    return (
        f"Accuracy of the last epoch, mean ± standard deviation over seeds {list(seeds)}; connections of each layer at the "
        f"start, and at the end (mean over the last epochs and over seeds).\n\n{table}\n"
    )
