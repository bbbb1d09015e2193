"""Sweeps through a real Optuna study: several workers on one storage, lost trials, searches."""

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from wirebound_lab.cli.sweep import show_end
from wirebound_lab.run.config import ConfigError
from wirebound_lab.sweep.drive import drive
from wirebound_lab.sweep.outcome import FINISHED, Outcome, write_sweep
from wirebound_lab.sweep.plan import make_plan
from wirebound_lab.sweep.study import StudySource, open_study

optuna = pytest.importorskip("optuna")


def _source(plan, out, storage, limit=None):
    out.mkdir(exist_ok=True)
    return StudySource(plan, out, open_study(str(storage), "grid"), limit, lambda source: None)


def test_several_machines_share_one_grid(fake_train, tmp_path):
    storage = tmp_path / "study.journal"
    plan = make_plan({}, grid={"connectivity": [0.05, 0.1], "method": ["deep-r", "fixed"], "seed": [0, 1, 2]})
    _source(plan, tmp_path / "first", storage)  # both would put the grid in at once; one comes a little earlier
    machines = [tmp_path / f"machine{n}" for n in range(2)]

    def work(out):
        drive(_source(plan, out, storage), out, 2, lambda running: None, fake_train.work)

    threads = [threading.Thread(target=work, args=(out,)) for out in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = [(out / "calls.txt").read_text().split() for out in machines]
    assert all(calls)
    assert sorted([*calls[0], *calls[1]]) == sorted(trial.name for trial in plan.trials())
    # Whoever comes later sees all of it, and has nothing to do.
    later = _source(plan, tmp_path / "later", storage)
    assert later.take() is None
    assert len(later.outcomes) == 12
    assert all(outcome.state == FINISHED for outcome in later.outcomes.values())


def test_two_who_start_together_run_nothing_twice(tmp_path):
    plan = make_plan({}, grid={"connectivity": [0.1], "seed": [0, 1]})
    storage = tmp_path / "study.journal"
    one = _source(plan, tmp_path / "one", storage)
    # As if another had seen the empty study at the same moment.
    for trial in plan.trials():
        attributes = {"key": trial.key, "name": trial.name, "settings": trial.config.as_dict()}
        one.study.enqueue_trial({}, user_attrs=attributes)
    two = _source(plan, tmp_path / "two", storage)
    taken = [one.take(), two.take(), one.take(), two.take()]
    assert [trial.name for trial in taken if trial] == ["deep-r-0.1-s0", "deep-r-0.1-s1"]


def test_a_lost_trial_is_given_to_someone_else(tmp_path, monkeypatch):
    plan = make_plan({}, grid={"connectivity": [0.1], "seed": [0, 1]})
    storage = tmp_path / "study.journal"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: gone.pid)
        _source(plan, tmp_path / "one", storage).take()
    other = _source(plan, tmp_path / "two", storage)
    assert sorted(trial.config.seed for trial in (other.take(), other.take())) == [0, 1]
    # One that lives is left alone, until it has been silent for too long.
    third = _source(plan, tmp_path / "three", storage)
    assert third.take() is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1000)
    assert _source(plan, tmp_path / "four", storage).take() is not None


def test_failed_and_interrupted_trials_come_back_with_the_next_start(tmp_path):
    plan = make_plan({}, grid={"connectivity": [0.1], "seed": [0, 1, 2]})
    storage = tmp_path / "study.journal"
    one = _source(plan, tmp_path / "one", storage)
    for outcome in (Outcome("failed", error="bad"), Outcome("interrupted"), Outcome("finished", 0.5, 1.0, "test")):
        one.done(one.take(), outcome)
    assert one.take() is None
    assert sorted(o.state for o in one.outcomes.values()) == ["failed", "finished", "interrupted"]
    two = _source(plan, tmp_path / "two", storage)
    assert [two.take().config.seed, two.take().config.seed] == [0, 1]
    assert two.take() is None


def test_run_folders_that_are_there_count(sweep, tmp_path):
    sweep("--connectivity", 0.1, "--seed", 0, 1)
    code, found = sweep("--connectivity", 0.1, "--seed", 0, 1, 2, "--storage", tmp_path / "study.journal")
    assert code == 0
    assert len(sweep.calls()) == 3
    assert [t["state"] for t in found["trials"]] == ["finished"] * 3


