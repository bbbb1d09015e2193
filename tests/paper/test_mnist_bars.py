"""The table of MNIST rows on the digits data set: what it says, and that finished runs are not repeated."""

import json

import pytest

from wirebound.engine.modules import DivergedError
from wirebound_lab.paper import mnist_bars
from wirebound_lab.paper.mnist_bars import CHOICES, ROWS, Row

SMALL = {"data": "digits", "hidden": [20], "epochs": 1, "connectivity": 0.1, "lr": 0.5}


def test_the_command(tmp_path, monkeypatch, capsys):
    rows = (Row("one", SMALL, "a bar", seeds=(0, 1)), Row("dense", {**SMALL, "method": "dense"}, "another"))
    monkeypatch.setattr(mnist_bars, "ROWS", rows)
    arguments = ["run", "--out", str(tmp_path), "--only", "one"]
    assert mnist_bars.main(arguments) == 0
    (line,) = json.loads((tmp_path / "table.json").read_text())
    assert (line["name"], line["seeds"], line["evaluated_on"]) == ("one", [0, 1], "test")
    assert line["connections"] == round(0.1 * (64 * 20 + 20 * 10))
    assert line["mean"] == pytest.approx(sum(line["accuracy_percent"]) / 2, abs=0.01)
    assert f"| one | {line['connections']} | {line['mean']:.2f} ± " in (tmp_path / "table.md").read_text()
    capsys.readouterr()
    assert mnist_bars.main(arguments) == 0
    assert "2 runs, 2 of them finished before" in capsys.readouterr().out


def test_a_row_that_diverges_is_an_error(tmp_path):
    with pytest.raises(DivergedError, match="wild-s0"):
        mnist_bars.run_rows([Row("wild", {**SMALL, "lr": 1e30}, "none", seeds=(0,))], tmp_path, 0)


def test_every_row_has_right_settings_and_a_name_of_its_own():
    for rows in (ROWS, CHOICES):
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert row.config(row.seeds[0]).data == "mnist"
