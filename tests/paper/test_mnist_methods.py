"""The comparison of methods: what is chosen, what the table says, and that the commands run."""

import json

import pytest

from wirebound.engine.modules import DivergedError
from wirebound.methods import METHODS
from wirebound_lab.paper import mnist_methods
from wirebound_lab.paper.mnist_methods import PUBLISHED, markdown, table_line
from wirebound_lab.run.config import ConfigError


def _choice(method, level, accuracy, connectivity, **point):
    return {"method": method, "level": level, "point": point, "accuracy": accuracy, "connectivity": connectivity}


def test_told_methods_take_the_best_of_the_nearest_level():
    choices = [
        _choice("deep-r", 0.01, 0.9, 0.01, lr=1),
        _choice("deep-r", 0.01, 0.8, 0.01, lr=2),
        _choice("deep-r", 0.05, 0.95, 0.05, lr=1),
        _choice("deep-r", 0.05, 0.96, 0.05, lr=2),
    ]
    chosen = {level: mnist_methods.best(choices, "deep-r", level)["lr"] for level in mnist_methods.LEVELS}
    assert chosen == {0.003: 1, 0.01: 1, 0.02: 1, 0.05: 2, 0.1: 2, 0.2: 2}


def test_scanned_methods_take_the_best_that_stayed_within():
    choices = [_choice("soft-deep-r", None, a, c, aim=c) for a, c in ((0.7, 0.004), (0.9, 0.02), (0.85, 0.03), (0.99, 0.3))]
    chosen = [mnist_methods.best(choices, "soft-deep-r", level) for level in (0.003, 0.01, 0.05, 0.2)]
    assert chosen == [None, {"aim": 0.004}, {"aim": 0.02}, {"aim": 0.02}]


def test_every_method_has_a_grid_of_right_settings():
    ours = {name for name, kind in METHODS.items() if kind.__module__.startswith("wirebound.")}
    assert ours <= set(mnist_methods.GRIDS)
    for method in ours:
        for level in mnist_methods.levels_of(method, mnist_methods.CHOICE_LEVELS):
            for point in mnist_methods.points(method):
                config = mnist_methods.settings(method, point, level, {"seed": 1})
                assert (config.method, config.epochs, config.seed, config.batch_size) == (method, 12, 1, 100)


def test_soft_deep_r_is_aimed_by_the_papers_rule():
    config = mnist_methods.settings("soft-deep-r", {"lr": 0.5, "l1": 1e-5, "aim": 0.01}, None, {})
    temperature = 0.5 * (1e-5 / 3) ** 2 / 2
    assert config.connectivity == 0.01
    assert config.noise == pytest.approx(1e-5 / 3)
    assert config.theta_min == pytest.approx(-temperature * 0.99 / (1e-5 * 0.01))


def _summary(accuracy, connectivity, budget=None, most=100):
    return {
        "test_accuracy": accuracy,
        "connectivity": connectivity,
        "budget": budget,
        "min_active": 100,
        "max_active": most,
        "seconds": 2.0,
        "path": "module",
        "evaluated_on": "test",
        "epochs": 10,
    }


def test_the_table_says_what_was_met_and_what_was_not_reached():
    lines = [
        table_line("deep-r", 0.01, {"lr": 1}, [_summary(0.97, 0.01, budget=100), _summary(0.98, 0.01, budget=100)]),
        table_line("soft-deep-r", 0.01, {"lr": 1}, [_summary(0.9, 0.008), _summary(0.92, 0.011)]),
        table_line("l1-shrinkage", 0.01, None, []),
        table_line("dense", 1.0, {"lr": 1}, [_summary(0.985, 1.0)]),
    ]
    text = markdown(lines)
    assert "| deep-r | 97.50 ± 0.71 |" in text
    assert "| soft-deep-r | 91.00 ± 1.41 (at 1.1 %) |" in text
    assert "| l1-shrinkage | not reached |" in text
    assert "Dense: 98.50 ± 0.00 %" in text
    assert "Above their column in some seed: soft-deep-r at 1 %: up to 1.1 %" in text
    assert "Budgets were kept in every step" in text
    for name, figures in PUBLISHED.items():
        assert f"| {name} | {figures[0.01]:.2f} |" in text
    broken = table_line("deep-r", 0.01, {}, [_summary(0.97, 0.01, budget=100, most=101)])
    assert "BUDGETS WERE NOT KEPT" in markdown([broken])


def test_the_commands(tmp_path, monkeypatch, capsys):
    """On digits: choose, run, and once more without repeating anything."""
    grids = {
        "fixed": {"lr": (0.3, 0.5)},
        "pruning": {"lr": (0.1,)},
        "soft-deep-r": {"lr": (0.5,), "l1": (1e-4,), "aim": (0.001,)},
        "l1-shrinkage": {"lr": (0.1,), "l1": (1e-4,)},
        "dense": {"lr": (0.1,)},
    }
    monkeypatch.setattr(mnist_methods, "GRIDS", grids)
    monkeypatch.setattr(mnist_methods, "CHOICE_LEVELS", (0.02,))
    monkeypatch.setitem(mnist_methods.COMMON, "hidden", [20])
    where = ["--out", str(tmp_path), "--data", "digits", "--epochs", "1"]
    with pytest.raises(ConfigError, match="run choose first"):
        mnist_methods.main(["run", *where])
    assert mnist_methods.main(["choose", *where, "--held-out", "300"]) == 0
    test = ["run", *where, "--levels", "0.02", "0.1", "--seeds", "0", "1"]
    assert mnist_methods.main(test) == 0
    lines = json.loads((tmp_path / "table.json").read_text())
    cells = {(line["method"], line["level"]): line for line in lines}
    assert set(cells) == {(m, x) for m in grids if m != "dense" for x in (0.02, 0.1)} | {("dense", 1.0)}
    assert [cells["fixed", 0.1]["runs"], cells["pruning", 0.02]["runs"], cells["l1-shrinkage", 0.1]["runs"]] == [2, 2, 0]
    assert cells["fixed", 0.02]["evaluated_on"] == "test"
    assert cells["pruning", 0.1]["connectivity"] == [pytest.approx(0.1, rel=0.01)] * 2
    assert cells["dense", 1.0]["settings"] == {"lr": 0.1}
    capsys.readouterr()
    assert mnist_methods.main(test) == 0
    printed = capsys.readouterr().out
    runs = printed.split(" runs, ")[0]
    assert f"{runs} runs, {runs} of them finished before" in printed


def test_a_point_that_diverges_is_not_chosen(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mnist_methods, "GRIDS", {"dense": {"lr": (0.1, 1e30)}})
    base = {"data": "digits", "epochs": 1, "validation": 300, "hidden": [20]}
    found = mnist_methods.choose(["dense"], tmp_path, 1, base)
    assert [choice["point"] for choice in found] == [{"lr": 0.1}]
    assert "not to be chosen: dense-lr=1e+30-s0" in capsys.readouterr().out
    wrong = [{**found[0], "point": {"lr": 1e30}}]
    with pytest.raises(DivergedError):
        mnist_methods.run(["dense"], (0.1,), (0,), wrong, tmp_path, 1, {"data": "digits", "epochs": 1, "hidden": [20]})
