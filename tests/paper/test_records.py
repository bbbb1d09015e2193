"""The study of records: its rows are settings that exist, and its commands write tables."""

import json

import pytest

from wirebound_lab.paper import records
from wirebound_lab.paper.mnist_bars import Row
from wirebound_lab.paper.records import ABLATION, CHOICES, ROWS
from wirebound_lab.run.config import PRESETS, make_config

SMALL = {"data": "digits", "hidden": [20], "epochs": 1, "connectivity": 0.2, "lr": 0.5}


@pytest.mark.parametrize("rows", [ROWS, CHOICES, ABLATION])
def test_every_row_has_right_settings_and_a_name_of_its_own(rows):
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.config(row.seeds[0]).data in records.HELD_OUT


def test_records_have_five_seeds():
    assert all(len(row.seeds) == 5 for row in ROWS)


def test_the_preset_for_images_is_what_was_run():
    (row,) = (row for row in ROWS if row.name == "wide-cifar-1")
    assert make_config(PRESETS["images"], {"connectivity": 0.01}) == row.config(0)


def test_a_table_with_teachers(tmp_path, monkeypatch):
    teachers = ["{out}/runs/base-s0"]
    rows = (Row("base", SMALL, "", seeds=(0,)), Row("student", {**SMALL, "teachers": teachers}, "", seeds=(0,)))
    monkeypatch.setattr(records, "ABLATION", rows)
    monkeypatch.setattr(records, "HELD_OUT", {"digits": 200})
    assert records.main(["ablate", "--out", str(tmp_path), "--only", "base"]) == 0
    assert records.main(["ablate", "--out", str(tmp_path), "--only", "student"]) == 0
    base, student = json.loads((tmp_path / "table.json").read_text())
    assert (base["name"], student["name"], student["evaluated_on"]) == ("base", "student", "validation")
    assert student["settings"]["teachers"] == [f"{tmp_path}/runs/base-s0"]
    assert "| student |" in (tmp_path / "table.md").read_text()
