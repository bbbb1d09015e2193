"""The charts of one run."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Chart, draw, nothing
from .markup import Html
from .records import Window
from .runs import Run
from .series import Series, Values, binned, thin

POINTS = 400  # of a line
BINS = 160  # of a curve with a band
FEWEST_BINS = 16
PAPER_COLOR = 7  # the quiet one


def accuracy_chart(run: Run, identifier: str) -> Html:
    series = accuracy_series(run, f"{run.part} accuracy", 0)
    curves = [series] if series else []
    paper = run.paper
    if series and paper and paper.accuracy is not None:
        ends = [series.x[0], series.x[-1]]
        curves.append(Series("paper", ends, [paper.accuracy] * 2, color=PAPER_COLOR, dashed=True))
    return draw(
        Chart(
            identifier,
            f"{run.part.capitalize()} accuracy",
            f"Share of the {run.part} set classified correctly, after each epoch",
            "epoch",
            curves,
            unit="percent",
        )
    )


def accuracy_series(run: Run, name: str, color: int) -> Series | None:
    """Accuracy after each epoch, or None if it was never recorded."""
    epochs = [epoch for epoch in run.records.epochs if epoch.test_accuracy is not None]
    if not epochs:
        return None
    x, y = thin([epoch.epoch for epoch in epochs], [epoch.test_accuracy for epoch in epochs], POINTS)
    return Series(name, x, y, color=color, marks=len(x) <= 40)


def loss_chart(run: Run, identifier: str) -> Html:
    """Against steps, so that the windows and the ends of epochs share one axis."""
    windows, epochs = run.records.windows, run.records.epochs
    curves: list[Series] = []
    if any(window.loss is not None for window in windows):
        curves.append(
            _window_curve("training, step by step", windows, [window.loss for window in windows], 7)
        )
    stepped = [epoch for epoch in epochs if epoch.step is not None]
    for name, color, values in (
        ("training, epoch mean", 0, [epoch.train_loss for epoch in stepped]),
        (run.part, 1, [epoch.test_loss for epoch in stepped]),
    ):
        if any(value is not None for value in values):
            x, y = thin([float(epoch.step or 0) for epoch in stepped], values, POINTS)
            curves.append(Series(name, x, y, color=color, marks=len(x) <= 40))
    drawn = [value for curve in curves for value in curve.y if value is not None]
    steep = bool(drawn) and min(drawn) > 0 and max(drawn) > 8 * min(drawn)
    subtitle = "Mean loss; the band spans the lowest and highest windows" + (", logarithmic" if steep else "")
    return draw(Chart(identifier, "Loss", subtitle, "step", curves, log_y=steep))


def active_chart(run: Run, identifier: str) -> Html:
    windows = [
        window
        for window in run.records.windows
        if window.active_min is not None and window.active_max is not None
    ]
    if not windows:
        return draw(Chart(identifier, "Active connections", "After every step", "step", []))
    steps = [window.step_to for window in windows]
    most = binned("active", steps, [window.active_max for window in windows], [1] * len(windows), BINS)
    fewest = binned("active", steps, [window.active_min for window in windows], [1] * len(windows), BINS)
    # The line is the highest count of each stretch, so a single step above the budget is seen.
    high, low = most.high or most.y, fewest.low or fewest.y
    curves = [Series("active", most.x, high, low, high, color=0)]
    if run.budget is not None:
        curves.append(Series("budget", [most.x[0], most.x[-1]], [run.budget] * 2, color=1, dashed=True))
    return draw(
        Chart(
            identifier,
            "Active connections",
            "Fewest and most after every step, against the budget",
            "step",
            curves,
            unit="count",
        )
    )


def layer_chart(run: Run, identifier: str) -> Html | None:
    """Where the budget is spent: active connections of each layer, from before training to the last epoch."""
    layers = run.layers
    epochs = [epoch for epoch in run.records.epochs if len(epoch.layer_active) == len(layers) > 1]
    if not epochs:
        return None
    curves = []
    for index, layer in enumerate(layers):
        xs = [0.0] + [float(epoch.epoch) for epoch in epochs]
        x, y = thin(xs, [layer.initial] + [epoch.layer_active[index] for epoch in epochs], POINTS)
        curves.append(Series(layer.name, x, y, color=index, marks=len(x) <= 40))
    subtitle = "Active connections of each layer after each epoch, logarithmic"
    return draw(Chart(identifier, "Connections per layer", subtitle, "epoch", curves, log_y=True))


def turnover_charts(run: Run, identifier: str) -> list[Html]:
    """Births and deaths a step in each layer, and births relative to the layer's possible connections."""
    born = "Newborn connections", "New connections a step in each layer, logarithmic"
    died = "Connections that died", "Connections a step that died in each layer, logarithmic"
    windows = run.records.windows
    charts = [_turnover(run, f"{identifier}-born", *born, [window.newborns for window in windows], "born")]
    if any(window.deaths for window in windows):
        charts.append(_turnover(run, f"{identifier}-died", *died, [window.deaths for window in windows], "lost"))
    width = max((len(window.newborns) for window in windows), default=0)
    measured = len(run.layers) == width and all(layer.possible for layer in run.layers)
    if measured and any(count for window in windows for count in window.newborns):
        subtitle = "New connections a step, per possible connection of the layer, logarithmic"
        counts = [window.newborns for window in windows]
        charts.append(_turnover(run, f"{identifier}-share", "Newborns, relative", subtitle, counts, "born", share=True))
    return charts


def _turnover(
    run: Run, identifier: str, title: str, subtitle: str, counts: Sequence[Values], verb: str, share: bool = False
) -> Html:
    """One curve for each layer of what `counts` says of each window."""
    layers, width = run.layers, max(map(len, counts), default=0)
    kept = [(window, row) for window, row in zip(run.records.windows, counts, strict=True) if row]
    if not width:
        return nothing(title, subtitle, "Nothing of this was recorded for this run.")
    if not any(count for row in counts for count in row):
        return nothing(title, subtitle, f"No connection was {verb}.")
    curves: list[Series] = []
    for index in range(width):
        layer = layers[index] if len(layers) == width else None
        rates = [_rate(window, row, index) for window, row in kept]
        name = layer.name if layer else f"layer {index + 1}"
        if not any(rates):
            name += " (none)"  # a logarithmic axis has no place for it
        # A layer with few events needs long stretches, or its curve would be a rain of zeros and ones.
        total = sum(row[index] or 0 for _, row in kept if index < len(row))
        bins = int(min(BINS, max(FEWEST_BINS, total / 20)))
        if share and layer and layer.possible:
            rates = [None if rate is None else rate / layer.possible for rate in rates]
        curves.append(_window_curve(name, [window for window, _ in kept], rates, index, bins))
    return draw(Chart(identifier, title, subtitle, "step", curves, log_y=True))


def _rate(window: Window, row: Values, layer: int) -> float | None:
    total = row[layer] if layer < len(row) else None
    return None if total is None else total / window.steps


def _window_curve(
    name: str, windows: Sequence[Window], values: Sequence[float | None], color: int, bins: int = BINS
) -> Series:
    steps = [(window.step_from + window.step_to) / 2 for window in windows]
    return binned(name, steps, values, [window.steps for window in windows], bins, color)
