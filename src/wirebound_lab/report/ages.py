"""How old the connections are: a histogram that follows the slider, and who is there since the start."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import BOTTOM, COLORS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Series, draw, scales
from .markup import Html, data_block, figure, key_list, tag
from .records import Ages, Picture
from .svg import linear_axis, text
from .wording import count, percent, plural, tick

GAP = 0.14  # of a bin


def draw_ages(pictures: Sequence[Picture], names: Sequence[str]) -> Html | None:
    """The histogram, for the last epoch until the slider moves."""
    last = pictures[-1].ages
    if last is None or not last.total or len(last.starts) < 2:
        return None
    frames = [_shares(picture.ages, last) for picture in pictures]
    names = _names(names, last)
    # Before training everything is new: that bar says nothing and would flatten all others.
    tops = [sum(column) for frame in frames[1:] for column in zip(*frame, strict=True)]
    up = linear_axis([0.0, max(tops, default=1.0)], BOTTOM, TOP)
    bins = _labels(last.starts, pictures[-1].epoch)
    width, every = (RIGHT - LEFT) / len(bins), -(-len(bins) // 9)
    below = [text(LEFT + width * (i + 0.5), BOTTOM + 20, bins[i]) for i in range(0, len(bins), every)]
    sentences = [_sentence(picture) for picture in pictures]
    colors = [f"s{layer % COLORS}" for layer in range(len(names))]
    svg = tag(
        "svg",
        tag("g", *scales(up, lambda value: tick(100 * value, "%"), below, "age in epochs"), aria_hidden="true"),
        *(tag("path", d=_bars(frames[-1], i, up.high), class_=f"age {color}") for i, color in enumerate(colors)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"Age of connections, {pictures[-1].epoch} epochs: {sentences[-1]}",
    )
    data = {
        "box": [LEFT, RIGHT, BOTTOM, TOP],
        "top": up.high,
        "gap": GAP,
        "frames": [[[round(value, 5) for value in layer] for layer in frame] for frame in frames],
        "sentences": sentences,
    }
    entries = [(f"block {color}", name) for color, name in zip(colors, names, strict=True)]
    return figure(
        "Age of connections",
        "Share of all connections by age, in whole epochs since they were first seen",
        tag("div", svg, class_="plot"),
        key_list(*entries) if len(names) > 1 else None,
        tag("p", sentences[-1], class_="age-words"),
        data_block(data, "age-data"),
        class_="chart ages",
    )


def survivors_chart(pictures: Sequence[Picture], names: Sequence[str], identifier: str) -> Html | None:
    """How much of the first wiring is left, in each layer."""
    known = [(float(picture.epoch), picture.ages) for picture in pictures if picture.ages is not None]
    if len(known) < 2 or len({len(ages.layers) for _, ages in known}) != 1:
        return None
    curves = []
    for layer, (name, first) in enumerate(zip(_names(names, known[0][1]), known[0][1].since_start, strict=True)):
        left = [ages.since_start[layer] / first if first else None for _, ages in known]
        curves.append(Series(name, [epoch for epoch, _ in known], left, color=layer, marks=len(known) <= 40))
    subtitle = "Share of the connections of the first wiring that were there at the end of every epoch"
    return draw(Chart(identifier, "Left of the first wiring", subtitle, "epoch", curves, unit="percent"))


def _names(names: Sequence[str], ages: Ages) -> list[str]:
    layers = len(ages.layers)
    return list(names) if len(names) == layers else [f"layer {index}" for index in range(1, layers + 1)]


def _shares(ages: Ages | None, last: Ages) -> list[list[float]]:
    """By layer and bin of the last epoch; nothing where an epoch has no ages, or other bins."""
    bins = len(last.starts)
    if ages is None or len(ages.layers) != len(last.layers) or last.starts[: len(ages.starts)] != ages.starts:
        return [[0.0] * bins for _ in last.layers]
    total = ages.total or 1
    return [[value / total for value in layer] + [0.0] * (bins - len(layer)) for layer in ages.layers]


def _labels(starts: Sequence[int], epoch: int) -> list[str]:
    ends = [*(start - 1 for start in starts[1:]), epoch]
    return [str(start) if start >= end else f"{start}\u2013{end}" for start, end in zip(starts, ends, strict=True)]


def _bars(frame: Sequence[Sequence[float]], layer: int, top: float) -> str:
    """The bars of one layer on top of those before it."""
    width, scale = (RIGHT - LEFT) / len(frame[0]), (BOTTOM - TOP) / top
    parts = []
    for index, value in enumerate(frame[layer]):
        if value > 0:
            below = sum(other[index] for other in frame[:layer])
            bottom, ceiling = (max(TOP, BOTTOM - scale * level) for level in (below, below + value))
            left = LEFT + width * (index + GAP / 2)
            parts.append(f"M{left:.1f} {bottom:.1f}V{ceiling:.1f}h{width * (1 - GAP):.1f}V{bottom:.1f}z")
    return "".join(parts)


def _sentence(picture: Picture) -> str:
    ages = picture.ages
    if ages is None or not ages.total:
        return "Ages were not recorded for this epoch."
    if picture.epoch == 0:
        return "Before training all connections are new."
    new, first = sum(layer[0] for layer in ages.layers), sum(ages.since_start)
    return (
        f"Of {count(ages.total)} connections, {percent(new / ages.total, 1)} were not there at the end of the epoch "
        f"before, {percent(first / ages.total, 1)} are there since the start; "
        f"half are at least {plural(_median(ages), 'epoch')} old."
    )


def _median(ages: Ages) -> int:
    """The highest bin such that at least half of all are in it or older."""
    older = 0
    for index in reversed(range(len(ages.starts))):
        older += sum(layer[index] for layer in ages.layers)
        if 2 * older >= ages.total:
            return ages.starts[index]
    return 0
