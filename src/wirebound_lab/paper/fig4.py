"""Figure 4: transfer on class-shuffled MNIST. The labels change after every epoch, the images do not."""

from typing import Any

from wirebound_lab.paper.evidence import Difference, paired_test
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Runs, Scale
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.paper.measure import axis, curve_over_seeds, lines, mean_over, series
from wirebound_lab.run.config import make_config

_EPOCHS = {Scale.QUICK: 6, Scale.FITTED: 12, Scale.FULL: 40}
_SETTINGS: dict[str, Any] = {
    "task": "shuffled", "method": "deep-r", "hidden": [400, 400], "bias": False, "lr": 0.05, "batch_size": 1,
    "l1": 1e-5, "noise": 1e-5,  # T = ηα²/2 is g = α
}  # fmt: skip
# Connections of each layer at the start: connectivity 0.01, 0.01, 0.1. The digits' 64 inputs need more.
_COUNTS = {"mnist": (3136, 1600, 400), "digits": (2560, 3200, 400)}
_LAYERS = ("first hidden layer", "second hidden layer", "output layer")
_CORRELATED = ("weights", "activities")
Records = list[dict[str, Any]]  # of one kind, of one run


def runs(scale: Scale, seeds: int) -> Runs:
    data = "digits" if scale is Scale.QUICK else "mnist"
    epochs, counts = _EPOCHS[scale], _COUNTS[data]
    own = {"data": data, "epochs": epochs, "budget": sum(counts), "allocation": ",".join(map(str, counts))}
    folder = f"{data}-shuffled/deep-r-e{epochs}"
    jobs = [TrainJob(f"{folder}-s{s}", make_config(_SETTINGS, own, {"seed": s})) for s in range(seeds)]
    return {"deep-r": {epochs: jobs}}


def read(r: Reading) -> Drawn:
    """Accuracy within and across epochs, and correlations between epochs, per layer."""
    epochs = _EPOCHS[r.scale]
    jobs = r.done.ended(r.runs["deep-r"][epochs])
    recovery = [r.done.metrics(job, "recovery") for job in jobs]
    # The first epoch compares with the start and is no transfer.
    transfer = [[record for record in r.done.metrics(job, "transfer") if record["epoch"] > 1] for job in jobs]
    per_epoch = recovery[0][-1]["step"] / epochs if recovery else 1
    within = curve_over_seeds([_within(records, per_epoch) for records in recovery])
    ends = curve_over_seeds([list(_last(records).items()) for records in recovery])
    x, accuracy = axis("epoch"), axis("test accuracy", percent=True)
    title = "Test accuracy over epochs; the labels change at every whole number"
    charts = [
        lines("accuracy", title, x, accuracy, [series("deep-r", within, name="within epochs")]),
        lines("ends", "Test accuracy at the end of each epoch", x, accuracy, [series("deep-r", ends)]),
    ]
    rows = []
    for key in _CORRELATED:
        layers = []
        for n, name in enumerate(_LAYERS):
            curves = [[(record["epoch"], record[key][n]) for record in run] for run in transfer]
            layers.append(series(f"layer-{n + 1}", curve_over_seeds(curves), name=name))
            if jobs:
                rows.append([key, name, *(mean_over(_third(transfer, key, n, late)).text() for late in (False, True))])
        charts.append(lines(key, f"Correlation of {key} with those one epoch before", x, axis("correlation"), layers))
    settings = {
        "network": "784-400-400-10, no biases, ReLU",
        "optimiser": "SGD, η 0.05, batch 1",
        "DEEP R": "α 1e-5, T = ηα²/2, connectivity 0.01, 0.01, 0.1 at the start",
        "epochs": epochs,
        "activities": "of 1,000 test images; softmax of the output layer",
    }
    columns = ["of", "layer", "first third", "last third"]
    table = {"title": "Correlation with one epoch before", "columns": columns, "rows": rows}
    drawn = Drawn(r.scale, settings, charts, [table], runs=jobs)
    if jobs:
        _accuracy_findings(drawn, recovery)
        _correlation_findings(drawn, transfer)
    return drawn


