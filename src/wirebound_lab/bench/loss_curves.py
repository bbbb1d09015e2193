"""Curves of a loss as a picture of its own: one panel beside another, the same colours in both."""

from collections.abc import Mapping, Sequence

from wirebound_lab.report.markup import Html, linear_axis, picture, rungs, tag, text

Curve = Sequence[tuple[float, float]]  # (x, loss)
WIDTH, HEIGHT = 860, 360
_PANEL, _LEFT, _TOP, _FOOT = 420, 52, 56, 310
_COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#57606a")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-size:15px;fill:#24292f}.grid{stroke:#d0d7de}"
    ".curve{fill:none;stroke-width:2}" + "".join(f".c{i}{{stroke:{color}}}" for i, color in enumerate(_COLORS))
)


def draw(title: str, panels: Mapping[str, Mapping[str, Curve]]) -> str:
    """A picture as a file's text: for each name of a horizontal axis the curves by name, at most two panels."""
    parts: list[Html] = [text(12, 24, title, "title", None)]
    losses = [y for curves in panels.values() for curve in curves.values() for _, y in curve]
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    up = linear_axis(losses, _FOOT, _TOP, count=5)
    for number, (label, curves) in enumerate(panels.items()):
        left, right = _LEFT + number * _PANEL, (number + 1) * _PANEL - 8
        across = linear_axis([x for curve in curves.values() for x, _ in curve] + [0.0], left, right, count=5, tight=True)
        parts += [*rungs(up, left, right, lambda value: f"{value:g}"), text(right, _FOOT + 36, label, anchor="end")]
        parts += [text(across.place(value), _FOOT + 18, f"{value:g}") for value in across.ticks]
        for name, curve in curves.items():
            path = "L".join(f"{across.at(x)} {up.at(y)}" for x, y in curve)
            parts.append(tag("path", d=f"M{path}", class_=f"curve c{names.index(name) % len(_COLORS)}"))
    for number, name in enumerate(names):
        y = _TOP + 6 + 16 * number
        parts += [tag("path", d=f"M{_PANEL - 214} {y}h24", class_=f"curve c{number % len(_COLORS)}")]
        parts.append(text(_PANEL - 182, y + 4, name, anchor=None))
    return picture(title, parts, WIDTH, HEIGHT, _STYLE)
