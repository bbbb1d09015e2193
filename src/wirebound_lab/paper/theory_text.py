"""The tables and the figure of ``experiments/theory.py``, out of what it measured."""

from __future__ import annotations

from typing import Any

from wirebound_lab.report.markup import Html, tag
from wirebound_lab.report.scale import linear_axis

_MARKS = (
    ("formal", "formal chain", "a"),
    ("soft_compatible", "soft-DEEP R where compatible", "b"),
    ("deep_r", "DEEP R", "c"),
    ("soft_exactly_k", "soft-DEEP R with exactly K", "d"),
)
_STYLE = """
svg { background: #ffffff; font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; } .quiet { fill: #59636e; font-size: 12px; }
.grid { stroke: #d9dee3; } .formal { fill: #b8cfe2; } .strict { fill: #f0cf9c; }
.a { fill: #174a75; } .b { fill: none; stroke: #174a75; stroke-width: 1.6; }
.c { fill: #8a4b00; } .d { fill: none; stroke: #8a4b00; stroke-width: 1.6; }
@media (prefers-color-scheme: dark) {
  svg { background: #14181d; fill: #e6eaee; } .quiet { fill: #9aa5b1; } .grid { stroke: #2c343d; }
  .formal { fill: #2d5678; } .strict { fill: #7a5a24; } .a { fill: #b9dcf7; } .b { stroke: #b9dcf7; }
  .c { fill: #ffd596; } .d { stroke: #ffd596; }
}
"""
WIDTH, LEFT, RIGHT = 960, 56, 948
_TOP, _PLOT, _PANEL = 74, 170, 250


def markdown(found: dict[str, Any]) -> str:
    """All tables; the figures are those of the JSON beside it."""
    lines = [
        "Made by `python -m wirebound_lab.paper.theory_study`. Total variation (TV) between what was sampled and an exact law; "
        "*error* is the TV that sampling alone would give (resampled groups of independent chains), *limit* what it "
        "exceeds once in a thousand times.",
        "",
        f"{found['chains']} chains, time {found['span']:g}, seed {found['seed']}.",
    ]
    for case in found["cases"]:
        lines += ["", f"## {case['name']}: {case['words']}", "", *_probabilities(case)]
        for part, words in (("architectures", "architectures"), ("theta", "θ, the connection that is farthest off")):
            lines += ["", f"TV over {words}, at falling step size η:", "", *_distances(case, part)]
        boxes = case["exact"]["formal_to_strict_by_box"]
        lines += [
            "",
            "TV between the formal law and the strict law (both exact), by the depth of the box on the negative side:",
            "",
            "| −θ_min | " + " | ".join(boxes) + " |",
            "| --- |" + " --- |" * len(boxes),
            "| TV | " + " | ".join(f"{tv:.4f}" for tv in boxes.values()) + " |",
        ]
    return "\n".join(lines) + "\n"


def _probabilities(case: dict[str, Any]) -> list[str]:
    last = case["steps"][-1]
    names = ["formal law", "formal chain", "soft-DEEP R, compatible", "strict law", "DEEP R", "soft-DEEP R, exactly K"]
    frequency = last["frequency"]
    columns = [
        case["exact"]["formal"],
        frequency["formal"],
        frequency["soft_compatible"],
        case["exact"]["strict"],
        frequency["deep_r"],
        frequency["soft_exactly_k"],
    ]
    lines = [
        f"Probability of each architecture, exact and as sampled at η = {last['eta']:g}:",
        "",
        "| active | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for number, name in enumerate(case["exact"]["sets"]):
        lines.append(f"| {name} | " + " | ".join(f"{column[number]:.4f}" for column in columns) + " |")
    return lines


def _distances(case: dict[str, Any], part: str) -> list[str]:
    etas = [step["eta"] for step in case["steps"]]
    lines = [
        "| what, against what | " + " | ".join(f"η = {eta:g}" for eta in etas) + " | error | limit |",
        "| --- |" + " --- |" * (len(etas) + 2),
    ]
    for name, last in case["steps"][-1][part].items():
        values = " | ".join(f"{step[part][name]['tv']:.4f}" for step in case["steps"])
        lines.append(f"| {name} | {values} | {last['sampling_error']:.4f} | {last['limit']:.4f} |")
    return lines


def draw(found: dict[str, Any]) -> str:
    """One panel for each problem: bars are the exact laws, marks what was sampled at the smallest step size."""
    parts = [
        _text(12, 24, "How often each architecture is sampled", "title"),
        tag("rect", x=12, y=36, width=12, height=12, class_="formal"),
        _text(30, 47, "formal law p*(c)", "quiet"),
        tag("rect", x=150, y=36, width=12, height=12, class_="strict"),
        _text(168, 47, "strict law", "quiet"),
    ]
    x = 260
    for _, words, class_ in _MARKS:
        parts += [tag("circle", cx=x, cy=42, r=4, class_=class_), _text(x + 10, 47, words, "quiet")]
        x += 40 + round(6.4 * len(words))
    for number, case in enumerate(found["cases"]):
        parts += _panel(case, _TOP + number * _PANEL)
    height = _TOP + len(found["cases"]) * _PANEL
    return (
        tag(
            "svg",
            tag("title", "Exact and sampled probabilities of architectures"),
            tag("style", Html(_STYLE)),
            *parts,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {height}",
            width=WIDTH,
            height=height,
            role="img",
        )
        + "\n"
    )


def _panel(case: dict[str, Any], top: int) -> list[Html]:
    head, foot = top + 30, top + 30 + _PLOT
    exact, last = case["exact"], case["steps"][-1]
    everything = [0.0, *exact["formal"], *exact["strict"], *(f for fs in last["frequency"].values() for f in fs)]
    up = linear_axis(everything, foot, head, count=4)
    parts = [_text(12, top + 16, f"{case['name']}: {case['words']}; η = {last['eta']:g}")]
    for value in up.ticks:
        y = round(up.place(value), 1)
        parts.append(tag("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(_text(LEFT - 8, y + 4, f"{value:g}", "quiet", "end"))
    wide = (RIGHT - LEFT) / len(exact["sets"])
    for number, name in enumerate(exact["sets"]):
        left = LEFT + wide * number
        for place, law, marks in ((0.12, "formal", _MARKS[:2]), (0.52, "strict", _MARKS[2:])):
            y, bar = up.place(exact[law][number]), 0.36 * wide
            x = left + place * wide
            parts.append(
                tag("rect", x=round(x, 1), y=round(y, 1), width=round(bar, 1), height=round(foot - y, 1), class_=law)
            )
            for share, (key, _, class_) in zip((0.3, 0.7), marks, strict=True):
                at = round(up.place(last["frequency"][key][number]), 1)
                parts.append(tag("circle", cx=round(x + share * bar, 1), cy=at, r=3.2, class_=class_))
        parts.append(_text(left + wide / 2, foot + 16, name, "quiet", "middle"))
    return parts


def _text(x: float, y: float, text: str, class_: str | None = None, anchor: str | None = None) -> Html:
    return tag("text", text, x=round(x, 1), y=round(y, 1), class_=class_, text_anchor=anchor)