def test_entries_of_the_storage_are_input_like_any_other(tmp_path):
    study = open_study(str(tmp_path / "study.journal"), "grid")
    study.enqueue_trial({}, user_attrs={"key": "x", "name": "../../escape", "settings": {"connectivity": 0.1}})
    study.enqueue_trial({}, user_attrs={"key": "y", "settings": {"connectivity": 7}})
    study.enqueue_trial({}, user_attrs={"key": "z", "settings": "rm -rf"})
    plan = make_plan({}, grid={"connectivity": [0.2]})
    source = _source(plan, tmp_path / "out", tmp_path / "study.journal")
    assert [source.take().name, source.take().name] == ["deep-r-0.1-s0", "deep-r-0.2-s0"]
    assert source.take() is None


DAMAGES = {
    "cut": lambda good: good[: len(good) // 2],
    "garbage": lambda good: bytes(range(256)),
    "no objects": lambda good: b"3\n",
    "deep": lambda good: b"[" * 99_999 + b"\n",
    "huge": lambda good: b"9" * 5001 + b"\n",
    "a line is no JSON": lambda good: good.replace(b"\n", b"\nhello\n", 1),
    "another operation": lambda good: good.replace(b'"op_code":4', b'"op_code":77', 1),
}


@pytest.fixture
def journal(tmp_path):
    """The storage of a grid of which one trial failed, one was interrupted, one finished and one runs."""
    path = tmp_path / "study.journal"
    plan = make_plan({}, grid={"connectivity": [0.1], "seed": [0, 1, 2, 3]})
    source = _source(plan, tmp_path / "out", path)
    for outcome in (Outcome("failed", error="bad"), Outcome("interrupted"), Outcome("finished", 0.5, 1.0, "test")):
        source.done(source.take(), outcome)
    source.take()
    return path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal_is_one_line(sweep, journal, capsys, damage):
    journal.write_bytes(DAMAGES[damage](journal.read_bytes()))
    code, _ = sweep("--connectivity", 0.1, "--seed", 0, 1, "--storage", journal, "--study", "grid")
    assert code == 2
    error, advice = capsys.readouterr().err.strip().split("\n")
    assert error.startswith(f"wirebound: storage (={journal}) cannot be used: ")
    assert advice.startswith("next: ")


VALUES = (None, True, "x", [], {}, [["x"]], {"a": 1}, -1, 1.5, 10**400, float("inf"), float("nan"), 1 << 64)


def test_any_value_of_any_entry_is_harmless(journal, tmp_path):
    """What others wrote into the storage is taken for what it is, counts as missing, or is one error."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    plan = make_plan({}, grid={"connectivity": [0.1], "seed": [0, 1, 2, 3]})
    places = [(n, key) for n, line in enumerate(lines) for key in line if key != "worker_id"]
    places += [(n, "user_attr", key) for n, line in enumerate(lines) for key in line.get("user_attr", ())]
    chance, refused = random.Random(3), 0
    for _ in range(30):
        (number, *path), value = chance.choice(places), chance.choice(VALUES)
        changed = json.loads(json.dumps(lines))
        holder = changed[number]
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        journal.write_text("".join(json.dumps(line) + "\n" for line in changed))
        try:
            source = _source(plan, tmp_path / "out", journal)
            while (trial := source.take()) is not None:
                source.done(trial, Outcome("finished", 0.5, 1.0, "test"))
            write_sweep(tmp_path / "out", plan, source.trials, source.outcomes)
            show_end(Console(quiet=True), plan, source, tmp_path / "out")
        except ConfigError:
            refused += 1
    assert 0 < refused < 30


def test_a_search(sweep, capsys):
    arguments = ("--connectivity", 0.05, 0.2, "--validation", 100, "--range", "lr=0.001:10:log", "--trials", 15)
    code, found = sweep(*arguments)
    assert code == 0
    assert len(found["trials"]) == len(sweep.calls()) == 15
    rates = [t["settings"]["lr"] for t in found["trials"]]
    assert all(0.001 <= rate <= 10 for rate in rates)
    best = max(found["trials"], key=lambda t: t["accuracy"])
    assert best["accuracy"] > 0.87
    assert best["evaluated_on"] == "validation"
    assert "validation accuracy" in capsys.readouterr().out
    # It goes on where it was.
    assert sweep(*arguments)[0] == 0
    assert len(sweep.calls()) == 15
    code, found = sweep(*arguments[:-1], 17)
    assert len(sweep.calls()) == 17
    assert json.loads((sweep.out / "sweep.json").read_text())["search"]["lr"] == {"low": 0.001, "high": 10.0, "log": True}


def test_without_optuna_the_message_says_what_to_install(sweep, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert sweep("--connectivity", 0.1, "--storage", "x.journal")[0] == 2
    assert "pip install 'wirebound[sweep]'" in capsys.readouterr().err
