"""Refining the first allocation by what training made of it, as the paper suggests (appendix A, "Initialization of
connectivity matrices"): look at the connectivity of each layer after convergence, and start from there.

It can say something only about a global budget, in which connections move between layers.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound.wiring.budget import apportion
from wirebound_lab.run.config import RunConfig, make_config, read_settings
from wirebound_lab.run.loop import train
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.run.run_files import read_layer_counts, read_summary
from wirebound_lab.tables import deviation, markdown_table, plus_minus

# Methods that start with some connections of each layer and end with others.
MOVING = ("deep-r", "soft-deep-r", "constant-rate", "set", "rigl")
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
    """The next allocation: what several runs ended with, on average, as whole numbers that add up to the budget; where
    a method promises none, to as many connections as they ended with."""
    means = [statistics.mean(layer) for layer in zip(*final, strict=True)]
    total = max(1, round(sum(means))) if budget is None else budget
    return apportion(means, possible, total)


def refine(
    run: Path, out: Path, *, rounds: int, seeds: Sequence[int], last: float = LAST,
    listener: Callable[[int, Round], None] = lambda number, one: None,
) -> list[Round]:  # fmt: skip
    """Train with the allocation of ``run``, then ``rounds`` times with the one that the round before converged to.

    Round 0 has the settings of ``run`` for all seeds (``run`` itself is the one of its seed), so that rounds are compared
    on the same seeds. Run folders are ``out/round-R-sSEED``; ``out/refined.json`` is a config file for ``wirebound
    train`` with the last allocation.
    """
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
    if config.method not in MOVING:
        raise ValueError(f"method (={config.method!r}) of {run} must be one that moves connections: {', '.join(MOVING)}")
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
    settings = {**config.as_dict(), "seed": seeds[0]}
    out.mkdir(parents=True, exist_ok=True)
    (out / "refined.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    (out / "rounds.json").write_text(json.dumps(as_record(found, seeds, config), indent=1) + "\n", encoding="utf-8")
    return found


def as_record(rounds: Sequence[Round], seeds: Sequence[int], config: RunConfig) -> dict[str, Any]:
    """All rounds, as JSON."""
    return {
        "evaluated_on": "validation" if config.validation else "test",
        "seeds": list(seeds),
        "rounds": [{**dataclasses.asdict(one), "mean": one.mean, "spread": one.spread} for one in rounds],
        "settings": config.as_dict(),
    }


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
