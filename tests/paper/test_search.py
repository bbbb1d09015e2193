"""The search of settings: what is compared, on which data, and what its table says."""

import json

import pytest

from wirebound_lab.paper import search
from wirebound_lab.paper.job import TrainJob
from wirebound_lab.paper.search import CANDIDATES, Candidate, main
from wirebound_lab.run.config import make_config


@pytest.mark.parametrize("task", list(CANDIDATES))
def test_candidates_are_runs_of_the_figures_with_held_out_data(task):
    names = [candidate.name for candidate in CANDIDATES[task]]
    assert len(set(names)) == len(names)
    for candidate in CANDIDATES[task]:
        config, run = candidate.config(task, 0), search.TASKS[task].job(search.Scale.FITTED, candidate.method, candidate.at, 0)
        assert config.validation
        changed = {key for key, value in config.as_dict().items() if run.config.as_dict().get(key) != value}
        assert changed <= {"validation", *candidate.own}
        # Shorter than the runs: where only the connectivity is wanted, what the protocol says, and what decides nothing.
        shorter = candidate.method in ("l1-shrinkage", "soft-deep-r") or (task, candidate.method, candidate.at) == ("cifar", "deep-r", 0.2)
        if not shorter and task != "recipe":
            assert config.epochs == run.config.epochs


class Digits:
    """Runs of seconds in the place of a figure's."""

    def job(self, scale, method, at, seed):
        base = {"data": "digits", "connectivity": at, "epochs": 2, "lr": 0.5, "hidden": [20], "seed": seed}
        return TrainJob("digits", make_config(base, {"method": method}))


def test_the_table_says_what_was_reached_and_replaced(tmp_path, monkeypatch):
    monkeypatch.setitem(search.TASKS, "mnist", Digits())
    monkeypatch.setitem(search._HELD_OUT, "mnist", 200)
    candidates = [Candidate("deep-r", 0.1, {"l1": 1e-3}, (0, 1)), Candidate("fixed", 0.1, {})]
    monkeypatch.setitem(search.CANDIDATES, "mnist", candidates)
    assert main(["mnist", "--out", str(tmp_path), "--only", "deep-r-0.1-l1-0.001"]) == 0
    assert main(["mnist", "--out", str(tmp_path), "--only", "fixed-0.1"]) == 0
    deep_r, fixed = json.loads((tmp_path / "mnist.json").read_text())
    assert len(deep_r["accuracy"]) == 2
    assert all(0.3 < accuracy < 1 for accuracy in deep_r["accuracy"])
    assert all(share > 0 for share in deep_r["replaced_a_step"])
    assert 0 < deep_r["left_of_first"] < 1
    assert not any(fixed["replaced_a_step"])
    text = (tmp_path / "mnist.md").read_text()
    assert "l1 0.001" in text
    assert text.count("\n| ") == 4  # head, rule and two lines
