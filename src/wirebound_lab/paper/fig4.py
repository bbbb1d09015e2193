"""Figure 4: transfer on class-shuffled MNIST. The labels change after every epoch, the images do not."""

from __future__ import annotations

from typing import Any

from wirebound_lab.paper.charts import axis, finding, lines, series
from wirebound_lab.paper.curves import Mean, curve_over_seeds, mean_of
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job
from wirebound_lab.run.config import make_config
from wirebound_lab.tasks.shuffled_run import ShuffledJob

_EPOCHS = {Scale.QUICK: 6, Scale.FITTED: 12, Scale.FULL: 40}
_SETTINGS: dict[str, Any] = {
    "method": "deep-r",
    "hidden": [400, 400],
    "bias": False,
    "lr": 0.05,
    "batch_size": 1,
    "l1": 1e-5,
    "noise": 1e-5,  # T = ηα²/2 is g = α
}
# Connections of each layer at the start: connectivity 0.01, 0.01, 0.1. The digits' 64 inputs need more.
_COUNTS = {"mnist": (3136, 1600, 400), "digits": (2560, 3200, 400)}
_LAYERS = ("first hidden layer", "second hidden layer", "output layer")


class ClassShuffled(Part):
    """Accuracy within and across epochs, and correlations between epochs, per layer."""

    def runs(self, scale: Scale, seeds: int) -> list[ShuffledJob]:
        data = "digits" if scale is Scale.QUICK else "mnist"
        counts = _COUNTS[data]
        own = {"data": data, "epochs": _EPOCHS[scale], "budget": sum(counts), "allocation": ",".join(map(str, counts))}
        return [
            ShuffledJob(f"{data}-shuffled/deep-r-e{_EPOCHS[scale]}-s{s}", make_config(_SETTINGS, own, {"seed": s}))
            for s in range(seeds)
        ]

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return list(self.runs(scale, seeds))

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        jobs = done.ended(self.runs(scale, seeds))
        recovery = [done.metrics(job, "recovery") for job in jobs]
        transfer = [done.metrics(job, "transfer") for job in jobs]
        per_epoch = recovery[0][-1]["step"] / _EPOCHS[scale] if recovery else 1
        within = curve_over_seeds([_within(records, per_epoch) for records in recovery])
        ends = curve_over_seeds([_ends(records) for records in recovery])
        charts = [
            lines(
                "accuracy", "Test accuracy over epochs; the labels change at every whole number", axis("epoch"),
                axis("test accuracy", percent=True), [series("deep-r", within, name="within epochs")],
            ),
            lines(
                "ends", "Test accuracy at the end of each epoch", axis("epoch"),
                axis("test accuracy", percent=True), [series("deep-r", ends)],
            ),
            *(
                lines(key, f"Correlation of {words} with those one epoch before", axis("epoch"), axis("correlation"), _layers(transfer, key))
                for key, words in (("weights", "weights"), ("activities", "activities"))
            ),
        ]  # fmt: skip
        settings = {
            "network": "784-400-400-10, no biases, ReLU",
            "optimiser": "SGD, η 0.05, batch 1",
            "DEEP R": "α 1e-5, T = ηα²/2, connectivity 0.01, 0.01, 0.1 at the start",
            "epochs": _EPOCHS[scale],
            "activities": "of 1,000 test images; softmax of the output layer",
        }
        return Drawn(settings, charts, [_table(recovery, transfer)], _findings(scale, recovery, transfer), list(jobs))


def _within(records: list[dict[str, Any]], per_epoch: float) -> list[tuple[float, float]]:
    """Both points at a shuffle, the first of them a little before it."""
    found: list[tuple[float, float]] = []
    for before, record in zip([None, *records], records, strict=False):
        x = record["step"] / per_epoch
        if before is not None and before["step"] == record["step"]:
            found[-1] = (x - 1e-6, before["test_accuracy"])
        found.append((x, record["test_accuracy"]))
    return found


def _ends(records: list[dict[str, Any]]) -> list[tuple[float, float]]:
    last = {record["epoch"]: record["test_accuracy"] for record in records}
    return [(epoch, accuracy) for epoch, accuracy in last.items()]


def _layers(transfer: list[list[dict[str, Any]]], key: str) -> list[dict[str, Any]]:
    """A curve for each layer; the first epoch compares with the start and is no transfer."""
    return [
        series(f"layer-{n + 1}", curve_over_seeds([[(r["epoch"], r[key][n]) for r in run if r["epoch"] > 1] for run in transfer]), name=name)
        for n, name in enumerate(_LAYERS)
    ]  # fmt: skip


