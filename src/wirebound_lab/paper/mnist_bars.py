"""MNIST with a few thousand connections: the paper's two figures, our own recipe, and the comparators.

    python -m wirebound_lab.paper.mnist_bars choose --out results/mnist/choice     settings, on held-out training data
    python -m wirebound_lab.paper.mnist_bars run --out results/mnist/test          the test set, once for each seed

Every row is the last epoch of 784-300-100-10. ``choose`` compares settings on 10,000 held-out training examples;
what it finds best is written into the rows and presets here by hand, and only then is ``run`` called.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wirebound_lab.paper.study import accuracy_line, read_json, run_configs, study_parser, write_study
from wirebound_lab.run import RunConfig
from wirebound_lab.run.config import PRESETS, make_config
from wirebound_lab.tables import markdown_table, plus_minus

HELD_OUT = 10_000


@dataclass(frozen=True)
class Row:
    """One line of the table: settings, and the figure that it is held against."""

    name: str
    settings: dict[str, Any]
    bar: str
    preset: str = "paper"
    seeds: Sequence[int] = (0, 1, 2)

    def config(self, seed: int, **more: Any) -> RunConfig:
        return make_config(PRESETS[self.preset], self.settings, {"seed": seed, **more})


_LITERAL = "paper: 96.2 %; Algorithm 1 read literally"
_SHORT = {"connectivity": 0.013, "epochs": 10}
ROWS = (
    Row("paper-1.3", _SHORT, "paper: 96.2 %", "paper", range(10)),
    Row("paper-1.3-uniform", {**_SHORT, "newborns": "uniform"}, _LITERAL, "paper", range(10)),
    Row("paper-1.0", {"connectivity": 0.01, "epochs": 20}, "paper: 96.3 %", "paper", range(5)),
    Row("paper-1.0-layer", {"connectivity": 0.01, "epochs": 20, "scope": "layer"}, "paper: 96.3 %"),
    Row("paper-1.0-uniform", {"connectivity": 0.01, "epochs": 20, "newborns": "uniform"}, "paper: 96.3 %"),
    Row("recommended-0.3", {"connectivity": 0.003}, "", "recommended"),
    Row("recommended-1.0", {"connectivity": 0.01}, "97.3 %; published record 97.64 %", "recommended", range(5)),
    Row("recommended-5.0", {"connectivity": 0.05}, "published 98.47 %", "recommended"),
    Row("recommended-20", {"connectivity": 0.2}, "dense 98.3 %", "recommended"),
    Row("thorough-1.0", {"connectivity": 0.01}, "published record 97.64 %", "thorough", range(5)),
    Row("thorough-2.0", {"connectivity": 0.02}, "published 98.01 %, 98.21 %", "thorough"),
    Row("thorough-5.0", {"connectivity": 0.05, "lr": 1.0, "l1": 5e-5}, "published 98.47 %", "thorough"),
    Row("fixed-1.0", {"connectivity": 0.01, "epochs": 20, "method": "fixed"}, "about 81 %"),
    Row("dense", {"epochs": 20, "method": "dense"}, "98.3 %"),
)


# What was compared on held-out training data before the rows were fixed
def _choice(kind: str, connectivity: float, seeds: tuple[int, ...], name: str, **settings: Any) -> Row:
    percent = f"{100 * connectivity:g}"
    prefix, bar = {
        "paper": ("paper", "scope of the paper's run"),
        "recommended": (f"recommended-{percent}", f"the recommended preset at {percent} %"),
        "thorough": (f"thorough-{percent}", f"the thorough preset at {percent} %"),
    }[kind]
    own = {"connectivity": connectivity, **({"epochs": 20} if kind == "paper" else {}), **settings}
    return Row(f"{prefix}-{name}", own, bar, kind, seeds)


_paper, _ours = partial(_choice, "paper", 0.01, (0, 1)), partial(_choice, "recommended", 0.01, (0, 1))
_ours_03, _ours_5, _ours_20 = (partial(_choice, "recommended", level, (0,)) for level in (0.003, 0.05, 0.2))
_long, _long_1 = partial(_choice, "thorough", 0.01), partial(_choice, "thorough", 0.01, (1,))
_long_2, _long_5 = partial(_choice, "thorough", 0.02, (0,)), partial(_choice, "thorough", 0.05, (0,))
CHOICES = (
    _paper("global-share"), _paper("global-uniform", newborns="uniform"), _paper("layer", scope="layer"),
    *itertools.chain.from_iterable(
        (at("as-it-is"), at("lr-0.06", lr=0.06), at("lr-0.2", lr=0.2), at("l1-1e-4", l1=1e-4),
         at("before", lr=1.4, dense_lr=False, l1=1e-4))
        for at in (_ours, _ours_03, _ours_5, _ours_20)
    ),
    *itertools.chain.from_iterable(
        (at("hidden-50", hidden=[50]), at("hidden-1000", hidden=[1000]), at("hidden-300-300-100", hidden=[300, 300, 100]),
         at("hidden-5-times-200", hidden=[200] * 5), at("hidden-5-times-200-lr-0.24", hidden=[200] * 5, lr=0.24))
        for at in (_ours, _ours_03, _ours_5, _ours_20)
    ),
    _ours("turnover-0.035", turnover=0.035), _ours("turnover-0.14", turnover=0.14),
    _ours("exponential", schedule="exponential", final_lr=0.01), _ours("allocation-paper", allocation="paper"),
    _ours("layer", scope="layer"), _ours("newborns-uniform", newborns="uniform"), _ours("no-bias", bias=False),
    _long((0, 1, 2), "as-it-is"), _long((0,), "batch-20", lr=1.4, batch_size=20), _long_1("batch-100", batch_size=100),
    _long_1("batch-100-lr-3", batch_size=100, lr=3.0), _long_1("lr-1.4", lr=1.4), _long_1("l1-7e-5", l1=7e-5),
    _long_1("allocation-paper", allocation="paper"), _long_1("300-epochs", epochs=300),
    _long((0, 1, 2), "lr-1", lr=1.0), _long((0, 1, 2), "lr-1-l1-7e-5", lr=1.0, l1=7e-5),
    _long_2("as-it-is"), _long_2("lr-1", lr=1.0), _long_2("lr-1-l1-5e-5", lr=1.0, l1=5e-5), _long_2("l1-5e-5", l1=5e-5),
    _long_5("as-it-is"), _long_5("l1-5e-5", l1=5e-5), _long_5("lr-1-l1-5e-5", lr=1.0, l1=5e-5),
    _long_5("lr-1-l1-2e-5", lr=1.0, l1=2e-5), _long_5("lr-0.5-l1-5e-5", lr=0.5, l1=5e-5),
    _ours("adam", optimizer="adam", lr=0.003, batch_size=32),
)  # fmt: skip


def run_rows(rows: Sequence[Row], out: Path, held_out: int, workers: int = 1) -> list[dict[str, Any]]:
    """Train every row with every seed; one line of the table for each row."""
    configs = {f"{row.name}-s{seed}": row.config(seed, validation=held_out) for row in rows for seed in row.seeds}
    done = run_configs(configs, out / "runs", workers)
    done.check_all()
    table = []
    for row in rows:
        summaries = [done.summaries[f"{row.name}-s{seed}"] for seed in row.seeds]
        line = accuracy_line(summaries)
        if not line.pop("budget_kept"):
            raise RuntimeError(f"{row.name}: the budget was not kept")
        about = {"seeds": list(row.seeds), "connections": summaries[0]["max_active"]}
        settings = row.config(row.seeds[0]).as_dict()
        table.append({"name": row.name, "bar": row.bar, **line, **about, "settings": settings})
        print(f"{row.name:<24} {plus_minus(line['mean'], line['spread']):>13} %  ({row.bar})", flush=True)
    return table


def markdown(table: Sequence[dict[str, Any]]) -> str:
    columns = ("run", "connections", "accuracy, last epoch", "seeds", "to compare", "seconds each", "of CPU")
    rows = []
    for line in table:
        each = ", ".join(f"{a:.2f}" for a in line["accuracy_percent"])
        accuracy, count = f"{plus_minus(line['mean'], line['spread'])} % ({each})", len(line["seeds"])
        rows.append([line["name"], f"{line['connections']:,}", accuracy, count, line["bar"], line["seconds_each"], line.get("cpu_seconds_each") or ""])
    head = f"Accuracy on the {table[0]['evaluated_on']} part, mean ± standard deviation over seeds."
    return f"{head}\n\n{markdown_table(columns, rows)}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = study_parser("MNIST with a few thousand connections.", "choose", "run", jobs=True)
    parser.add_argument("--only", nargs="*", help="names of rows")
    options = parser.parse_args(arguments)
    rows, held_out = (CHOICES, HELD_OUT) if options.what == "choose" else (ROWS, 0)
    chosen = [row for row in rows if not options.only or row.name in options.only]
    table = run_rows(chosen, options.out, held_out, options.jobs)
    known = {line["name"]: line for line in [*(read_json(options.out, "table") or []), *table]}
    table = [known[row.name] for row in rows if row.name in known]  # what was not asked for stays as it is
    write_study(options.out, "table", table, markdown(table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
