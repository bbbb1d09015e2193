"""The stationary law of section 3 as a figure: how often chains visit each architecture, against how often they should."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wirebound_lab.paper import theory_study as theory
from wirebound_lab.paper.charts import axis, finding, lines, series
from wirebound_lab.paper.experiment import write_text
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job, Summary, read_summary
from wirebound_lab.run.record import RunFolderError

_CASES = {case.name: case for case in theory.CASES}
# (law in "exact", visits in "frequency", comparison in "architectures", method for the colour, name)
_COMPARED = (
    ("formal", "formal", "formal chain, formal law", "formal", "formal chain (Algorithm 3)"),
    ("strict", "deep_r", "DEEP R, strict law", "deep-r", "DEEP R (Algorithm 1), strict law"),
    ("formal", "deep_r", "DEEP R, formal law", "deep-r-formal", "DEEP R (Algorithm 1), formal law"),
    ("formal", "soft_compatible", "soft-DEEP R where compatible, formal law", "soft-deep-r", "soft-DEEP R (Algorithm 2)"),
)


@dataclass(frozen=True)
class TheoryJob(Job):
    """Chains of all three algorithms on one problem at one step size."""

    case: str
    eta: float
    chains: int
    span: float
    seed: int

    @property
    def folder(self) -> str:  # type: ignore[override]
        return f"theory/{self.case}-eta{self.eta:g}-chains{self.chains}-span{self.span:g}-s{self.seed}"

    def run(self, path: Path) -> Summary:
        began = time.perf_counter()
        case = _CASES[self.case]
        laws = theory.Laws.of(case)
        found = theory.measure(case, laws, self.eta, self.chains, self.span, self.seed)
        summary = {
            "settings": asdict(self),
            "words": case.words,
            "exact": theory.exact(case, laws),
            **found,
            "seconds": round(time.perf_counter() - began, 3),
        }
        write_text(path / "summary.json", json.dumps(summary, indent=1) + "\n")
        return summary

    def finished(self, path: Path) -> Summary | None:
        summary = read_summary(path)
        if summary is not None and summary.get("settings") != asdict(self):
            raise RunFolderError(f"{path} was made with other settings (={summary.get('settings')}) than {asdict(self)}")
        return summary


class StationaryLaw(Part):
    """Visits against probabilities at the smallest step size, and the distance by step size."""

    def runs(self, scale: Scale, seeds: int) -> dict[str, list[list[TheoryJob]]]:
        """For each problem, the runs at falling step size, each a list over seeds."""
        quick = scale is Scale.QUICK
        cases = ("asymmetric",) if quick else tuple(_CASES)
        etas = theory.STEP_SIZES[:2] if quick else theory.STEP_SIZES
        chains, span = {Scale.QUICK: (256, 20.0), Scale.FITTED: (2048, 40.0), Scale.FULL: (4096, 40.0)}[scale]
        return {c: [[TheoryJob(c, eta, chains, span, s) for s in range(seeds)] for eta in etas] for c in cases}

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for etas in self.runs(scale, seeds).values() for jobs in etas for job in jobs]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        drawn = Drawn(settings={"problems": {c: _CASES[c].words for c in self.runs(scale, seeds)}})
        first = {}
        for case, etas in self.runs(scale, seeds).items():
            summaries = [done.of(jobs)[0] for jobs in etas]  # chains are many: seed 0 is shown, all seeds decide
            drawn.charts += _charts(case, summaries)
            first[case] = [done.of(jobs) for jobs in etas]
        drawn.findings = _findings(scale, first)
        drawn.tables = [_table(first)]
        return drawn


def _charts(case: str, summaries: list[Summary]) -> list[dict[str, Any]]:
    last = summaries[-1]
    visits = []
    for law, seen, _, method, name in _COMPARED:
        pairs = zip(last["exact"]["sets"], last["exact"][law], last["frequency"][seen], strict=True)
        visits.append(series(method, [{"x": x, "y": y, "label": f"connections {s}"} for s, x, y in pairs], "points", name))
    most = max(max(last["exact"]["formal"]), max(last["exact"]["strict"]))
    least = min(min(last["exact"]["formal"]), min(last["exact"]["strict"]))
    visits.append(series("identity", [{"x": v, "y": v} for v in (least, most)], "line", "as it should be"))
    distances = [
        series(method, [{"x": s["eta"], "y": s["architectures"][key]["tv"]} for s in reversed(summaries)], name=name)
        for _, _, key, method, name in _COMPARED
    ]
    scale = "log" if most > 5 * least else "linear"
    return [
        lines(
            f"visits-{case}", f"{case}: visits of each architecture against its probability, η = {last['eta']:g}",
            axis("probability", scale), axis("share of visits", scale), visits,
        ),
        lines(
            f"distance-{case}", f"{case}: total variation between visits and law, by step size",
            axis("step size η", "log"), axis("total variation", "log"), distances,
        ),
    ]  # fmt: skip


def _last(found: dict[str, list[list[Summary]]], key: str) -> list[dict[str, float]]:
    """The distances at the smallest step size, of all problems and seeds."""
    return [summary["architectures"][key] for etas in found.values() for summary in etas[-1]]


def _words(distances: list[dict[str, float]]) -> str:
    worst = max(distances, key=lambda d: d["tv"] / d["limit"])
    return f"total variation up to {max(d['tv'] for d in distances):.4f}; farthest from its limit: {worst['tv']:.4f} of {worst['limit']:.4f}"


def _findings(scale: Scale, found: dict[str, list[list[Summary]]]) -> list[dict[str, Any]]:
    seeds = max((len(etas[-1]) for etas in found.values()), default=0)
    note = "limit: what sampling error alone exceeds once in a thousand times, at the smallest step size"
    results = []
    for key, claim in (
        ("formal chain, formal law", "the formal chain (Algorithm 3) visits architectures as p*(c) ∝ p*(θ_{∉c} < 0)"),
        ("soft-DEEP R where compatible, formal law", "soft-DEEP R (Algorithm 2) samples exp(−E/T)"),
        ("DEEP R, formal law", "DEEP R as it is run (Algorithm 1) has the formal chain's law too"),
        ("DEEP R, strict law", "DEEP R visits architectures by the law without a box below 0 (docs/theory.md)"),
    ):
        distances = _last(found, key)
        if distances:
            holds = all(d["tv"] <= d["limit"] for d in distances)
            paper = "not in the paper" if "strict" in key else "Theorem 2" if "soft" not in key else "Theorem 1"
            results.append(finding(scale, claim, paper, _words(distances), seeds, holds, note))
    return results


def _table(found: dict[str, list[list[Summary]]]) -> dict[str, Any]:
    rows = []
    for case, etas in found.items():
        for summaries in etas:
            for _, _, key, _, _ in _COMPARED:
                d = summaries[0]["architectures"][key]
                rows.append([case, f"{summaries[0]['eta']:g}", key, f"{d['tv']:.4f}", f"{d['limit']:.4f}"])
    return {"title": "Total variation over architectures", "columns": ["problem", "η", "what, against what", "distance", "limit"], "rows": rows}


THEORY = Figure(
    name="theory",
    title="The stationary law against running chains",
    paper="Section 3, Theorems 1 and 2",
    claim="The formal chain of DEEP R converges to p*(θ, c), whose marginal over architectures is p*(c) ∝ p*(θ_{∉c} < 0); "
    "soft-DEEP R converges to exp(−E/T).",
    parts=(StationaryLaw(),),
    notes={
        Scale.QUICK: "one problem, 256 chains, two step sizes",
        Scale.FITTED: "three problems, 2048 chains, three step sizes",
        Scale.FULL: "three problems, 4096 chains, three step sizes",
    },
    costs={Scale.QUICK: "3 s", Scale.FITTED: "4 min", Scale.FULL: "8 min"},
    seeds=1,
)
