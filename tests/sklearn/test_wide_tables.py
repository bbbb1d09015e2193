"""The experiment on wide tables, made small: tables are what they say, and every method is judged."""

import json

import numpy as np
import pytest
import wide_tables


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(wide_tables, "COLUMNS", 90)
    monkeypatch.setattr(wide_tables, "TEST_ROWS", 200)


@pytest.mark.parametrize("name", list(wide_tables.TABLES))
def test_tables(name):
    table = wide_tables.make_table(name, 0)
    assert table.train_x.shape[1] == table.test_x.shape[1] == 90
    assert len(table.train_x) <= 300
    assert set(table.train_y) == set(table.test_y)
    again, other = (wide_tables.make_table(name, seed) for seed in (0, 1))
    np.testing.assert_array_equal(again.train_x, table.train_x)
    assert again.informative == table.informative != other.informative
    perfect = np.zeros(90)
    perfect[list(table.informative)] = 1
    precision, accuracy = wide_tables.judge(table, perfect)
    assert precision == 1
    assert accuracy > 0.8
    assert wide_tables.judge(table, -perfect)[0] < 1


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(wide_tables, "GRID", {"l1": [0.3, 0.7]})
    methods = ["DeepRClassifier", "SelectKBest, F test"]
    arguments = ["--out", str(tmp_path), "--tables", "linear", "--seeds", "0", "--methods", *methods]
    assert wide_tables.main(arguments) == 0
    lines = json.loads((tmp_path / "tables.json").read_text())
    assert [line["method"] for line in lines] == methods
    assert min(line["precision"][0] for line in lines) >= 0.5  # of 90 columns 10 matter
    assert lines[0]["own"][0] > 0.7
    assert "k = 10" in (tmp_path / "tables.md").read_text()
