"""The command as a function, with a stand-in for the training."""

import json
import sys
from pathlib import Path

import pytest

from wirebound_lab.cli.main import main

sys.path.append(str(Path(__file__).resolve().parent))  # for the processes that import it by name


@pytest.fixture
def fake_train(monkeypatch):
    import fake_train

    monkeypatch.setattr("wirebound_lab.cli.sweep.train_trial", fake_train.work)
    return fake_train


@pytest.fixture
def sweep(fake_train, tmp_path):
    """Runs ``wirebound sweep`` into one folder; gives the exit code and sweep.json."""
    out = tmp_path / "out"

    def run(*arguments):
        code = main(["sweep", "--out", str(out), "--jobs", "3", *map(str, arguments)])
        path = out / "sweep.json"
        return code, json.loads(path.read_text()) if path.exists() else None

    run.out = out
    run.calls = lambda: (out / "calls.txt").read_text().split() if (out / "calls.txt").exists() else []
    return run
