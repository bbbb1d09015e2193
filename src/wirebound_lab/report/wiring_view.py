"""The wiring of a run while it is trained: one slider over the epochs for all that is drawn of it."""

from collections.abc import Sequence

from .charts import BOTTOM, COLORS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Series, draw, scales
from .heatmap import LARGEST_SIDE, draw_pictures
from .markup import Html, data_block, figure, fragment, key_list, linear_axis, tag, text
from .records import Ages, Epoch, Picture, Side
from .runs import Run
from .wording import count, percent, plural, tick

GAP = 0.14  # between the bars of ages, of a bin
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

    def weight(picture: Picture) -> int:
        sides = sum(len(layer.rows.counts) + len(layer.columns.counts) for layer in picture.layers)
        ages = len(picture.ages.starts) * len(picture.ages.layers) if picture.ages else 0
        return min(len(picture.inputs), LARGEST_SIDE**2) + sides + ages

    most = max(2, LARGEST_DATA // max(1, max(map(weight, pictures))))
    if len(pictures) <= most:
        return list(pictures)
    return [pictures[round(index * (len(pictures) - 1) / (most - 1))] for index in range(most)]


def _timeline(pictures: Sequence[Picture], epochs: Sequence[Epoch], part: str) -> Html:
    known = {e.epoch: f", {part} accuracy {percent(e.test_accuracy)}" for e in epochs if e.test_accuracy is not None}
    labels = [picture.when + known.get(picture.epoch, "") for picture in pictures]
    play = tag("button", "Play", type="button", class_="play", aria_label="Play the epochs one after another")
    last, said = len(labels) - 1, {"aria_label": "Epoch shown", "aria_valuetext": labels[-1]}
    slider = tag("input", type="range", min=0, max=last, step=1, value=last, **said)
    shown = tag("output", labels[-1], class_="epoch-shown"), data_block(labels, "timeline-data")
    return tag("div", tag("div", play, slider, class_="controls"), *shown, class_="timeline script-only")


def draw_marginals(pictures: Sequence[Picture], names: Sequence[str]) -> Html | None:
    """Connections of each layer by column and by row; None if the records do not have the same layers throughout."""
    shapes = {tuple((len(layer.rows.counts), len(layer.columns.counts)) for layer in p.layers) for p in pictures}
    if len(shapes) != 1 or shapes == {()}:
        return None
    figures = []
    for index, layer in enumerate(pictures[-1].layers):
        name = names[index] if len(names) == len(pictures[-1].layers) else layer.name or f"layer {index + 1}"
        title = f"{name}: {count(layer.columns.length)} \u2192 {count(layer.rows.length)}"
        inputs = _strip("input", name, [picture.layers[index].columns for picture in pictures])
        outputs = _strip("output", name, [picture.layers[index].rows for picture in pictures])
        figures.append(tag("figure", tag("figcaption", tag("h5", title)), inputs, outputs, class_="marginal"))
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
        viewBox=f"0 0 {len(last)} {STRIP_HEIGHT}", preserveAspectRatio="none", role="img",
        aria_label=f"Connections of the {noun}s of {name}, highest {max(last):.3g}", class_="strip",
    )  # fmt: skip
    each = f" \u00b7 a bar is {group} {noun}s" if group > 1 else ""
    words = f"{count(length)} {noun}s, 0 to {top:.3g} connections each{each}"
    shown = [[int(value) if value == int(value) else round(value, 3) for value in frame] for frame in values]
    data = {"noun": noun, "top": top, "group": group, "length": length, "frames": shown}
    return tag("div", svg, tag("p", words, class_="strip-words"), data_block(data, "strip-data"), class_="strip-box")


def bars(values: Sequence[float], top: float) -> str:
    heights = [round(STRIP_HEIGHT * value / top, 1) if value > 0 else None for value in values]
    return "".join(f"M{i} {STRIP_HEIGHT}v-{h:g}h1v{h:g}z" for i, h in enumerate(heights) if h is not None)


def outline(values: Sequence[float], top: float) -> str:
    steps = (f"V{round(STRIP_HEIGHT - STRIP_HEIGHT * value / top, 1):g}h1" for value in values)
    return f"M0 {STRIP_HEIGHT}" + "".join(steps)


def draw_ages(pictures: Sequence[Picture], names: Sequence[str]) -> Html | None:
    """How old the connections are: a histogram for the last epoch until the slider moves."""
    last = pictures[-1].ages
    if last is None or not last.total or len(last.starts) < 2:
        return None
    frames = [_shares(picture.ages, last) for picture in pictures]
    names = _names(names, last)
    # Before training everything is new: that bar says nothing and would flatten all others.
    tops = [sum(column) for frame in frames[1:] for column in zip(*frame, strict=True)]
    up = linear_axis([0.0, max(tops, default=1.0)], BOTTOM, TOP)
    ends = [*(start - 1 for start in last.starts[1:]), pictures[-1].epoch]
    bins = [str(low) if low >= end else f"{low}\u2013{end}" for low, end in zip(last.starts, ends, strict=True)]
    width, every = (RIGHT - LEFT) / len(bins), -(-len(bins) // 9)
    below = [text(LEFT + width * (i + 0.5), BOTTOM + 20, bins[i]) for i in range(0, len(bins), every)]
    sentences = [_sentence(picture) for picture in pictures]
    colors = [f"s{layer % COLORS}" for layer in range(len(names))]
    svg = tag(
        "svg",
        tag("g", *scales(up, lambda value: tick(100 * value, "%"), below, "age in epochs"), aria_hidden="true"),
        *(tag("path", d=_age_bars(frames[-1], i, up.high), class_=f"age {color}") for i, color in enumerate(colors)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
        aria_label=f"Age of connections, {pictures[-1].epoch} epochs: {sentences[-1]}",
    )  # fmt: skip
    rounded = [[[round(value, 5) for value in layer] for layer in frame] for frame in frames]
    box = {"box": [LEFT, RIGHT, BOTTOM, TOP], "top": up.high, "gap": GAP}
    entries = [(f"block {color}", name) for color, name in zip(colors, names, strict=True)]
    return figure(
        "Age of connections",
        "Share of all connections by age, in whole epochs since they were first seen",
        tag("div", svg, class_="plot"),
        key_list(*entries) if len(names) > 1 else None,
        tag("p", sentences[-1], class_="age-words"),
        data_block({**box, "frames": rounded, "sentences": sentences}, "age-data"),
        class_="chart ages",
    )


def survivors_chart(pictures: Sequence[Picture], names: Sequence[str], identifier: str) -> Html | None:
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


def _age_bars(frame: Sequence[Sequence[float]], layer: int, top: float) -> str:
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
    older = [sum(sum(layer[index:]) for layer in ages.layers) for index in range(len(ages.starts))]
    median = max(start for start, number in zip(ages.starts, older, strict=True) if 2 * number >= ages.total)
    return (
        f"Of {count(ages.total)} connections, {percent(new / ages.total, 1)} were not there at the end of the epoch "
        f"before, {percent(first / ages.total, 1)} are there since the start; "
        f"half are at least {plural(median, 'epoch')} old."
    )
