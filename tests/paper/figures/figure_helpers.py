"""Jobs that leave marks, and runs that are made up, for tests of what is done with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Scale
from wirebound_lab.paper.job import Job, Outcomes, TrainJob, read_summary
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


def mark_panel(marks, value=0.9, diverges=True):
    """One run that counts, one that may diverge, and one that follows from the first."""

    def runs(scale, seeds):
        good = [MarkJob(f"made/good-s{s}", value, marks) for s in range(seeds)]
        return {"good": {0: good}, "bad": {0: [MarkJob("made/bad", 0.1, marks, diverges)]}}

    def later(r):
        after = [MarkJob(f"made/after-{s['test_accuracy']:g}", 0.5, marks) for s in r.done.of(r.runs["good"][0][:1])]
        return {"after": {0: after}}

    def read(r):
        mean = r.mean(r.runs["good"][0])
        value = mean.value if mean else 0.0
        drawn = Drawn(r.scale, runs=[*r.runs["good"][0], *r.runs["bad"][0]])
        drawn.finding("it is above 80 %", "80 %", f"{value:.2f}", r.seeds, value > 0.8, "the mean is above 80 %")
        return drawn

    return Panel(runs, read, later)


def mark_figure(marks, name="figx", **settings):
    words = {scale: "made up" for scale in Scale}
    return Figure(name, "A title", "Figure X", "A claim | with a bar.", (mark_panel(marks, **settings),), words, words, seeds=2)


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
