"""The best networks for their number of connections, beside the best published ones.

    python -m wirebound_lab.paper.records choose --out results/records/choice     settings, on held-out training data
    python -m wirebound_lab.paper.records ablate --out results/records/ablation   what each piece is worth, likewise
    python -m wirebound_lab.paper.records run --out results/records               the test set, once for each seed

Every row is the last epoch, with exactly K connections from the first step to the last. ``choose`` and ``ablate`` measure
training images that were held out (10,000 of MNIST, 5,000 of CIFAR-10); what is found best is written into the rows of
``run`` by hand, and only then is it called. ``--only NAMES`` takes some of the rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from wirebound_lab.paper.mnist_bars import Row, markdown, run_rows
from wirebound_lab.paper.study import read_json, study_parser, write_study
from wirebound_lab.run.config import PRESETS

HELD_OUT = {"mnist": 10_000, "cifar10": 5_000}
SEEDS = range(5)
Settings = dict[str, Any]

LENET: Settings = dict(PRESETS["best"])
# Three hidden layers as wide as the input, or twice as wide, and a dense output, which is not counted.
WIDE: Settings = {
    **LENET, "hidden": [1568] * 3, "connectivity": 0.01, "dense_output": True, "lr": 0.5, "input_dropout": 0.2, "dropout": 0.1,
    "epochs": 100,
}  # fmt: skip
_CIFAR_PLAIN: Settings = {
    "data": "cifar10", "hidden": [3072] * 3, "connectivity": 0.01, "dense_output": True, "allocation": "uniform",
    "augment": "crop-flip", "optimizer": "momentum", "lr": 0.02, "sparse_lr": 10.0, "final_lr": 0.0, "batch_size": 64, "epochs": 40,
    "correlated": [16.0, 8.0, 8.0], "deep-r.l1": "auto", "turnover": 0.01, "input_dropout": 0.0,
    "mean_gradient": 0.1, "shift": 2,
}  # fmt: skip
CIFAR: Settings = {**_CIFAR_PLAIN, "mixup": 0.2, "births": "paths", "rewire_every": 20, "epochs": 60}
# MNIST with images moved by up to a pixel: rows of their own, for the sources of the published figures name no such thing.
_MOVED: dict[str, Settings] = {
    "lenet-10": {**LENET, "connectivity": 0.1, "augment": "crop", "shift": 1, "lr": 0.5, "epochs": 60},
    "wide-mnist-1": {**WIDE, "augment": "crop", "shift": 1, "lr": 1.0, "dropout": 0.0, "input_dropout": 0.1, "epochs": 40},
}


def _lenet(percent: float, bar: str, **own: Any) -> Row:
    return Row(f"lenet-{percent:g}", {**LENET, "connectivity": percent / 100, **own}, bar, "best", SEEDS)


ROWS = (
    _lenet(1, "97.64 SNFS", lr=2.0, epochs=1000, **{"deep-r.l1": 1e-4}),
    _lenet(2, "98.21 DEEP R as printed by others"),
    _lenet(5, "98.47 SNFS"),
    _lenet(10, "98.67 SNFS", input_dropout=0.2),
    Row("wide-mnist-1", WIDE, "98.81 CHTs", "best", SEEDS),
    Row("wide-cifar-1", CIFAR, "69.97 CHTs", "best", SEEDS),
    Row("lenet-10-moved", _MOVED["lenet-10"], "98.67 SNFS, no moving named", "best", SEEDS),
    Row("wide-mnist-1-moved", _MOVED["wide-mnist-1"], "98.81 CHTs, no moving named", "best", SEEDS),
)


def _tried(base: Settings, name: str, seeds: Sequence[int] = (0,), alpha: float | str | None = None, **own: Any) -> Row:
    chosen = {} if alpha is None else {"deep-r.l1": alpha}
    return Row(name, {**base, **own, **chosen}, "", "best", seeds)


# What was compared on held-out images before the rows were fixed.
_at = {percent: {**LENET, "connectivity": percent / 100} for percent in (1, 2, 5, 10)}
_one = partial(_tried, {**_at[1], "lr": 2.0, "deep-r.l1": 1e-4})
_CIFAR_TRIED: dict[str, Settings] = {
    "": {}, "-shift-4": {"shift": 4}, "-shift-1": {"shift": 1}, "-not-centred": {"mean_gradient": 1.0},
    "-inputs-0.1": {"input_dropout": 0.1}, "-units-0.1": {"dropout": 0.1}, "-fixed": {"method": "fixed"},
}  # fmt: skip
_MIXED_TRIED: dict[str, Settings] = {
    "": {}, "-fixed": {"method": "fixed"}, "-turnover-0.003": {"turnover": 0.003}, "-paths": {"births": "paths", "rewire_every": 20},
    "-paths-not-mixed": {"births": "paths", "rewire_every": 20, "mixup": 0.0},
}  # fmt: skip
_MOVED_TRIED: dict[str, dict[str, Settings]] = {
    "lenet-10": {"": {}, "-no-dropout": {"input_dropout": 0.0}},
    "wide-mnist-1": {"": {}, "-no-dropout": {"input_dropout": 0.0}},
}
CHOICES: tuple[Row, ...] = (
    _one("lenet-1-no-dropout", (0, 1, 2, 3, 4, 5, 6), input_dropout=0.0),
    _one("lenet-1-no-dropout-600-epochs", (0, 1), input_dropout=0.0, epochs=600),
    _one("lenet-1-no-dropout-600-epochs-alpha-5e-5", (0, 1), input_dropout=0.0, epochs=600, alpha=5e-5),
    _one("lenet-1-no-dropout-600-epochs-auto", input_dropout=0.0, epochs=600, alpha="auto"),
    _one("lenet-1-no-dropout-600-epochs-batch-100", input_dropout=0.0, epochs=600, batch_size=100),
    _one("lenet-1-inputs-0.05", input_dropout=0.05), _one("lenet-1-inputs-0.05-alpha-2e-4", input_dropout=0.05, alpha=2e-4),
    _one("lenet-1-inputs-0.1"), _one("lenet-1-inputs-0.1-alpha-2e-4", alpha=2e-4), _one("lenet-1-inputs-0.2", input_dropout=0.2),
    _one("lenet-1-inputs-0.1-units-0.1", dropout=0.1), _one("lenet-1-inputs-0.1-smoothing-0.1", label_smoothing=0.1),
    _one("lenet-1-inputs-0.2-600-epochs", input_dropout=0.2, epochs=600),
    _one("lenet-1-inputs-0.1-1000-epochs", (0, 1), epochs=1000),
    _one("lenet-1-inputs-0.2-1000-epochs", (0, 1), input_dropout=0.2, epochs=1000),
    _one("lenet-1-inputs-0.3-1000-epochs", (0, 1), input_dropout=0.3, epochs=1000),
    _tried(_at[2], "lenet-2-as-it-is"), _tried(_at[2], "lenet-2-alpha-1e-4", alpha=1e-4),
    _tried(_at[2], "lenet-2-lr-2-alpha-1e-4", lr=2.0, alpha=1e-4), _tried(_at[2], "lenet-2-500-epochs", (0, 1), epochs=500),
    _tried(_at[2], "lenet-2-inputs-0.2-500-epochs", epochs=500, input_dropout=0.2),
    _tried(_at[5], "lenet-5-as-it-is"), _tried(_at[5], "lenet-5-inputs-0.2", input_dropout=0.2),
    _tried(_at[5], "lenet-5-units-0.1", dropout=0.1), _tried(_at[5], "lenet-5-smoothing-0.1", label_smoothing=0.1),
    _tried(_at[10], "lenet-10-as-it-is"), _tried(_at[10], "lenet-10-alpha-2e-5", alpha=2e-5),
    _tried(_at[10], "lenet-10-lr-0.5-alpha-2e-5", lr=0.5, alpha=2e-5),
    _tried(_at[10], "lenet-10-inputs-0.2", input_dropout=0.2),
    _tried(_at[10], "lenet-10-inputs-0.2-units-0.1", input_dropout=0.2, dropout=0.1),
    _tried(WIDE, "wide-mnist-1-as-it-is"), _tried(WIDE, "wide-mnist-1-lr-1-no-units", lr=1.0, dropout=0.0),
    _tried(_CIFAR_PLAIN, "wide-cifar-1-as-it-is", mean_gradient=1.0, shift=4, epochs=100),
    *(_tried({**_CIFAR_PLAIN, "epochs": 20}, f"wide-cifar-1-20-epochs{name}", **own) for name, own in _CIFAR_TRIED.items()),
    *(_tried({**_CIFAR_PLAIN, "mixup": 0.2, "epochs": 60}, f"wide-cifar-1-mixed{name}", **own) for name, own in _MIXED_TRIED.items()),
    *(_tried(_MOVED[name], f"{name}-moved{words}", **own) for name, tried in _MOVED_TRIED.items() for words, own in tried.items()),
)

# What each piece is worth: on LeNet-300-100 at 2 % in 30 epochs, and on the wide perceptron for CIFAR-10 in 4. Rows are
# held against the first of their group, of which each differs by what its name says.
_three = (0, 1, 2)
_lenet_piece = partial(_tried, {**_at[2], "epochs": 30, "input_dropout": 0.0}, seeds=_three)
_cifar_piece = partial(_tried, {**_CIFAR_PLAIN, "epochs": 4}, seeds=(0,))
ABLATION: tuple[Row, ...] = (
    _lenet_piece("lenet-2"), _lenet_piece("lenet-2-fixed", method="fixed"), _lenet_piece("lenet-2-inputs-0.1", input_dropout=0.1),
    _lenet_piece("lenet-2-units-0.1", dropout=0.1), _lenet_piece("lenet-2-smoothing-0.1", label_smoothing=0.1),
    _lenet_piece("lenet-2-teachers", teachers=[f"{{out}}/runs/lenet-2-s{seed}" for seed in _three], teacher_temperature=2.0),
    _lenet_piece("lenet-2-noise-1e-3", noise=1e-3), _lenet_piece("lenet-2-noise-1e-2", noise=1e-2),
    _lenet_piece("lenet-2-momentum", optimizer="momentum", lr=0.1), _lenet_piece("lenet-2-correlated", correlated=[4.0]),
    _lenet_piece("lenet-2-centred", seeds=(0,), mean_gradient=0.1), _lenet_piece("lenet-2-alpha-auto", alpha="auto"),
    _lenet_piece("lenet-2-births-by-gradient", seeds=(0,), births="gradient"),
    _lenet_piece("lenet-2-births-by-gradient-auto", seeds=(0,), births="gradient", alpha="auto"),
    _lenet_piece("lenet-2-births-along-paths", seeds=(0,), births="paths", rewire_every=10),
    _lenet_piece("lenet-2-mixed", seeds=(0,), mixup=0.2), _lenet_piece("lenet-2-average", seeds=(0,), average=0.999),
    *(_lenet_piece(f"lenet-2-{method}", seeds=(0,), method=method) for method in ("set", "rigl", "gse", "cht")),
    _lenet_piece("lenet-2-cht-hard-removal", seeds=(0,), method="cht", removal_temperature=0.0),
    _cifar_piece("cifar"), _cifar_piece("cifar-uniform-start", correlated=[]),
    _cifar_piece("cifar-correlated-first-layer", correlated=[16.0]), _cifar_piece("cifar-fixed", method="fixed"),
    _cifar_piece("cifar-turnover-0.07", turnover=0.07), _cifar_piece("cifar-one-lr", lr=0.1, sparse_lr=1.0),
    _cifar_piece("cifar-inputs-0.1", input_dropout=0.1), _cifar_piece("cifar-births-by-gradient", births="gradient", rewire_every=10),
    _cifar_piece("cifar-not-centred", mean_gradient=1.0), _cifar_piece("cifar-shift-4", shift=4),
    _cifar_piece("cifar-births-along-paths", births="paths", rewire_every=20), _cifar_piece("cifar-mixed", mixup=0.2),
    _cifar_piece("cifar-average", average=0.999), _cifar_piece("cifar-gse", method="gse"), _cifar_piece("cifar-cht", method="cht"),
)  # fmt: skip


def _placed(row: Row, out: Path) -> Row:
    """The row, with its teachers among the runs of this table."""
    teachers = [name.format(out=out) for name in row.settings.get("teachers", [])]
    return replace(row, settings={**row.settings, **({"teachers": teachers} if teachers else {})})


def run(what: str, names: Sequence[str] | None, out: Path, jobs: int) -> None:
    """Train the rows of one step, and write its table."""
    rows = {"choose": CHOICES, "ablate": ABLATION, "run": ROWS}[what]
    chosen = [_placed(row, out) for row in rows if not names or row.name in names]
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