def _third(epochs: int) -> int:
    return max(1, epochs // 3)


def _late(transfer: list[list[dict[str, Any]]], key: str, layer: int, late: bool = True) -> Mean:
    """Of a layer's correlations, the mean over the last (or the first) third of the epochs, over seeds."""
    means = []
    for run in transfer:
        values = [r[key][layer] for r in run if r["epoch"] > 1]
        part = values[-_third(len(values)) :] if late else values[: _third(len(values))]
        means.append(sum(part) / len(part))
    found = mean_of(means)
    assert found is not None
    return found


def _table(recovery: list[list[dict[str, Any]]], transfer: list[list[dict[str, Any]]]) -> dict[str, Any]:
    rows = []
    for key in ("weights", "activities"):
        for n, name in enumerate(_LAYERS):
            if transfer:
                rows.append([key, name, *(_late(transfer, key, n, late).text() for late in (False, True))])
    return {"title": "Correlation with one epoch before", "columns": ["of", "layer", "first third", "last third"], "rows": rows}


def _findings(
    scale: Scale, recovery: list[list[dict[str, Any]]], transfer: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    if not recovery:
        return []
    seeds = len(recovery)
    return [
        _recovers(scale, recovery, seeds),
        _rises(scale, recovery, seeds),
        *(_largest_first(scale, transfer, key, words, seeds) for key, words in (("weights", "weights"), ("activities", "activities"))),
        *(_increases(scale, transfer, key, words, seeds) for key, words in (("weights", "weights"), ("activities", "activities"))),
    ]


def _recovers(scale: Scale, recovery: list[list[dict[str, Any]]], seeds: int) -> dict[str, Any]:
    after, end, all_up = [], [], True
    for records in recovery:
        first = {r["epoch"]: r["test_accuracy"] for r in reversed(records)}
        last = {r["epoch"]: r["test_accuracy"] for r in records}
        after += [first[e] for e in first if e > 1]
        end += [last[e] for e in last if e > 1]
        all_up &= all(last[e] > first[e] + 0.3 for e in last if e > 1)
    a, b = sum(after) / len(after), sum(end) / len(end)
    ours = f"{100 * a:.1f} % right after a shuffle, {100 * b:.1f} % at the end of the epoch, on average"
    claim = "the accuracy recovers after every shuffle"
    return finding(scale, claim, "recovers", ours, seeds, all_up, "read as: in every epoch of every seed, it gains more than 30 %")


def _rises(scale: Scale, recovery: list[list[dict[str, Any]]], seeds: int) -> dict[str, Any]:
    gains, early, late = [], [], []
    for records in recovery:
        ends = [accuracy for _, accuracy in _ends(records)]
        third = _third(len(ends))
        early.append(sum(ends[:third]) / third)
        late.append(sum(ends[-third:]) / third)
        gains.append(late[-1] - early[-1])
    first, last = mean_of(early), mean_of(late)
    assert first is not None
    assert last is not None
    ours = f"{first.percent()} in the first third of the epochs, {last.percent()} in the last"
    return finding(scale, "the accuracy at the end of an epoch rises across shuffles", "clear trend", ours, seeds, min(gains) > 0)


def _largest_first(scale: Scale, transfer: list[list[dict[str, Any]]], key: str, words: str, seeds: int) -> dict[str, Any]:
    layers = [_late(transfer, key, n) for n in range(len(_LAYERS))]
    claim = f"the correlation of {words} between epochs is largest in the first layer"
    ours = ", ".join(mean.text() for mean in layers)
    holds = all(layers[0].low > mean.high for mean in layers[1:])
    return finding(scale, claim, "largest in the first", ours, seeds, holds, "layers from first to last, last third of the epochs")


def _increases(scale: Scale, transfer: list[list[dict[str, Any]]], key: str, words: str, seeds: int) -> dict[str, Any]:
    early, late = _late(transfer, key, 0, late=False), _late(transfer, key, 0)
    claim = f"the correlation of {words} increases across epochs (first layer)"
    ours = f"{early.text()} in the first third of the epochs, {late.text()} in the last"
    return finding(scale, claim, "increases", ours, seeds, late.value > early.value)


FIG4 = Figure(
    name="fig4",
    title="Transfer on class-shuffled MNIST",
    paper="Figure 4",
    claim="When labels are shuffled after every epoch, accuracy recovers after every shuffle and rises across shuffles; "
    "correlations of weights and activities between epochs increase and are largest in the first layer.",
    parts=(ClassShuffled(),),
    notes={
        Scale.QUICK: f"the bundled digits, {_EPOCHS[Scale.QUICK]} epochs, one seed",
        Scale.FITTED: f"the paper's settings, {_EPOCHS[Scale.FITTED]} epochs of 60,000 steps",
        Scale.FULL: f"the paper's settings, {_EPOCHS[Scale.FULL]} epochs of 60,000 steps (the paper's own number is not printed)",
    },
    costs={Scale.QUICK: "1 s", Scale.FITTED: "5 min", Scale.FULL: "15 min"},
    seeds=5,
)
