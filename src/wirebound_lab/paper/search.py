"""The settings of the paper's runs, chosen on held-out training data for the length that the runs have.

    python -m wirebound_lab.paper.search mnist --out results/search       α for each connectivity
    python -m wirebound_lab.paper.search cifar --out results/search       α, η and the average of the weights
    python -m wirebound_lab.paper.search speech --out results/search      α, and ℓ2 of dense training
    python -m wirebound_lab.paper.search recipe --out results/search      CIFAR-10 at 5 % beyond the paper's settings

Every candidate differs from the runs of ``task_runs`` by the settings it names. What is found best is written into
``task_runs`` by hand, and only then are the figures run. The table says for each candidate what it reached on the
held-out part, what it cost, and how much was rewired: a method that hardly replaces a connection says nothing about
rewiring.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.job import Outcomes, Summary, core_seconds
from wirebound_lab.paper.study import read_json, run_configs, study_parser, write_study
from wirebound_lab.paper.task_runs import CIFAR, MNIST, SPEECH, TaskRuns
from wirebound_lab.run import RunConfig
from wirebound_lab.run.config import make_config
from wirebound_lab.tables import deviation, markdown_table, plus_minus

_HELD_OUT = {"mnist": 10_000, "cifar": 5_000, "recipe": 5_000}  # of the training images; speech has speakers held out anyway


@dataclass(frozen=True)
class Candidate:
    """Settings to try, over those of a method's run at a point."""

    method: str
    at: Any  # connectivity, or the point of the method's scan
    own: Mapping[str, Any]
    seeds: Sequence[int] = (0,)

    @property
    def name(self) -> str:
        words = [self.method, *([] if self.method == "dense" else [f"{self.at:g}"])]
        return "-".join([*words, *_in_words(self.own, "-")])

    def config(self, task: str, seed: int) -> RunConfig:
        base = TASKS[task].job(Scale.FITTED, self.method, self.at, seed).config.as_dict()
        held_out = {"validation": _HELD_OUT[task]} if task in _HELD_OUT else {}
        return make_config(base, held_out, dict(self.own))


def _in_words(own: Mapping[str, Any], between: str) -> list[str]:
    given = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in own.items() if value is not None}
    return [f"{key}{between}{value}" for key, value in given.items()]


TASKS: Mapping[str, TaskRuns] = {"mnist": MNIST, "cifar": CIFAR, "speech": SPEECH, "recipe": CIFAR}
_RATES = (1e-5, 3.16e-5, 1e-4, 3.16e-4, 1e-3)
CANDIDATES: Mapping[str, Sequence[Candidate]] = {
    "mnist": [Candidate("deep-r", level, {"l1": l1}, (0, 1)) for level in MNIST.points["deep-r"] for l1 in _RATES],
    "cifar": [
        *(Candidate("deep-r", 0.05, {"l1": l1}) for l1 in (1e-4, 3e-4, 1e-3, "auto")),
        Candidate("fixed", 0.05, {}),
        *(Candidate("deep-r", 0.05, {"l1": 3e-4, "lr": lr}) for lr in (0.02, 0.1)),
        Candidate("fixed", 0.05, {"lr": 0.1}),
        Candidate("deep-r", 0.05, {"l1": 3e-4, "average": 0.9999}),
        *(Candidate("deep-r", 0.2, {"epochs": 30, "l1": l1}) for l1 in (3e-5, 1e-4, 3e-4)),
        *(Candidate("dense", 1.0, {"lr": lr}) for lr in (0.02, 0.05, 0.1)),
        # Where methods end that are not told a connectivity; a third of the epochs shows it.
        *(Candidate("l1-shrinkage", l1, {"epochs": 20}) for l1 in (3e-4, 1e-3, 3e-3)),
        *(Candidate("soft-deep-r", 0.05, {"epochs": 20, "l1": l1}) for l1 in (3e-5, 1e-4, 3e-4)),
    ],
    "speech": [
        *(Candidate("deep-r", 0.1, {"l1": l1}) for l1 in (0.01, 0.03, 0.1)),
        *(Candidate("dense", 1.0, {"weight_decay": decay}) for decay in (1e-6, 1e-5, 1e-4, 1e-3)),
        *(Candidate("soft-deep-r", 0.1, {"l1": l1}) for l1 in (0.003, 0.01, 0.03, 0.1, 0.3)),
        *(Candidate("l1-shrinkage", l1, {"epochs": 8}) for l1 in (0.2, 0.4, 0.8)),
        # Where the paper's own rule leads, one q for both cuts instead of the q that leaves 2 %.
        *(Candidate("pruning", 0.02, {"connectivity": None, "quality": q}) for q in (1.0, 1.5, 2.0)),
    ],
    # A third of the epochs, held against the first row.
    "recipe": [
        Candidate("deep-r", 0.05, {"epochs": 20, **own})
        for own in (
            {}, {"weight_decay": 0.0}, {"weight_decay": 0.0, "optimizer": "adam", "lr": 0.001, "l1": "auto"},
            {"lr": 0.1}, {"batch_size": 32, "lr": 0.02}, {"births": "gradient", "rewire_every": 10},
            {"allocation": "0.33,0.015,0.08"}, {"allocation": "0.45,0.004,0.05"},
        )
    ],
}


