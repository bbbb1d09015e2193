"""The paper's Theorem 2 against running chains: how often each architecture is visited, and should be.

    python -m wirebound_lab.paper.theory_study --out results/theory

Claims: the formal chain (Algorithm 3) samples p*(θ, c); soft-DEEP R (Algorithm 2) samples exp(−E/T) in its box; DEEP R
(Algorithm 1) samples neither but ``strict_law``, to which it comes as √η with falling step size η.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wirebound_lab.paper.theory_text import draw, markdown
from wirebound_lab.theory import (
    Grid,
    Law,
    Logistic,
    Problem,
    Quadratic,
    Record,
    architectures,
    compatible_counts,
    deep_r_step,
    distance,
    formal_law,
    formal_step,
    run,
    set_number,
    soft_deep_r_step,
    soft_law,
    strict_law,
    total_variation,
    wall,
)
from wirebound_lab.theory.problems import Floats

THETA_MIN = -1.0
STEP_SIZES = (0.04, 0.01, 0.0025)
BOXES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)


@dataclass(frozen=True)
class Case:
    """One problem, with K, T, and the bins of θ."""

    name: str
    words: str
    problem: Problem
    active: int
    temperature: float
    above: Sequence[float]  # edges of the bins of θ > 0

    def grid(self, low: float = THETA_MIN) -> Grid:
        """Two bins below 0, that of a wider box split where that of our own is: counts are made for our own."""
        return Grid([low, max(low, THETA_MIN) / 2, 0.0, *self.above], nodes=4)


_EVENLY = tuple(0.5 * i for i in range(1, 17))
# Eight examples of two classes that two of four inputs tell apart, rounded; drawn once and written down.
_INPUTS = (
    (-0.8, -1.3, -0.2, 0.4), (0.7, -0.5, -0.7, -0.6), (-0.6, -0.5, 0.3, -0.5), (0.6, 1.0, 0.0, 0.3),
    (1.2, 0.1, -1.0, 0.5), (-1.1, 0.4, 0.9, 0.2), (0.3, -0.9, 1.1, -1.2), (-0.2, 0.8, 0.5, 1.0),
)  # fmt: skip
_TARGETS = (1, 1, -1, -1, 1, -1, 1, -1)

CASES = (
    Case(
        "symmetric",
        "six connections alike, K = 3, T = 1",
        Quadratic([1.0] * 6, [1.0] * 6, l1=0.3, theta_min=THETA_MIN),
        3,
        1.0,
        _EVENLY,
    ),
    Case(
        "asymmetric",
        "six connections from useful to harmful, K = 2, T = 0.7",
        Quadratic([1.0, 2.0, 1.0, 0.5, 1.0, 1.0], [2.0, 1.5, 1.0, 0.5, 0.0, -1.0], l1=0.3, theta_min=THETA_MIN),
        2,
        0.7,
        _EVENLY,
    ),
    Case(
        "logistic",
        "posterior of a logistic regression with four inputs on eight examples, K = 2, T = 1",
        Logistic(_INPUTS, _TARGETS, (1, -1, 1, -1), l1=0.6, theta_min=THETA_MIN),
        2,
        1.0,
        (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0, 11.0, 18.0),
    ),
)


def _sets(rows: np.ndarray[Any, np.dtype[np.bool_]]) -> list[str]:
    return ["".join(str(k + 1) for k in np.flatnonzero(row)) for row in rows]


def _worst(record: Record, law: Law, merge: Grid | None = None) -> dict[str, float]:
    """The distance of the θ_k that is farthest from its marginal."""
    found = []
    for k in range(record.theta.shape[1]):
        counts: Any = record.theta[:, k]
        wanted: Any = law.theta[k]
        if merge is not None:
            counts, wanted = merge.merged(counts), merge.merged(wanted)
        found.append(distance(counts, wanted))
    return max(found, key=lambda d: d.value).as_dict()


@dataclass(frozen=True)
class Laws:
    formal: Law
    strict: Law
    soft: Law

    @classmethod
    def of(cls, case: Case) -> Laws:
        problem, temperature, grid = case.problem, case.temperature, case.grid()
        formal = formal_law(problem, case.active, temperature, grid)
        return cls(formal, strict_law(problem, case.active, temperature, grid), soft_law(problem, temperature, grid))


def measure(case: Case, laws: Laws, eta: float, chains: int, span: float, seed: int) -> dict[str, Any]:
    """All three algorithms at one step size. ``span`` is the time ηn that is sampled, after as long a burn-in."""
    problem, active, temperature = case.problem, case.active, case.temperature
    rows, grid = architectures(problem.connections, active), case.grid()
    numbers = set_number(rows)
    wide = case.grid(THETA_MIN - wall(eta, temperature))
    steps = round(span / eta)
    records = {
        name: run(
            step, problem, active, grid, eta=eta, temperature=temperature, chains=chains, steps=steps,
            burn_in=steps, every=max(1, round(0.2 / eta)), seed=seed,
        )
        for name, step in (("formal", formal_step), ("deep_r", deep_r_step), ("soft", soft_deep_r_step))
    }  # fmt: skip
    formal, strict, soft = laws.formal, laws.strict, laws.soft
    wider = soft_law(problem, temperature, wide)
    visits = {
        "formal": records["formal"].constraints[:, numbers],
        "deep_r": records["deep_r"].constraints[:, numbers],
        "soft_compatible": compatible_counts(records["soft"].active, rows),
        "soft_exactly_k": records["soft"].active[:, numbers],
    }
    return {
        "eta": eta,
        "samples": records["formal"].samples,
        "frequency": {name: _frequency(counts) for name, counts in visits.items()},
        "architectures": {
            "formal chain, formal law": distance(visits["formal"], formal.probability).as_dict(),
            "DEEP R, formal law": distance(visits["deep_r"], formal.probability).as_dict(),
            "DEEP R, strict law": distance(visits["deep_r"], strict.probability).as_dict(),
            "soft-DEEP R where compatible, formal law": distance(
                visits["soft_compatible"], formal.probability
            ).as_dict(),
            "soft-DEEP R with exactly K, strict law": distance(visits["soft_exactly_k"], strict.probability).as_dict(),
            "soft-DEEP R, all sets, exp(-E/T)": distance(records["soft"].active, soft.by_number()).as_dict(),
            "soft-DEEP R, all sets, wider box": distance(records["soft"].active, wider.by_number()).as_dict(),
        },
        "theta": {
            "formal chain, formal law": _worst(records["formal"], formal),
            "DEEP R, formal law": _worst(records["deep_r"], formal, grid),
            "DEEP R, strict law": _worst(records["deep_r"], strict, grid),
            "soft-DEEP R, exp(-E/T)": _worst(records["soft"], soft),
            "soft-DEEP R, wider box": _worst(records["soft"], wider),
        },
    }


def _frequency(counts: Any) -> list[float]:
    seen = counts.sum(0)
    return [float(f) for f in seen / seen.sum()]


def exact(case: Case, laws: Laws) -> dict[str, Any]:
    """The laws, and how the formal one turns into the strict one as the box gets smaller."""
    formal, strict = laws.formal, laws.strict
    boxes = {
        f"{box:g}": total_variation(
            formal_law(case.problem, case.active, case.temperature, case.grid(-box)).probability, strict.probability
        )
        for box in BOXES
    }
    return {
        "sets": _sets(formal.sets),
        "formal": _floats(formal.probability),
        "strict": _floats(strict.probability),
        "formal_to_strict_by_box": boxes,
    }


def _floats(values: Floats) -> list[float]:
    return [float(value) for value in values]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The stationary law of the paper against running chains.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--chains", type=int, default=2048, help="independent chains, a multiple of 64 (default: 2048)")
    parser.add_argument("--span", type=float, default=40.0, help="time (step size x steps) that is sampled (default: 40)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"chains": options.chains, "span": options.span, "seed": options.seed, "cases": []}
    for case in CASES:
        began = time.perf_counter()
        laws = Laws.of(case)
        steps = [measure(case, laws, eta, options.chains, options.span, options.seed) for eta in STEP_SIZES]
        found["cases"].append(
            {
                "name": case.name,
                "words": case.words,
                "active": case.active,
                "temperature": case.temperature,
                "exact": exact(case, laws),
                "steps": steps,
            }
        )
        print(f"{case.name}: {time.perf_counter() - began:.0f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "theory.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (options.out / "theory.md").write_text(markdown(found), encoding="utf-8")
    (options.out / "theory.svg").write_text(draw(found), encoding="utf-8")
    print(f"table: {options.out / 'theory.md'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
