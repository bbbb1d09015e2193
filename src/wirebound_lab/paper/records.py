"""The best networks for their number of connections, beside the best published ones.

    python -m wirebound_lab.paper.records choose --out results/records/choice     settings, on held-out training data
    python -m wirebound_lab.paper.records ablate --out results/records/ablation   what each piece is worth, likewise
    python -m wirebound_lab.paper.records run --out results/records               the test set, once for each seed

Every row is the last epoch, with exactly K connections from the first step to the last. ``choose`` and ``ablate`` measure
training images that were held out (10,000 of MNIST, 5,000 of CIFAR-10); what is found best is written into the rows of
``run`` by hand, and only then is it called. ``--only NAMES`` takes some of the rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from wirebound_lab.paper.mnist_bars import Row, markdown, run_rows
from wirebound_lab.paper.study import read_json, study_parser, write_study

HELD_OUT = {"mnist": 10_000, "cifar10": 5_000}
SEEDS = range(5)
Settings = Mapping[str, Any]

LENET: Settings = {"batch_size": 50, "epochs": 200, "lr": 1.0, "deep-r.l1": 5e-5, "input_dropout": 0.1}
# Three hidden layers as wide as the input, or twice as wide, and a dense output, which is not counted.
WIDE: Settings = {**LENET, "hidden": [1568] * 3, "connectivity": 0.01, "dense_output": True}
CIFAR: Settings = {
    "data": "cifar10", "hidden": [3072] * 3, "connectivity": 0.01, "dense_output": True, "allocation": "uniform",
    "augment": "crop-flip", "optimizer": "momentum", "lr": 0.02, "sparse_lr": 10.0, "final_lr": 0.0, "batch_size": 64, "epochs": 100,
    "correlated": [16.0, 8.0, 8.0], "deep-r.l1": "auto", "turnover": 0.01,
}  # fmt: skip


def _lenet(percent: float, bar: str, **own: Any) -> Row:
    return Row(f"lenet-{percent:g}", {**LENET, "connectivity": percent / 100, **own}, bar, "thorough", SEEDS)


ROWS = (
    _lenet(1, "97.64 SNFS", lr=2.0, epochs=600, input_dropout=0.2, **{"deep-r.l1": 1e-4}),
    _lenet(2, "98.21 DEEP R as printed by others"),
    _lenet(5, "98.47 SNFS"),
    _lenet(10, "98.67 SNFS"),
    Row("wide-mnist-1", WIDE, "98.81 CHTs", "thorough", SEEDS),
    Row("wide-cifar-1", CIFAR, "69.97 CHTs", "thorough", SEEDS),
)


# What was compared on held-out images before the rows were fixed.
def _choice(base: Settings, name: str, seeds: Sequence[int] = (0,), **own: Any) -> Row:
    return Row(name, {**base, **own}, "", "thorough", seeds)


def _alpha(value: float | str) -> dict[str, Any]:
    return {"deep-r.l1": value}


CHOICES: tuple[Row, ...] = (
    _choice(CIFAR, "wide-cifar-1-as-it-is"),
)
ABLATION: tuple[Row, ...] = ()


def run(what: str, names: Sequence[str] | None, out: Any, jobs: int) -> None:
    """Train the rows of one step, and write its table."""
    rows = {"choose": CHOICES, "ablate": ABLATION, "run": ROWS}[what]
    chosen = [row for row in rows if not names or row.name in names]
    table = []
    for data, held_out in HELD_OUT.items():
        own = [row for row in chosen if row.settings.get("data", "mnist") == data]
        table += run_rows(own, out, 0 if what == "run" else held_out, jobs) if own else []
    known = {line["name"]: line for line in [*(read_json(out, "table") or []), *table]}
    table = [known[row.name] for row in rows if row.name in known]  # what was not asked for stays as it is
    write_study(out, "table", table, markdown(table))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("The best networks for their number of connections.", "choose", "ablate", "run", jobs=True)
    parser.add_argument("--only", nargs="*", help="names of rows")
    options = parser.parse_args(arguments)
    run(options.what, options.only, options.out, options.jobs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
