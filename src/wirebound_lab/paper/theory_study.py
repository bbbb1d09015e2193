"""The paper's Theorem 2 against running chains, at length: all tables, and one drawing, of the figure ``theory``.

    python -m wirebound_lab.paper.theory_study --out results/theory
"""

from collections.abc import Sequence
from typing import Any

from wirebound_lab.paper import theory
from wirebound_lab.paper.job import run_jobs
from wirebound_lab.paper.study import study_parser, write_study
from wirebound_lab.report.markup import Html, linear_axis, picture, rungs, tag, text
from wirebound_lab.tables import markdown_table

_STYLE = """
.formal { fill: #b8cfe2; } .strict { fill: #f0cf9c; }
.a { fill: #174a75; } .b { fill: none; stroke: #174a75; stroke-width: 1.6; }
.c { fill: #8a4b00; } .d { fill: none; stroke: #8a4b00; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) {
  .formal { fill: #2d5678; } .strict { fill: #7a5a24; } .a { fill: #b9dcf7; } .b { stroke: #b9dcf7; }
  .c { fill: #ffd596; } .d { stroke: #ffd596; }
}
"""
WIDTH, LEFT, RIGHT = 960, 56, 948
_TOP, _PLOT, _PANEL = 74, 170, 250
_MARKS = (
    ("formal", "formal chain", "a"),
    ("soft_compatible", "soft-DEEP R where compatible", "b"),
    ("deep_r", "DEEP R", "c"),
    ("soft_exactly_k", "soft-DEEP R with exactly K", "d"),
)
_MADE = (
    "Made by `python -m wirebound_lab.paper.theory_study`. Total variation (TV) between what was sampled and an exact law; "
    "*error* is the TV that sampling alone would give (resampled groups of independent chains), *limit* what it "
    "exceeds once in a thousand times.\n"
)


def markdown(found: dict[str, Any]) -> str:
    """All tables; the figures are those of the JSON beside it."""
    parts = [_MADE, f"{found['chains']} chains, time {found['span']:g}, seed {found['seed']}.\n"]
    for case in found["cases"]:
        exact, last = case["exact"], case["steps"][-1]
        seen, etas = last["frequency"], [step["eta"] for step in case["steps"]]
        columns = {
            "active": exact["sets"], "formal law": exact["formal"], "formal chain": seen["formal"],
            "soft-DEEP R, compatible": seen["soft_compatible"], "strict law": exact["strict"], "DEEP R": seen["deep_r"],
            "soft-DEEP R, exactly K": seen["soft_exactly_k"],
        }  # fmt: skip
        rows = [[row[0], *(f"{share:.4f}" for share in row[1:])] for row in zip(*columns.values(), strict=True)]
        parts += [
            f"## {case['name']}: {case['words']}\n",
            f"Probability of each architecture, exact and as sampled at η = {last['eta']:g}:\n",
            markdown_table(list(columns), rows) + "\n",
        ]
        for part, words in (("architectures", "architectures"), ("theta", "θ, the connection that is farthest off")):
            rows = []
            for name, d in last[part].items():
                values = [*(step[part][name]["tv"] for step in case["steps"]), d["sampling_error"], d["limit"]]
                rows.append([name, *(f"{value:.4f}" for value in values)])
            head = ["what, against what", *(f"η = {eta:g}" for eta in etas), "error", "limit"]
            parts += [f"TV over {words}, at falling step size η:\n", markdown_table(head, rows) + "\n"]
        boxes = exact["formal_to_strict_by_box"]
        parts += [
            "TV between the formal law and the strict law (both exact), by the depth of the box on the negative side:\n",
            markdown_table(["−θ_min", *boxes], [["TV", *(f"{tv:.4f}" for tv in boxes.values())]]) + "\n",
        ]
    return "\n".join(parts)


def draw(found: dict[str, Any]) -> str:
    """One panel for each problem: bars are the exact laws, marks what was sampled at the smallest step size."""
    parts = [text(12, 24, "How often each architecture is sampled", "title", None)]
    for x, words, law in ((12, "formal law p*(c)", "formal"), (150, "strict law", "strict")):
        parts += [tag("rect", x=x, y=36, width=12, height=12, class_=law), text(x + 18, 47, words, anchor=None)]
    x = 260
    for _, words, class_ in _MARKS:
        parts += [tag("circle", cx=x, cy=42, r=4, class_=class_), text(x + 10, 47, words, anchor=None)]
        x += 40 + round(6.4 * len(words))
    for number, case in enumerate(found["cases"]):
        parts += _panel(case, _TOP + number * _PANEL)
    height = _TOP + len(found["cases"]) * _PANEL
    return picture("Exact and sampled probabilities of architectures", parts, WIDTH, height, _STYLE)


def _panel(case: dict[str, Any], top: int) -> list[Html]:
    head, foot = top + 30, top + 30 + _PLOT
    exact, last = case["exact"], case["steps"][-1]
    everything = [0.0, *exact["formal"], *exact["strict"], *(f for fs in last["frequency"].values() for f in fs)]
    up = linear_axis(everything, foot, head, count=4)
    title = text(12, top + 16, f"{case['name']}: {case['words']}; η = {last['eta']:g}", None, None)
    parts = [title, *rungs(up, LEFT, RIGHT, lambda value: f"{value:g}")]
    wide = (RIGHT - LEFT) / len(exact["sets"])
    for number, name in enumerate(exact["sets"]):
        left = LEFT + wide * number
        for place, law, marks in ((0.12, "formal", _MARKS[:2]), (0.52, "strict", _MARKS[2:])):
            x, y, bar = left + place * wide, up.place(exact[law][number]), 0.36 * wide
            box = {"x": round(x, 1), "y": round(y, 1), "width": round(bar, 1), "height": round(foot - y, 1)}
            parts.append(tag("rect", **box, class_=law))
            for share, (key, _, class_) in zip((0.3, 0.7), marks, strict=True):
                at = up.at(last["frequency"][key][number])
                parts.append(tag("circle", cx=round(x + share * bar, 1), cy=at, r=3.2, class_=class_))
        parts.append(text(left + wide / 2, foot + 16, name))
    return parts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("The stationary law of the paper against running chains.", jobs=True)
    parser.add_argument("--chains", type=int, default=2048, help="independent chains, a multiple of 64 (default: 2048)")
    parser.add_argument("--span", type=float, default=40.0, help="time (step size x steps) that is sampled (default: 40)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    same = (options.chains, options.span, options.seed)
    jobs = {case: [theory.TheoryJob(case, eta, *same) for eta in theory.STEP_SIZES] for case in theory.CASES}
    done = run_jobs([job for group in jobs.values() for job in group], options.out / "runs", options.jobs, print)
    found: dict[str, Any] = {"chains": options.chains, "span": options.span, "seed": options.seed, "cases": []}
    for name, group in jobs.items():
        case, steps = theory.CASES[name], done.of(group)
        about = {"name": name, "words": case.words, "active": case.active, "temperature": case.temperature}
        measured = [{k: s[k] for k in ("eta", "samples", "frequency", "architectures", "theta")} for s in steps]
        found["cases"].append({**about, "exact": steps[0]["exact"], "steps": measured})
    write_study(options.out, "theory", found, markdown(found))
    (options.out / "theory.svg").write_text(draw(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
