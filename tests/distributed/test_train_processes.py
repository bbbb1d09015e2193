"""``wirebound train`` on several processes: the same run, failures, and going on with another number of processes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import rank_scenarios

from wirebound_lab.cli.main import main
from wirebound_lab.run import TrainConfig, train
from wirebound_lab.run.distributed import RankFailedError, launch

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3 * 29


def _metrics(folder, kind):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module")
def alone():
    """The run of one process."""
    return train(TrainConfig(**rank_scenarios.SETTINGS))


def _assert_same_curve(folder, alone):
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert summary["min_active"] == summary["max_active"] == summary["budget"] == 5020
    assert summary["test_accuracy"] == pytest.approx(alone.summary["test_accuracy"], abs=0.05)
    assert summary["test_loss"] == pytest.approx(alone.summary["test_loss"], rel=0.1)
    windows = _metrics(folder, "window")
    assert [w["step_from"] for w in windows] == list(range(1, STEPS + 1))
    return summary


def test_the_command_on_two_processes(tmp_path, alone):
    settings = [f"--{name.replace('_', '-')}={value}" for name, value in rank_scenarios.SETTINGS.items()]
    assert main(["train", *settings, "--processes", "2", "--out", str(tmp_path / "two"), "--quiet"]) == 0
    summary = _assert_same_curve(tmp_path / "two", alone)
    assert (summary["processes"], summary["path"]) == (2, alone.summary["path"])
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == [
        *("config.json", "metrics.jsonl", "model.safetensors", "summary.json")
    ]
    train(TrainConfig(**rank_scenarios.SETTINGS), tmp_path / "one")
    one, two = (_metrics(tmp_path / name, "window") for name in ("one", "two"))
    for a, b in list(zip(one, two, strict=True))[:40]:
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["newborns"] == b["newborns"]
    # A finished run is not run again, and all ranks know it.
    assert main(["train", *settings, "--processes", "2", "--out", str(tmp_path / "two"), "--quiet", "--resume"]) == 0


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_lost_rank_and_going_on_with_another_number(tmp_path, alone, processes):
    out = tmp_path / "run"
    with pytest.raises(RankFailedError, match="rank 1 of 2 was ended by SIGKILL"):
        launch(rank_scenarios.run_and_lose_rank_1, (str(out), 50), 2)
    assert (tmp_path / "run.partial" / "checkpoint.safetensors").exists()
    if processes == 1:
        result = train(TrainConfig(**rank_scenarios.SETTINGS), out, resume=True)
        assert result.summary["processes"] == 1
    else:
        assert launch(rank_scenarios.run, (str(out), True), processes) == 0
    if processes == 2:  # as many as before: the same bits as without the accident
        assert launch(rank_scenarios.run, (str(tmp_path / "whole"), False), 2) == 0
        assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    _assert_same_curve(out, alone)


@pytest.mark.parametrize("task", rank_scenarios.SMALL_TASKS)
def test_every_task_runs_on_two_processes(tmp_path, task):
    """One batch of an epoch does not split evenly; for speech, the mean is over frames and not over utterances."""
    for processes in (1, 2):
        assert launch(rank_scenarios.small_task, (task, str(tmp_path / str(processes))), processes) == 0
    one, two = (_metrics(tmp_path / name, "window") for name in ("1", "2"))
    for a, b in list(zip(one, two, strict=True))[:8]:
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    summary = json.loads((tmp_path / "2" / "summary.json").read_text())
    assert (summary["processes"], summary["min_active"]) == (2, summary["budget"])


def test_all_ranks_skip_the_same_step(tmp_path):
    assert launch(rank_scenarios.skipping, (str(tmp_path),), 2) == 0
    first, second = (json.loads((tmp_path / f"{n}.json").read_text()) for n in (0, 1))
    assert first["steps"] == second["steps"] == 20
    assert [step for step, _ in first["skips"]] == [step for step, _ in second["skips"]] == [2]
    assert second["skips"][0][1] == "the inputs"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--connectivity", "0.1", "--lr", "1e25"], 1, "DivergedError: the loss"),
        (["--connectivity", "0.1", "--engine", "fused"], 2, "engine (='fused') runs in one process, not in 2"),
        (["--budget", "999999"], 2, "budget (=999999) must be in [1, 50200]"),
        (["--connectivity", "1.7"], 2, "connectivity (=1.7)"),
        (["--connectivity", "0.1", "--processes", "0"], 2, "processes (=0) must be >= 1"),
    ],
)
def test_what_is_wrong_is_said_once(tmp_path, capfd, arguments, code, message):
    out = ["--out", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "--data", "digits", "--processes", "2", *arguments, *out]) == code
    said = capfd.readouterr().err
    assert said.count(message) == 1
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def _start(tmp_path, *command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(tmp_path):
    settings = ["--data", "digits", "--connectivity", "0.1", "--epochs", "9000", "--batch-size", "100", "--out", "run", "--quiet"]
    started = _start(tmp_path, sys.executable, "-m", "wirebound", "train", *settings, "--processes", "2")
    metrics = tmp_path / "run.partial" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and '"epoch"' in metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130, said
    assert "go on with --resume" in said
    assert "Traceback" not in said
    assert (tmp_path / "run.partial" / "checkpoint.safetensors").exists()


def _children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see when a rank is there")
def test_ctrl_c_while_ranks_are_started_leaves_none(tmp_path):
    """The first rank is there, the second perhaps not yet: the job must not wait for a rank that trains for hours."""
    settings = ["--data", "digits", "--connectivity", "0.1", "--epochs", "9000", "--out", "run", "--quiet"]
    job = _start(tmp_path, sys.executable, "-m", "wirebound", "train", *settings, "--processes", "2")
    deadline = time.monotonic() + 120
    # Those of the server that forks the ranks.
    while not (ranks := [rank for child in _children(job.pid) for rank in _children(child)]):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    job.send_signal(signal.SIGINT)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 130, said
    assert "Traceback" not in said
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


@pytest.mark.parametrize("command", [[], ["--processes", "1"]])
def test_one_process_goes_on_with_what_two_began_as_the_docs_say(tmp_path, alone, command):
    """Without a word about the path, which was left open and would be the fused one for a single process."""
    out = tmp_path / "run"
    settings = {name: value for name, value in rank_scenarios.SETTINGS.items() if name != "engine"}
    with pytest.raises(RankFailedError, match="rank 1 of 2 was ended by SIGKILL"):
        launch(rank_scenarios.run_and_lose_rank_1, (str(out), 50, settings), 2)
    assert main(["train", "--resume", "--out", str(out), "--quiet", *command]) == 0
    assert _assert_same_curve(out, alone)["path"] == "module"


@pytest.mark.slow
def test_plain_torchrun(tmp_path):
    """The example script, and the command itself, under torchrun; a rank that dies ends the job."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    accuracy = {}
    for processes in ("1", "2"):
        example = [str(ROOT / "examples" / "ddp.py"), "--data", "digits", "--steps", "300", "--connectivity", "0.1"]
        started = _start(tmp_path, *torchrun, processes, *example)
        said, errors = started.communicate(timeout=300)
        assert started.returncode == 0, errors
        accuracy[processes] = float(said.split("accuracy ")[1].split()[0])
    assert accuracy["1"] == pytest.approx(accuracy["2"], abs=3)
    settings = ["--data", "digits", "--connectivity", "0.1", "--epochs", "2", "--out", "run", "--quiet"]
    started = _start(tmp_path, *torchrun, "2", "-m", "wirebound", "train", *settings)
    _, errors = started.communicate(timeout=300)
    assert started.returncode == 0, errors
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["processes"] == 2
    again = _start(tmp_path, *torchrun, "2", "-m", "wirebound", "train", *settings)
    _, errors = again.communicate(timeout=300)
    assert again.returncode != 0
    assert "exists already" in errors
