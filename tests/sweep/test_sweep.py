"""Sweeps on this machine: what runs, what is not run again, what fails, and what is written."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

from wirebound_lab.cli.main import main
from wirebound_lab.run import processes

GRID = ("--connectivity", 0.05, 0.1, "--method", "deep-r", "fixed", "--seed", 0, 1, 2)


def test_a_grid_with_means_over_seeds(sweep, capsys):
    code, found = sweep(*GRID)
    assert code == 0
    assert len(found["trials"]) == 12
    assert all(t["state"] == "finished" for t in found["trials"])
    assert len(found["groups"]) == 4
    first = found["groups"][0]
    assert first["settings"] == {"connectivity": 0.05, "method": "deep-r"}
    assert first["seeds"] == [0, 1, 2]
    values = [t["accuracy"] for t in found["trials"] if t["settings"]["connectivity"] == 0.05 and t["settings"]["method"] == "deep-r"]
    assert first["mean"] == pytest.approx(statistics.fmean(values))
    assert first["spread"] == pytest.approx(statistics.stdev(values))
    printed = capsys.readouterr().out
    assert f"{100 * first['mean']:.2f} ± {100 * first['spread']:.2f}" in printed
    assert not list(sweep.out.glob("*.draft"))


def test_finished_runs_are_not_repeated_whatever_their_names(sweep):
    sweep("--connectivity", 0.1, "--seed", 0, 1)
    (sweep.out / "deep-r-0.1-s1").rename(sweep.out / "renamed")
    code, found = sweep("--connectivity", 0.1, "--seed", 0, 1, 2, "--set", "lr=0.05,0.5")
    assert code == 0
    assert len(found["trials"]) == 6
    assert len(sweep.calls()) == 2 + 4
    assert sorted(sweep.calls()[2:]) == sorted(["deep-r-0.1-lr=0.05-s2", *(f"deep-r-0.1-lr=0.5-s{s}" for s in range(3))])


def test_a_failed_trial_is_reported_and_does_not_stop_the_rest(sweep, capsys):
    arguments = ("--connectivity", 0.1, "--seed", 0, 1, "--set", "lr=0.1,1e9", "--set", "gain=1,99")
    code, found = sweep(*arguments)
    assert code == 1
    states = {t["name"]: (t["state"], t["error"]) for t in found["trials"]}
    assert states["deep-r-0.1-lr=0.1-gain=1-s0"] == ("finished", None)
    assert states["deep-r-0.1-lr=1e+09-gain=1-s0"] == ("failed", "the loss (=nan) must be a finite number")
    assert states["deep-r-0.1-lr=0.1-gain=99-s1"] == ("failed", "ended by SIGKILL (often: out of memory)")
    captured = capsys.readouterr()
    assert captured.err.count("failed: ") == 6
    assert "some progress" in (sweep.out / "failed" / "deep-r-0.1-lr=1e+09-gain=1-s0.txt").read_text()
    # Started again, what failed is tried again, and nothing else.
    before = len(sweep.calls())
    assert sweep(*arguments)[0] == 1
    assert len(sweep.calls()) == before + 6


def test_an_interrupted_sweep_goes_on(sweep, monkeypatch, capsys):
    wait = processes.wait

    def interrupted(sentinels, timeout):
        # A run that has its summary but not yet its name counts as interrupted; one that has its name has finished, even
        # if its process is interrupted on the way out.
        if sum(path.parent.suffix != ".partial" for path in sweep.out.glob("*/summary.json")) >= 3:
            monkeypatch.setattr(processes, "wait", wait)
            raise KeyboardInterrupt
        return wait(sentinels, timeout)

    monkeypatch.setattr(processes, "wait", interrupted)
    arguments = ("--connectivity", 0.1, "--seed", 0, 1, 2, 3, "--set", "epochs=10,1000")
    code, found = sweep(*arguments)
    assert code == 130
    assert "interrupted" in capsys.readouterr().err
    states = [t["state"] for t in found["trials"]]
    assert states.count("finished") >= 3
    assert "interrupted" in states
    before = len(sweep.calls())
    code, found = sweep("--connectivity", 0.1, "--seed", 0, 1, 2, 3)
    assert code == 0
    assert len(sweep.calls()) - before == 4 - min(4, states.count("finished"))


def test_another_run_of_that_name_is_left_alone(sweep):
    sweep("--connectivity", 0.1)
    (sweep.out / "fixed-0.1-s0").mkdir()
    code, _ = sweep("--connectivity", 0.1, "--method", "deep-r", "fixed", "--epochs", 3)
    assert code == 0
    assert json.loads((sweep.out / "deep-r-0.1-s0" / "config.json").read_text())["epochs"] == 10
    assert len(list(sweep.out.glob("deep-r-0.1-s0-*/summary.json"))) == 1
    assert len(list(sweep.out.glob("fixed-0.1-s0-*/summary.json"))) == 1


def test_list_runs_nothing(sweep, capsys):
    assert sweep(*GRID, "--list") == (0, None)
    assert len(capsys.readouterr().out.split()) == 12
    assert not sweep.out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connectivity", "1.7"], "connectivity (=1.7)"),
        (["--connectivity", "0.1", "--jobs", "0"], "jobs (=0)"),
        (["--connectivity", "0.1", "--set", "lr"], "NAME=VALUE"),
        (["--connectivity", "0.1", "--range", "lr=0.1:1"], "validation (=0) must be > 0"),
        (["--connectivity", "0.1", "--validation", "9", "--range", "lr=0.1:1", "--seed", "0", "1"], "one number in a search"),
        (["--connectivity", "0.1", "--validation", "9", "--range", "lr=-1:1"], "lr (=-1.0)"),
        (["--connectivity", "0.1", "--validation", "9", "--range", "method=1:2"], "setting that is a number"),
        (["--connectivity", "0.1", "--validation", "9", "--range", "batch_size=1.5:2"], "whole numbers"),
        (["--connectivity", "0.1", "--storage", "nosuch://x"], "cannot be used"),
        (["--connectivity", "0.1", "--storage", "sqlite:///x.db"], "must not be SQLite"),
    ],
)
def test_wrong_input_is_one_line_and_runs_nothing(sweep, capsys, arguments, message):
    code, _ = sweep(*arguments)
    assert code == 2
    assert message in capsys.readouterr().err
    assert sweep.calls() == []


def test_real_runs(tmp_path, capsys):
    """The training itself: two runs, one of which cannot be."""
    arguments = ["--data", "digits", "--epochs", "1", "--set", "hidden=[20]", "--budget", "100", "999999", "--quiet"]
    assert main(["sweep", "--out", str(tmp_path / "out"), "--jobs", "1", *arguments]) == 1
    found = json.loads((tmp_path / "out" / "sweep.json").read_text())
    good, bad = found["trials"]
    assert good["state"] == "finished"
    assert good["accuracy"] > 0
    assert "budget (=999999) must be in [1, 1480]" in bad["error"]
    summary = json.loads((tmp_path / "out" / "deep-r-k100-s0" / "summary.json").read_text())
    assert summary["min_active"] == summary["max_active"] == 100
    assert json.loads((tmp_path / "out" / "deep-r-k100-s0" / "config.json").read_text())["threads"] == 1


@pytest.mark.slow
def test_a_killed_sweep_takes_its_runs_with_it_and_goes_on(tmp_path):
    """kill -9 while the second of three real runs is under way: no orphan, nothing repeated, the same end."""
    out = tmp_path / "out"
    settings = ["--data", "digits", "--connectivity", "0.1", "--seed", "0", "1", "2", "--epochs", "150", "--jobs", "1"]
    command = [sys.executable, "-m", "wirebound", "sweep", *settings, "--out", str(out), "--quiet"]
    with subprocess.Popen(command) as started:
        while not (out / "deep-r-0.1-s1.partial" / "metrics.jsonl").exists():
            assert started.poll() is None
            time.sleep(0.05)
        os.kill(started.pid, signal.SIGKILL)
    first = (out / "deep-r-0.1-s0" / "summary.json").stat().st_mtime_ns
    assert subprocess.run(command).returncode == 0
    assert (out / "deep-r-0.1-s0" / "summary.json").stat().st_mtime_ns == first
    found = json.loads((out / "sweep.json").read_text())
    assert [t["state"] for t in found["trials"]] == ["finished"] * 3
    assert found["groups"][0]["seeds"] == [0, 1, 2]
    assert not list(out.glob("*.partial"))
    assert main(["train", *settings[:4], "--seed", "1", "--epochs", "150", "--out", str(tmp_path / "x"), "--quiet"]) == 0
    same = [(folder / "model.safetensors").read_bytes() for folder in (out / "deep-r-0.1-s1", tmp_path / "x")]
    assert same[0] == same[1]
