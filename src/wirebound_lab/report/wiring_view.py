"""The wiring of a run while it is trained: one slider over the epochs for all that is drawn of it."""

from __future__ import annotations

from collections.abc import Sequence

from .ages import draw_ages
from .heatmap import LARGEST_SIDE, draw_pictures, when
from .marginals import draw_marginals
from .markup import Html, data_block, tag
from .pictures import Picture
from .records import Epoch
from .runs import Run
from .wording import percent

LARGEST_DATA = 150_000  # numbers handed to the script


def draw_wiring(run: Run, identifier: str) -> Html | None:
    """The slider, the picture of the inputs, rows and columns of the layers, and ages; None without records."""
    pictures = run.records.pictures
    if not pictures:
        return None
    pictures = _choose([picture for picture in pictures if len(picture.inputs) == len(pictures[-1].inputs)])
    names = [layer.name for layer in run.layers]
    ages = draw_ages(pictures, names)
    return tag(
        "div",
        _timeline(pictures, run.records.epochs, run.part) if len(pictures) > 1 else None,
        tag("h4", "Where the first layer looks"),
        draw_pictures(pictures, identifier),
        draw_marginals(pictures, names),
        tag(
            "p",
            "Ages are counted in whole epochs, at the ends of epochs: a connection that died and came back between two "
            "of them counts as one that stayed.",
            class_="hint ages-hint",
        )
        if ages
        else None,
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
    accuracies = {
        epoch.epoch: f", {part} accuracy {percent(epoch.test_accuracy)}"
        for epoch in epochs
        if epoch.test_accuracy is not None
    }
    labels = [f"{when(picture)}{accuracies.get(picture.epoch, '')}" for picture in pictures]
    last = len(pictures) - 1
    slider = tag(
        "input",
        type="range",
        min=0,
        max=last,
        step=1,
        value=last,
        aria_label="Epoch shown",
        aria_valuetext=labels[-1],
    )
    play = tag("button", "Play", type="button", class_="play", aria_label="Play the epochs one after another")
    shown = tag("output", labels[-1], class_="epoch-shown")
    return tag(
        "div",
        tag("div", play, slider, class_="controls"),
        shown,
        data_block(labels, "timeline-data"),
        class_="timeline script-only",
    )