def held_out_figure(summary: Summary) -> float:
    """Accuracy on the held-out part: of the last epoch, or for speech at the least validation error."""
    if "best_validation_error" in summary:
        return 1 - float(summary["best_validation_error"])
    return float(summary["test_accuracy"])


def turnover(done: Outcomes, folder: str) -> dict[str, Any]:
    """Share of the connections replaced in a step, by layer in the second half of the run, and what is left of the first."""
    records = [json.loads(line) for line in (done.runs / folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    windows = [record for record in records if record["kind"] == "window"]
    late = [window for window in windows if window["step_to"] > windows[-1]["step_to"] / 2]
    steps = sum(window["step_to"] - window["step_from"] + 1 for window in late)
    layers = done.summaries[folder]["layers"]
    born = [sum(window["newborns"][n] for window in late) for n in range(len(layers))] if late[0].get("newborns") else []
    shares = [count / steps / max(1, layer["final"]) for count, layer in zip(born, layers, strict=False)]
    first = [record["ages"]["since_start"] for record in records if record["kind"] == "wiring" and record.get("ages")]
    initial = sum(layer["initial"] for layer in layers)
    left = sum(first[-1]) / initial if first and initial else None
    return {"replaced_a_step": shares, "left_of_first": left, "layers": {layer["name"]: layer["final"] for layer in layers}}


def run_search(task: str, candidates: Sequence[Candidate], out: Path, workers: int) -> list[dict[str, Any]]:
    names = {(c.name, seed): f"{c.name}-s{seed}" for c in candidates for seed in c.seeds}
    configs = {names[c.name, seed]: c.config(task, seed) for c in candidates for seed in c.seeds}
    done = run_configs(configs, out / "runs" / task, workers)
    lines = []
    for candidate in candidates:
        folders = [names[candidate.name, seed] for seed in candidate.seeds]
        summaries = [done.summaries[folder] for folder in folders if folder in done.summaries]
        line: dict[str, Any] = {"name": candidate.name, "method": candidate.method, "at": candidate.at, "own": dict(candidate.own)}
        if summaries:
            figures = [held_out_figure(summary) for summary in summaries]
            line |= {"accuracy": figures, "hours": sum(map(core_seconds, summaries)) / 3600}
            line["connectivity"] = [float(summary["connectivity"]) for summary in summaries]
            line |= turnover(done, next(folder for folder in folders if folder in done.summaries))
        lines.append({**line, "diverged": [done.lost[folder] for folder in folders if folder in done.lost]})
    return lines


def markdown(task: str, lines: Sequence[Mapping[str, Any]]) -> str:
    rows, hours = [], 0.0
    for line in lines:
        figures = line.get("accuracy", [])
        hours += line.get("hours", 0.0)
        mean = plus_minus(sum(figures) / len(figures), deviation(figures), 2, "%") if figures else "diverged"
        replaced = ", ".join(f"{100 * share:.3g}" for share in line.get("replaced_a_step", []))
        left = line.get("left_of_first")
        own = ", ".join([*([f"α {line['at']:g}"] if line["method"] == "l1-shrinkage" else []), *_in_words(line["own"], " ")])
        reached = line.get("connectivity", [line["at"]])  # of soft-DEEP R the highest ever met
        at = "" if line["method"] == "dense" else f"{100 * sum(reached) / len(reached):.3g} %"
        kept = "" if left is None else f"{100 * left:.3g} %"
        rows.append([line["method"], at, own, mean, replaced, kept, f"{line.get('hours', 0):.2f}"])
    columns = ("method", "connectivity", "settings", "held-out accuracy", "replaced a step, % of each layer",
               "left of the first wiring", "hours")  # fmt: skip
    head = f"{task}: what was compared on held-out training data, {hours:.1f} hours of one core in all."
    return f"{head}\n\n{markdown_table(columns, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("Settings of the paper's runs, on held-out training data.", *CANDIDATES, jobs=True)
    parser.add_argument("--only", nargs="*", help="names of candidates")
    options = parser.parse_args(arguments)
    task, every = options.what, CANDIDATES[options.what]
    chosen = [candidate for candidate in every if not options.only or candidate.name in options.only]
    found = run_search(task, chosen, options.out, options.jobs)
    known = {line["name"]: line for line in [*(read_json(options.out, task) or []), *found]}
    lines = [known[candidate.name] for candidate in every if candidate.name in known]
    write_study(options.out, task, lines, markdown(task, lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