def _within(records: Records, per_epoch: float) -> list[tuple[float, float]]:
    """Both points at a shuffle, the first of them a little before it."""
    found: list[tuple[float, float]] = []
    for before, record in zip([None, *records], records, strict=False):
        x = record["step"] / per_epoch
        if before is not None and before["step"] == record["step"]:
            found[-1] = (x - 1e-6, before["test_accuracy"])
        found.append((x, record["test_accuracy"]))
    return found


def _last(records: Records) -> dict[int, float]:
    """The accuracy at the end of each epoch."""
    return {record["epoch"]: record["test_accuracy"] for record in records}


def _part(values: list[float], late: bool) -> float:
    """The mean over the last (or the first) third."""
    third = max(1, len(values) // 3)
    part = values[-third:] if late else values[:third]
    return sum(part) / len(part)


def _rise(early: list[float], late: list[float]) -> Difference:
    """Seed by seed."""
    return Difference(tuple(b - a for a, b in zip(early, late, strict=True)))


def _third(transfer: list[Records], key: str, layer: int, late: bool) -> list[float]:
    """Of a layer's correlations, the mean over the last (or the first) third of the epochs, of each seed."""
    return [_part([record[key][layer] for record in run], late) for run in transfer]


def _accuracy_findings(drawn: Drawn, recovery: list[Records]) -> None:
    pairs = []  # right after a shuffle, and at the end of the epoch
    for records in recovery:
        first, last = _last(records[::-1]), _last(records)
        pairs += [(first[epoch], last[epoch]) for epoch in last if epoch > 1]
    after, end = (sum(values) / len(values) for values in zip(*pairs, strict=True))
    ours = f"{100 * after:.1f} % right after a shuffle, {100 * end:.1f} % at the end of the epoch, on average"
    holds = all(b > a + 0.3 for a, b in pairs)
    test = "in every epoch of every seed, it gains more than 30 points"
    drawn.finding("the accuracy recovers after every shuffle", "recovers", ours, len(recovery), holds, test)
    ends = [list(_last(records).values()) for records in recovery]
    early, late = ([_part(values, part) for values in ends] for part in (False, True))
    ours = f"{mean_over(early).percent()} in the first third of the epochs, {mean_over(late).percent()} in the last"
    claim = "the accuracy at the end of an epoch rises across shuffles"
    rise = _rise(early, late)
    drawn.finding(claim, "clear trend", ours, len(recovery), rise.above(), paired_test([rise]))


def _correlation_findings(drawn: Drawn, transfer: list[Records]) -> None:
    for key in _CORRELATED:
        layers = [mean_over(_third(transfer, key, n, late=True)) for n in range(len(_LAYERS))]
        claim = f"the correlation of {key} between epochs is largest in the first layer"
        ours = ", ".join(mean.text() for mean in layers)
        holds = all(layers[0].low > mean.high for mean in layers[1:])
        test, note = "mean − deviation above mean + deviation of the others", "layers from first to last, last third of the epochs"
        drawn.finding(claim, "largest in the first", ours, len(transfer), holds, test, note)
    for key in _CORRELATED:
        early, late = (_third(transfer, key, 0, part) for part in (False, True))
        claim = f"the correlation of {key} increases across epochs (first layer)"
        ours = f"{mean_over(early).text()} in the first third of the epochs, {mean_over(late).text()} in the last"
        rise = _rise(early, late)
        drawn.finding(claim, "increases", ours, len(transfer), rise.above(), paired_test([rise]))


FIG4 = Figure(
    "fig4", "Transfer on class-shuffled MNIST", "Figure 4",
    "When labels are shuffled after every epoch, accuracy recovers after every shuffle and rises across shuffles; "
    "correlations of weights and activities between epochs increase and are largest in the first layer.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: f"the bundled digits, {_EPOCHS[Scale.QUICK]} epochs, one seed",
        Scale.FITTED: f"the paper's settings, {_EPOCHS[Scale.FITTED]} epochs of 60,000 steps",
        Scale.FULL: f"the paper's settings, {_EPOCHS[Scale.FULL]} epochs of 60,000 steps (the paper's own number is not printed)",
    },
    costs={Scale.QUICK: "1 s", Scale.FITTED: "5 min", Scale.FULL: "15 min"}, seeds=5,
)  # fmt: skip
