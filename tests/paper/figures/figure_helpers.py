"""Jobs that leave marks, and runs that are made up, for tests of what is done with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper.charts import finding
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job, TrainJob, read_summary
from wirebound_lab.run.config import make_config


def digits_job(name, **settings):
    base = {"data": "digits", "connectivity": 0.1, "epochs": 1, "lr": 0.5, "hidden": [20]}
    return TrainJob(f"digits/{name}", make_config(base, settings))


@dataclass(frozen=True)
class MarkJob(Job):
    """Writes a line into ``marks`` each time that it is run."""

    folder: str
    value: float
    marks: Path
    diverges: bool = False

    def run(self, path):
        with self.marks.open("a") as stream:
            stream.write(self.folder + "\n")
        if self.diverges:
            raise DivergedError("the loss must be a finite number")
        path.mkdir(parents=True)
        summary = {"test_accuracy": self.value, "seconds": 0.1}
        (path / "summary.json").write_text(json.dumps(summary))
        return summary

    def finished(self, path):
        return read_summary(path)


class MarkPart(Part):
    """One run that counts, one that may diverge, and one that follows from the first."""

    def __init__(self, marks, value=0.9, diverges=True):
        self.marks, self.value, self.diverges = marks, value, diverges

    def jobs(self, scale, seeds):
        good = [MarkJob(f"made/good-s{s}", self.value, self.marks) for s in range(seeds)]
        return [*good, MarkJob("made/bad", 0.1, self.marks, self.diverges)]

    def later(self, scale, seeds, done):
        return [MarkJob(f"made/after-{s['test_accuracy']:g}", 0.5, self.marks) for s in done.of(self.jobs(scale, seeds)[:1])]

    def plot(self, scale, seeds, done):
        good = done.of(self.jobs(scale, seeds)[:-1])
        value = sum(s["test_accuracy"] for s in good) / max(1, len(good))
        found = finding(scale, "it is above 80 %", "80 %", f"{value:.2f}", seeds, value > 0.8)
        return Drawn(findings=[found], runs=self.jobs(scale, seeds))


def mark_figure(marks, name="figx", **settings):
    words = {scale: "made up" for scale in Scale}
    return Figure(name, "A title", "Figure X", "A claim | with a bar.", (MarkPart(marks, **settings),), words, words, seeds=2)


def made_outcomes(folder, runs):
    """Outcomes of made-up training runs: {folder: (accuracy, connectivity, final counts)}."""
    summaries = {}
    for name, (accuracy, connectivity, counts) in runs.items():
        path = folder / name
        path.mkdir(parents=True, exist_ok=True)
        possible = [235_200, 30_000, 1_000]
        layers = [
            {"name": str(n), "possible": p, "initial": c, "final": c} for n, (p, c) in enumerate(zip(possible, counts, strict=True))
        ]
        summaries[name] = {
            "test_accuracy": accuracy, "connectivity": connectivity, "possible": sum(possible), "layers": layers,
            "max_active": sum(counts),
        }  # fmt: skip
        lines = [
            {"kind": "epoch", "epoch": 1, "step": 6000, "test_accuracy": accuracy},
            {"kind": "window", "step_from": 1, "step_to": 6000, "newborns": [6000, 600, 60], "active_max": sum(counts)},
        ]
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Outcomes(folder, summaries, {})
