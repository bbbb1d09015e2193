"""A method of one's own: defined here, registered by one call, and known to the command, its help, a sweep and a report."""

import json
import sys
from pathlib import Path

import pytest

import wirebound as wb
from wirebound.methods import METHODS, Setting, register
from wirebound_lab.cli import main

sys.path.append(str(Path(__file__).resolve().parent))  # for the processes that import this file by name


class Patient(wb.DeepR):
    """DEEP R that rewires only after some steps."""

    name = "patient"
    title = "Patient DEEP R"
    settings = (*wb.DeepR.settings, Setting("patience", "int", 5, "steps before the first rewiring", least=0))

    def __init__(self, model, optimizer, *, patience=5, **settings):
        super().__init__(model, optimizer, **settings)
        self.patience = patience

    def take_step(self):
        self.rewire_every = 1 if self.steps >= self.patience else 1 << 40
        return super().take_step()


if "patient" not in METHODS:  # as test module and as the module that --import names, this file is imported twice
    register(Patient)

SHORT = ["--method", "patient", "--data", "digits", "--connectivity", "0.1", "--epochs", "1"]


def _newborns(folder):
    windows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(w["step_to"], sum(w["newborns"])) for w in windows if w["kind"] == "window"]


@pytest.fixture
def trained(tmp_path):
    arguments = [*SHORT, "--patience", "40", "--l1", "0.01", "--lr", "0.5", "--import", "test_own_method", "--quiet"]
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_it_is_trained_with_its_own_setting(trained):
    config = json.loads((trained / "config.json").read_text())
    assert (config["patience"], config["imports"]) == (40, ["test_own_method"])
    born = _newborns(trained)
    assert all(count == 0 for step, count in born if step <= 40)
    assert any(count > 0 for step, count in born if step > 40)
    assert main(["train", "--resume", "--out", str(trained), "--quiet"]) == 0


def test_it_is_in_the_help_and_wrong_values_are_refused(capsys, tmp_path):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    assert "method patient (Patient DEEP R)" in said
    assert "steps before the first rewiring (default: 5)" in said
    assert main(["train", *SHORT, "--patience", "-3", "--out", str(tmp_path / "x")]) == 2
    assert "patience (=-3) must be a finite number >= 0" in capsys.readouterr().err
    assert main(["train", *SHORT, "--import", "no_such_module", "--out", str(tmp_path / "x")]) == 2
    assert "import (=no_such_module) cannot be imported" in capsys.readouterr().err


def test_a_sweep_searches_over_its_setting(tmp_path):
    pytest.importorskip("optuna")
    arguments = [*SHORT, "--range", "patience=0:30", "--validation", "200", "--trials", "2", "--import", "test_own_method"]
    assert main(["sweep", *arguments, "--jobs", "2", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    found = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [trial["state"] for trial in found["trials"]] == ["finished"] * 2
    assert all(0 <= trial["settings"]["patience"] <= 30 for trial in found["trials"])


def test_a_report_has_its_title(trained, tmp_path):
    assert main(["report", str(trained), "--out", str(tmp_path / "page.html")]) == 0
    assert "Patient DEEP R" in (tmp_path / "page.html").read_text()
