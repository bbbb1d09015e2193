"""The wiring of a run while it is trained: one slider over the epochs for all that is drawn of it."""

from __future__ import annotations

from collections.abc import Sequence

from .ages import draw_ages
from .heatmap import LARGEST_SIDE, draw_pictures, when
from .markup import Html, data_block, fragment, key_list, tag
from .records import Epoch, Picture, Side
from .runs import Run
from .wording import count, percent

LARGEST_DATA = 150_000  # numbers handed to the script
STRIP_HEIGHT = 100  # of the bars of rows and columns, in units of their drawing


def draw_wiring(run: Run, identifier: str) -> Html | None:
    """The slider, the picture of the inputs, rows and columns of the layers, and ages; None without records."""
    pictures = run.records.pictures
    if not pictures:
        return None
    pictures = _choose([picture for picture in pictures if len(picture.inputs) == len(pictures[-1].inputs)])
    names = [layer.name for layer in run.layers]
    ages = draw_ages(pictures, names)
    hint = (
        "Ages are counted in whole epochs, at the ends of epochs: a connection that died and came back between two of "
        "them counts as one that stayed."
    )
    return tag(
        "div",
        _timeline(pictures, run.records.epochs, run.part) if len(pictures) > 1 else None,
        tag("h4", "Where the first layer looks"),
        draw_pictures(pictures, identifier),
        draw_marginals(pictures, names),
        tag("p", hint, class_="hint ages-hint") if ages else None,
        ages,
        class_="wiring-view",
    )


def _choose(pictures: Sequence[Picture]) -> list[Picture]:
    """As many epochs as fit on the page, evenly spread, always with the first and the last."""
    most = max(2, LARGEST_DATA // max(1, max(map(_weight, pictures))))
    if len(pictures) <= most:
        return list(pictures)
    return [pictures[round(index * (len(pictures) - 1) / (most - 1))] for index in range(most)]


def _weight(picture: Picture) -> int:
    """Numbers that the script gets for an epoch."""
    sides = sum(len(layer.rows.counts) + len(layer.columns.counts) for layer in picture.layers)
    ages = len(picture.ages.starts) * len(picture.ages.layers) if picture.ages else 0
    return min(len(picture.inputs), LARGEST_SIDE**2) + sides + ages


def _timeline(pictures: Sequence[Picture], epochs: Sequence[Epoch], part: str) -> Html:
    known = {epoch.epoch: epoch.test_accuracy for epoch in epochs if epoch.test_accuracy is not None}
    labels = [
        when(picture) + (f", {part} accuracy {percent(known[picture.epoch])}" if picture.epoch in known else "")
        for picture in pictures
    ]
    last = len(pictures) - 1
    play = tag("button", "Play", type="button", class_="play", aria_label="Play the epochs one after another")
    slider = tag(
        "input", type="range", min=0, max=last, step=1, value=last, aria_label="Epoch shown", aria_valuetext=labels[-1]
    )
    return tag(
        "div",
        tag("div", play, slider, class_="controls"),
        tag("output", labels[-1], class_="epoch-shown"),
        data_block(labels, "timeline-data"),
        class_="timeline script-only",
    )


def draw_marginals(pictures: Sequence[Picture], names: Sequence[str]) -> Html | None:
    """Connections of each layer by column and by row; None if the records do not have the same layers throughout."""
    shapes = {tuple((len(layer.rows.counts), len(layer.columns.counts)) for layer in p.layers) for p in pictures}
    if len(shapes) != 1 or shapes == {()}:
        return None
    figures = []
    for index, layer in enumerate(pictures[-1].layers):
        name = names[index] if len(names) == len(pictures[-1].layers) else layer.name or f"layer {index + 1}"
        title = f"{name}: {count(layer.columns.length)} \u2192 {count(layer.rows.length)}"
        strips = (
            _strip("input", name, [picture.layers[index].columns for picture in pictures]),
            _strip("output", name, [picture.layers[index].rows for picture in pictures]),
        )
        figures.append(tag("figure", tag("figcaption", tag("h5", title)), *strips, class_="marginal"))
    hint = (
        "How many connections each input (a column of the matrix) and each output (a row) has. A bar that stands for "
        "several neighbours shows their mean."
    )
    return fragment(
        tag("h4", "Connections by column and by row"),
        tag("p", hint, class_="hint"),
        key_list(("block s0", "the epoch shown"), ("s1", "before training")),
        tag("div", *figures, class_="marginals"),
    )


def _strip(noun: str, name: str, frames: Sequence[Side]) -> Html:
    """Bars of the last frame over the outline of the first; the script redraws the bars."""
    values = [frame.means() for frame in frames]
    top = max((value for frame in values for value in frame), default=0.0) or 1.0
    last, group, length = values[-1], frames[-1].group, frames[-1].length
    svg = tag(
        "svg",
        tag("path", d=bars(last, top), class_="bars"),
        tag("path", d=outline(values[0], top), class_="before") if len(values) > 1 else None,
        viewBox=f"0 0 {len(last)} {STRIP_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"Connections of the {noun}s of {name}, highest {max(last):.3g}",
        class_="strip",
    )
    each = f" \u00b7 a bar is {group} {noun}s" if group > 1 else ""
    words = f"{count(length)} {noun}s, 0 to {top:.3g} connections each{each}"
    shown = [[int(value) if value == int(value) else round(value, 3) for value in frame] for frame in values]
    data = {"noun": noun, "top": top, "group": group, "length": length, "frames": shown}
    return tag("div", svg, tag("p", words, class_="strip-words"), data_block(data, "strip-data"), class_="strip-box")


def bars(values: Sequence[float], top: float) -> str:
    """One path of bars that stand on the ground."""
    heights = [round(STRIP_HEIGHT * value / top, 1) if value > 0 else None for value in values]
    return "".join(f"M{i} {STRIP_HEIGHT}v-{h:g}h1v{h:g}z" for i, h in enumerate(heights) if h is not None)


def outline(values: Sequence[float], top: float) -> str:
    """Steps along the tops of the bars."""
    steps = (f"V{round(STRIP_HEIGHT - STRIP_HEIGHT * value / top, 1):g}h1" for value in values)
    return f"M0 {STRIP_HEIGHT}" + "".join(steps)
