"""The stationary law of section 3 as a figure: how often chains visit each architecture, against how often they should.

Claims: the formal chain (Algorithm 3) samples p*(θ, c); soft-DEEP R (Algorithm 2) samples exp(−E/T) in its box; DEEP R
(Algorithm 1) samples neither but ``strict_law``, to which it comes as √η with falling step size η.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wirebound.checkpoint.atomic import write_file
from wirebound_lab import theory
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Runs, Scale
from wirebound_lab.paper.job import Job, Summary, read_summary
from wirebound_lab.paper.measure import axis, lines, series
from wirebound_lab.run.record import RunFolderError
from wirebound_lab.theory import Grid, Law, Logistic, Problem, Quadratic, Record, distance, formal_law

_PAGE = "docs/finding-law.md"
THETA_MIN = -1.0
STEP_SIZES = (0.04, 0.01, 0.0025)
BOXES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)


@dataclass(frozen=True)
class Case:
    """One problem, with K, T, and the bins of θ."""

    words: str
    problem: Problem
    active: int
    temperature: float
    above: Sequence[float] = tuple(0.5 * i for i in range(1, 17))  # edges of the bins of θ > 0

    def grid(self, low: float = THETA_MIN) -> Grid:
        """Two bins below 0, that of a wider box split where that of our own is: counts are made for our own."""
        return Grid([low, max(low, THETA_MIN) / 2, 0.0, *self.above], nodes=4)

    def laws(self) -> tuple[Law, Law, Law]:
        """The formal, the strict and the soft one."""
        settings = (self.problem, self.active, self.temperature, self.grid())
        return formal_law(*settings), theory.strict_law(*settings), theory.soft_law(self.problem, *settings[2:])


# Eight examples of two classes that two of four inputs tell apart, rounded; drawn once and written down.
_INPUTS = (
    (-0.8, -1.3, -0.2, 0.4), (0.7, -0.5, -0.7, -0.6), (-0.6, -0.5, 0.3, -0.5), (0.6, 1.0, 0.0, 0.3),
    (1.2, 0.1, -1.0, 0.5), (-1.1, 0.4, 0.9, 0.2), (0.3, -0.9, 1.1, -1.2), (-0.2, 0.8, 0.5, 1.0),
)  # fmt: skip
_TARGETS = (1, 1, -1, -1, 1, -1, 1, -1)
_ALIKE = Quadratic([1.0] * 6, [1.0] * 6, l1=0.3, theta_min=THETA_MIN)
_UNLIKE = Quadratic([1.0, 2.0, 1.0, 0.5, 1.0, 1.0], [2.0, 1.5, 1.0, 0.5, 0.0, -1.0], l1=0.3, theta_min=THETA_MIN)
_REGRESSION = Logistic(_INPUTS, _TARGETS, (1, -1, 1, -1), l1=0.6, theta_min=THETA_MIN)
_UNEVENLY = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 11.0, 18.0)
_POSTERIOR = "posterior of a logistic regression with four inputs on eight examples, K = 2, T = 1"
CASES = {
    "symmetric": Case("six connections alike, K = 3, T = 1", _ALIKE, 3, 1.0),
    "asymmetric": Case("six connections from useful to harmful, K = 2, T = 0.7", _UNLIKE, 2, 0.7),
    "logistic": Case(_POSTERIOR, _REGRESSION, 2, 1.0, _UNEVENLY),
}


@dataclass(frozen=True)
class TheoryJob(Job):
    """Chains of all three algorithms on one problem at one step size; ``span`` is the time ηn that is sampled, after as
    long a burn-in."""

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
        case = CASES[self.case]
        laws = case.laws()
        summary: Summary = {"settings": asdict(self), "words": case.words, "exact": _exact(case, laws)}
        summary |= {**self.measure(case, laws), "seconds": round(time.perf_counter() - began, 3)}
        path.mkdir(parents=True, exist_ok=True)
        write_file(path / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())
        return summary

    def finished(self, path: Path) -> Summary | None:
        summary = read_summary(path)
        if summary is not None and summary.get("settings") != asdict(self):
            raise RunFolderError(f"{path} was made with other settings (={summary.get('settings')}) than {asdict(self)}")
        return summary

    def measure(self, case: Case, laws: tuple[Law, Law, Law]) -> dict[str, Any]:
        """How often each architecture was visited, and how far that and the marginals of θ are from the laws."""
        problem, grid, steps = case.problem, case.grid(), round(self.span / self.eta)
        formal_record, deep_r, soft_record = (
            theory.run(
                step, problem, case.active, grid, eta=self.eta, temperature=case.temperature, chains=self.chains,
                steps=steps, burn_in=steps, every=max(1, round(0.2 / self.eta)), seed=self.seed,
            )
            for step in (theory.formal_step, theory.deep_r_step, theory.soft_deep_r_step)
        )  # fmt: skip
        formal, strict, soft = laws
        wide = case.grid(THETA_MIN - theory.wall(self.eta, case.temperature))
        wider = theory.soft_law(problem, case.temperature, wide)
        rows = theory.architectures(problem.connections, case.active)
        numbers = theory.set_number(rows)
        visits = {
            "formal": formal_record.constraints[:, numbers],
            "deep_r": deep_r.constraints[:, numbers],
            "soft_compatible": theory.compatible_counts(soft_record.active, rows),
            "soft_exactly_k": soft_record.active[:, numbers],
        }
        compared = {
            "formal chain, formal law": (visits["formal"], formal.probability),
            "DEEP R, formal law": (visits["deep_r"], formal.probability),
            "DEEP R, strict law": (visits["deep_r"], strict.probability),
            "soft-DEEP R where compatible, formal law": (visits["soft_compatible"], formal.probability),
            "soft-DEEP R with exactly K, strict law": (visits["soft_exactly_k"], strict.probability),
            "soft-DEEP R, all sets, exp(-E/T)": (soft_record.active, soft.by_number()),
            "soft-DEEP R, all sets, wider box": (soft_record.active, wider.by_number()),
        }
        theta = {
            "formal chain, formal law": _worst(formal_record, formal),
            "DEEP R, formal law": _worst(deep_r, formal, grid),
            "DEEP R, strict law": _worst(deep_r, strict, grid),
            "soft-DEEP R, exp(-E/T)": _worst(soft_record, soft),
            "soft-DEEP R, wider box": _worst(soft_record, wider),
        }
        frequency = {name: (seen.sum(0) / seen.sum()).tolist() for name, seen in visits.items()}
        architectures = {name: distance(*pair).as_dict() for name, pair in compared.items()}
        about = {"eta": self.eta, "samples": formal_record.samples}
        return {**about, "frequency": frequency, "architectures": architectures, "theta": theta}


def _worst(record: Record, law: Law, merge: Grid | None = None) -> dict[str, float]:
    """The distance of the θ_k that is farthest from its marginal."""
    merged: Any = (lambda theta: theta) if merge is None else merge.merged
    counts, wanted = merged(record.theta), merged(law.theta)
    found = [distance(counts[:, k], wanted[k]) for k in range(len(wanted))]
    return max(found, key=lambda d: d.value).as_dict()


def _exact(case: Case, laws: tuple[Law, Law, Law]) -> dict[str, Any]:
    """The laws, and how the formal one turns into the strict one as the box gets smaller."""
    formal, strict, _ = laws
    boxes = {}
    for box in BOXES:
        boxed = formal_law(case.problem, case.active, case.temperature, case.grid(-box))
        boxes[f"{box:g}"] = theory.total_variation(boxed.probability, strict.probability)
    sets = ["".join(str(k + 1) for k in np.flatnonzero(row)) for row in formal.sets]
    shares = {"formal": formal.probability.tolist(), "strict": strict.probability.tolist()}
    return {"sets": sets, **shares, "formal_to_strict_by_box": boxes}


# The figure

# (law in "exact", visits in "frequency", comparison in "architectures", method for the colour, name)
_COMPARED = (
    ("formal", "formal", "formal chain, formal law", "formal", "formal chain (Algorithm 3)"),
    ("strict", "deep_r", "DEEP R, strict law", "deep-r", "DEEP R (Algorithm 1), strict law"),
    ("formal", "deep_r", "DEEP R, formal law", "deep-r-formal", "DEEP R (Algorithm 1), formal law"),
    ("formal", "soft_compatible", "soft-DEEP R where compatible, formal law", "soft-deep-r", "soft-DEEP R (Algorithm 2)"),
)
# (comparison in "architectures", where the paper has it, claim)
_CLAIMS = (
    ("formal chain, formal law", "Theorem 2", "the formal chain (Algorithm 3) visits architectures as p*(c) ∝ p*(θ_{∉c} < 0)"),
    ("soft-DEEP R where compatible, formal law", "Theorem 1", "soft-DEEP R (Algorithm 2) samples exp(−E/T)"),
    ("DEEP R, formal law", "Theorem 2", "DEEP R as it is run (Algorithm 1) has the formal chain's law too"),
    ("DEEP R, strict law", "not in the paper", "DEEP R visits architectures by the law without a box below 0 (docs/theory.md)"),
)


def runs(scale: Scale, seeds: int) -> Runs:
    """For each problem, the runs at falling step size."""
    cases, etas = (("asymmetric",), STEP_SIZES[:2]) if scale is Scale.QUICK else (tuple(CASES), STEP_SIZES)
    chains, span = {Scale.QUICK: (256, 20.0), Scale.FITTED: (2048, 40.0), Scale.FULL: (4096, 40.0)}[scale]
    return {c: {eta: [TheoryJob(c, eta, chains, span, s) for s in range(seeds)] for eta in etas} for c in cases}


def read(r: Reading) -> Drawn:
    """Visits against probabilities at the smallest step size, and the distance by step size."""
    drawn = Drawn(r.scale, settings={"problems": {case: CASES[case].words for case in r.runs}})
    found = {case: etas for case in r.runs if (etas := [summaries for summaries in r.groups(case) if summaries])}
    rows = []
    for case, etas in found.items():
        drawn.charts += _charts(case, [summaries[0] for summaries in etas])  # seed 0 is shown, all decide
        for summary, *_ in etas:
            for _, _, key, _, _ in _COMPARED:
                d = summary["architectures"][key]
                rows.append([case, f"{summary['eta']:g}", key, f"{d['tv']:.4f}", f"{d['limit']:.4f}"])
    columns = ["problem", "η", "what, against what", "distance", "limit"]
    drawn.tables = [{"title": "Total variation over architectures", "columns": columns, "rows": rows}]
    last = [summary for etas in found.values() for summary in etas[-1]]
    seeds = max((len(etas[-1]) for etas in found.values()), default=0)
    test, note = "below the limit", "limit: what sampling error alone exceeds once in a thousand times, at the smallest step size"
    for key, paper, claim in _CLAIMS if last else ():
        distances = [summary["architectures"][key] for summary in last]
        worst = max(distances, key=lambda d: d["tv"] / d["limit"])
        ours = f"total variation up to {max(d['tv'] for d in distances):.4f}; "
        ours += f"farthest from its limit: {worst['tv']:.4f} of {worst['limit']:.4f}"
        drawn.finding(claim, paper, ours, seeds, all(d["tv"] <= d["limit"] for d in distances), test, note, _PAGE)
    return drawn


def _charts(case: str, summaries: list[Summary]) -> list[dict[str, Any]]:
    exact, frequency, eta = (summaries[-1][key] for key in ("exact", "frequency", "eta"))
    visits, distances = [], []
    for law, seen, key, method, name in _COMPARED:
        triples = zip(exact["sets"], exact[law], frequency[seen], strict=True)
        points = [{"x": x, "y": y, "label": f"connections {s}"} for s, x, y in triples]
        visits.append(series(method, points, "points", name))
        points = [{"x": s["eta"], "y": s["architectures"][key]["tv"]} for s in reversed(summaries)]
        distances.append(series(method, points, name=name))
    shares = [*exact["formal"], *exact["strict"]]
    ends = [{"x": v, "y": v} for v in (min(shares), max(shares))]
    visits.append(series("identity", ends, "line", "as it should be"))
    scale = "log" if max(shares) > 5 * min(shares) else "linear"
    x, y = axis("probability", scale), axis("share of visits", scale)
    steps, gap = axis("step size η", "log"), axis("total variation", "log")
    title = f"{case}: visits of each architecture against its probability, η = {eta:g}"
    by_step = f"{case}: total variation between visits and law, by step size"
    return [lines(f"visits-{case}", title, x, y, visits), lines(f"distance-{case}", by_step, steps, gap, distances)]


THEORY = Figure(
    "theory", "The stationary law against running chains", "Section 3, Theorems 1 and 2",
    "The formal chain of DEEP R converges to p*(θ, c), whose marginal over architectures is p*(c) ∝ p*(θ_{∉c} < 0); "
    "soft-DEEP R converges to exp(−E/T).",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "one problem, 256 chains, two step sizes",
        Scale.FITTED: "three problems, 2048 chains, three step sizes",
        Scale.FULL: "three problems, 4096 chains, three step sizes",
    },
    costs={Scale.QUICK: "3 s", Scale.FITTED: "4 min", Scale.FULL: "8 min"}, seeds=1,
)  # fmt: skip
