"""The charts of one run, and how long curves are made short without hiding what they do."""

from collections.abc import Sequence
from itertools import pairwise

from .charts import Chart, Series, Values, draw
from .markup import Html, no_figure
from .records import RecordedWindow
from .runs import Run

POINTS = 400  # of a line
MARKED = 40  # points of a line with marks
BINS = 160  # of a curve with a band
FEWEST_BINS = 16
PAPER_COLOR = 7  # the quiet one


def thin(x: Sequence[float], y: Values, limit: int) -> tuple[list[float], list[float | None]]:
    """At most about `limit` points of a curve: the lowest and the highest of each stretch, and both ends."""
    if len(x) <= limit:
        return list(x), list(y)
    keep = {0, len(x) - 1}
    for start, stop in _stretches(len(x), max(1, limit // 2)):
        present = [index for index in range(start, stop) if y[index] is not None]
        if present:
            keep |= {chosen(present, key=lambda index: y[index] or 0.0) for chosen in (min, max)}
        else:
            keep.add(start)  # the gap stays a gap
    chosen = sorted(keep)
    return [x[index] for index in chosen], [y[index] for index in chosen]


def binned(name: str, x: Sequence[float], y: Values, weights: Sequence[float], limit: int, color: int = 0) -> Series:
    """A curve of weighted means over stretches, with a band from the lowest to the highest value in each."""
    if len(x) <= limit:
        return Series(name, list(x), list(y), color=color)
    rows: list[tuple[float, float | None, float | None, float | None]] = []
    for start, stop in _stretches(len(x), limit):
        pairs = zip(y[start:stop], weights[start:stop], strict=True)
        present = [(value, weight) for value, weight in pairs if value is not None]
        total = sum(weight for _, weight in present)
        mean = sum(value * weight for value, weight in present) / total if total else None
        low, high = (end((value for value, _ in present), default=None) for end in (min, max))
        rows.append(((x[start] + x[stop - 1]) / 2, mean, low, high))
    centers, means, lows, highs = map(list, zip(*rows, strict=True))
    return Series(name, centers, means, lows, highs, color=color)


def _stretches(length: int, count: int) -> list[tuple[int, int]]:
    edges = [length * index // count for index in range(count + 1)]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]


def _thinned(name: str, x: Sequence[float], y: Values, color: int) -> Series:
    x, y = thin(x, y, POINTS)
    return Series(name, x, y, color=color, marks=len(x) <= MARKED)


def accuracy_chart(run: Run, identifier: str) -> Html:
    series = accuracy_series(run, f"{run.part} accuracy", 0)
    curves = [series] if series else []
    if series and run.paper and run.paper.accuracy is not None:
        ends = [series.x[0], series.x[-1]]
        curves.append(Series("paper", ends, [run.paper.accuracy] * 2, color=PAPER_COLOR, dashed=True))
    subtitle = f"Share of the {run.part} set classified correctly, after each epoch"
    return draw(Chart(identifier, f"{run.part.capitalize()} accuracy", subtitle, "epoch", curves, unit="percent"))


def accuracy_series(run: Run, name: str, color: int) -> Series | None:
    epochs = [epoch for epoch in run.records.epochs if epoch.test_accuracy is not None]
    if not epochs:
        return None
    return _thinned(name, [epoch.epoch for epoch in epochs], [epoch.test_accuracy for epoch in epochs], color)


def loss_chart(run: Run, identifier: str) -> Html:
    """Against steps, so that the windows and the ends of epochs share one axis."""
    windows = run.records.windows
    curves: list[Series] = []
    if any(window.loss is not None for window in windows):
        curves.append(_window_curve("training, step by step", windows, [window.loss for window in windows], 7))
    epochs = [epoch for epoch in run.records.epochs if epoch.step is not None]
    losses = [epoch.train_loss for epoch in epochs], [epoch.test_loss for epoch in epochs]
    for color, (name, values) in enumerate(zip(("training, epoch mean", run.part), losses, strict=True)):
        if any(value is not None for value in values):
            curves.append(_thinned(name, [float(epoch.step or 0) for epoch in epochs], values, color))
    drawn = [value for curve in curves for value in curve.y if value is not None]
    steep = bool(drawn) and min(drawn) > 0 and max(drawn) > 8 * min(drawn)
    subtitle = "Mean loss; the band spans the lowest and highest windows" + (", logarithmic" if steep else "")
    return draw(Chart(identifier, "Loss", subtitle, "step", curves, log_y=steep))


def active_chart(run: Run, identifier: str) -> Html:
    title = "Active connections"
    windows = [w for w in run.records.windows if w.active_min is not None and w.active_max is not None]
    if not windows:
        return draw(Chart(identifier, title, "After every step", "step", []))
    steps = [window.step_to for window in windows]
    most = binned("active", steps, [window.active_max for window in windows], [1] * len(windows), BINS)
    fewest = binned("active", steps, [window.active_min for window in windows], [1] * len(windows), BINS)
    # The line is the highest count of each stretch, so a single step above the budget is seen.
    high, low = most.high or most.y, fewest.low or fewest.y
    curves = [Series("active", most.x, high, low, high, color=0)]
    if run.budget is not None:
        curves.append(Series("budget", [most.x[0], most.x[-1]], [run.budget] * 2, color=1, dashed=True))
    subtitle = "Fewest and most after every step, against the budget"
    return draw(Chart(identifier, title, subtitle, "step", curves, unit="count"))


def layer_chart(run: Run, identifier: str) -> Html | None:
    """Where the budget is spent: active connections of each layer, from before training to the last epoch."""
    epochs = [epoch for epoch in run.records.epochs if len(epoch.layer_active) == len(run.layers) > 1]
    if not epochs:
        return None
    xs = [0.0, *(float(epoch.epoch) for epoch in epochs)]
    active = [[layer.initial, *(e.layer_active[i] for e in epochs)] for i, layer in enumerate(run.layers)]
    curves = [_thinned(layer.name, xs, active[i], i) for i, layer in enumerate(run.layers)]
    subtitle = "Active connections of each layer after each epoch, logarithmic"
    return draw(Chart(identifier, "Connections per layer", subtitle, "epoch", curves, log_y=True))


def turnover_charts(run: Run, identifier: str) -> list[Html]:
    """Births and deaths a step in each layer, and births relative to the layer's possible connections."""
    windows = run.records.windows
    newborns, deaths = [window.newborns for window in windows], [window.deaths for window in windows]
    born = "Newborn connections", "New connections a step in each layer, logarithmic"
    died = "Connections that died", "Connections a step that died in each layer, logarithmic"
    relative = "Newborns, relative", "New connections a step, per possible connection of the layer, logarithmic"
    charts = [_turnover(run, f"{identifier}-born", *born, newborns, "born")]
    if any(deaths):
        charts.append(_turnover(run, f"{identifier}-died", *died, deaths, "lost"))
    measured = len(run.layers) == max(map(len, newborns), default=0) and all(layer.possible for layer in run.layers)
    if measured and any(map(any, newborns)):
        charts.append(_turnover(run, f"{identifier}-share", *relative, newborns, "born", share=True))
    return charts


def _turnover(
    run: Run, identifier: str, title: str, subtitle: str, counts: Sequence[Values], verb: str, share: bool = False
) -> Html:
    """One curve for each layer of what `counts` says of each window."""
    width = max(map(len, counts), default=0)
    if not width:
        return no_figure(title, subtitle, "Nothing of this was recorded for this run.")
    if not any(map(any, counts)):
        return no_figure(title, subtitle, f"No connection was {verb}.")
    kept = [(window, row) for window, row in zip(run.records.windows, counts, strict=True) if row]
    curves: list[Series] = []
    for index in range(width):
        layer = run.layers[index] if len(run.layers) == width else None
        found = [row[index] if index < len(row) else None for _, row in kept]
        parts = layer.possible or 1 if share and layer else 1
        rates = [None if n is None else n / window.steps / parts for (window, _), n in zip(kept, found, strict=True)]
        # A logarithmic axis has no place for a layer without any.
        name = (layer.name if layer else f"layer {index + 1}") + ("" if any(rates) else " (none)")
        # A layer with few events needs long stretches, or its curve would be a rain of zeros and ones.
        bins = int(min(BINS, max(FEWEST_BINS, sum(n or 0 for n in found) / 20)))
        curves.append(_window_curve(name, [window for window, _ in kept], rates, index, bins))
    return draw(Chart(identifier, title, subtitle, "step", curves, log_y=True))


def _window_curve(name: str, windows: Sequence[RecordedWindow], values: Values, color: int, bins: int = BINS) -> Series:
    steps = [(window.step_from + window.step_to) / 2 for window in windows]
    return binned(name, steps, values, [window.steps for window in windows], bins, color)
