"""Connections of each layer by column and by row: two strips of bars that follow the slider."""

from __future__ import annotations

from collections.abc import Sequence

from .markup import Html, data_block, fragment, tag
from .pictures import Picture, Side
from .wording import count

HEIGHT = 100  # of a strip, in units of its drawing


def draw_marginals(pictures: Sequence[Picture], names: Sequence[str]) -> Html | None:
    """A figure for each layer; None if the records have none, or not of the same layers throughout."""
    shapes = {tuple((len(layer.rows.counts), len(layer.columns.counts)) for layer in picture.layers) for picture in pictures}
    if len(shapes) != 1 or shapes == {()}:
        return None
    figures = []
    for index, layer in enumerate(pictures[-1].layers):
        name = names[index] if len(names) == len(pictures[-1].layers) else layer.name or f"layer {index + 1}"
        inputs = [picture.layers[index].columns for picture in pictures]
        outputs = [picture.layers[index].rows for picture in pictures]
        title = f"{name}: {count(inputs[-1].length)} \u2192 {count(outputs[-1].length)}"
        figures.append(
            tag(
                "figure",
                tag("figcaption", tag("h5", title)),
                _strip("input", f"Connections of the inputs of {name}", inputs),
                _strip("output", f"Connections of the outputs of {name}", outputs),
                class_="marginal",
            )
        )
    return fragment(
        tag("h4", "Connections by column and by row"),
        tag(
            "p",
            "How many connections each input (a column of the matrix) and each output (a row) has. A bar that stands "
            "for several neighbours shows their mean.",
            class_="hint",
        ),
        tag(
            "ul",
            tag("li", tag("span", class_="swatch block s0", aria_hidden="true"), tag("span", "the epoch shown")),
            tag("li", tag("span", class_="swatch s1", aria_hidden="true"), tag("span", "before training")),
            class_="key-list",
        ),
        tag("div", *figures, class_="marginals"),
    )


def _strip(noun: str, title: str, frames: Sequence[Side]) -> Html:
    """Bars of the last frame over the outline of the first; the script redraws the bars."""
    values = [frame.means() for frame in frames]
    top = max((value for frame in values for value in frame), default=0.0) or 1.0
    last, number = values[-1], len(values[-1])
    svg = tag(
        "svg",
        tag("path", d=bars(last, top), class_="bars"),
        tag("path", d=outline(values[0], top), class_="before") if len(values) > 1 else None,
        viewBox=f"0 0 {number} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{title}, highest {max(last):.3g}",
        class_="strip",
    )
    group = frames[-1].group
    each = f" \u00b7 a bar is {group} {noun}s" if group > 1 else ""
    words = f"{count(frames[-1].length)} {noun}s, 0 to {top:.3g} connections each{each}"
    data = {
        "noun": noun,
        "top": top,
        "group": group,
        "length": frames[-1].length,
        "frames": [[_short(value) for value in frame] for frame in values],
    }
    return tag(
        "div",
        svg,
        tag("p", words, class_="strip-words"),
        data_block(data, "strip-data"),
        class_="strip-box",
    )


def bars(values: Sequence[float], top: float) -> str:
    """One path of bars that stand on the ground."""
    parts = []
    for index, value in enumerate(values):
        if value > 0:
            height = round(HEIGHT * value / top, 1)
            parts.append(f"M{index} {HEIGHT}v-{height:g}h1v{height:g}z")
    return "".join(parts)


def outline(values: Sequence[float], top: float) -> str:
    """Steps along the tops of the bars."""
    return f"M0 {HEIGHT}" + "".join(f"V{round(HEIGHT - HEIGHT * value / top, 1):g}h1" for value in values)


def _short(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 3)
