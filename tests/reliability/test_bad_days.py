"""Bad days, as a user has them: real processes, real signals, one line that says what to do, and nothing lost."""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from reliability_helpers import assert_same, command, config, content, fork, outcome, train_in_child
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.engine.fused import FusedEngine
from wirebound.engine.modules import DivergedError, ModuleEngine, data_order, where_not_finite
from wirebound_lab import data
from wirebound_lab.data.locate import Place, search
from wirebound_lab.data.mnist import Mnist
from wirebound_lab.run import train
from wirebound_lab.run.config import tasks
from wirebound_lab.run.processes import StopRequest
from wirebound_lab.run.record import RunFolder, RunFolderError
from wirebound_lab.run.resume import RunState
from wirebound_lab.run.running import TrainingRun

OPTIONS = ["--data", "digits", "--connectivity", "0.2", "--hidden", "16", "--batch-size", "50", "--lr", "0.3", "--quiet"]


def _train(out, *more):
    return ["train", *OPTIONS, "--out", str(out), *more]


def _one_line(log: Path) -> str:
    """The error of a command; behind it there may be one line on what to do next."""
    text = log.read_text().strip()
    assert "Traceback" not in text, text
    assert text.startswith("wirebound: ")
    error, *advice = text.split("\n")
    assert len(advice) <= 1, text
    assert all(line.startswith("next: ") for line in advice)
    return error


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.005)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("engine", ["module", "fused"])
def test_ctrl_c_leaves_a_checkpoint(tmp_path, number, code, engine):
    if engine == "fused" and not ops.native_available():
        pytest.skip("the native kernels were not built")
    out, log = tmp_path / "run", tmp_path / "log"
    options = _train(out, "--epochs", "400", "--engine", engine)
    pid = command(options, log)
    _wait_for(tmp_path / "run.partial" / "config.json")
    time.sleep(0.1)
    os.kill(pid, number)
    assert outcome(pid) == code, log.read_text()
    assert f"--resume --out {out}" in _one_line(log)
    assert "interrupted after step" in log.read_text()
    assert (tmp_path / "run.partial" / "checkpoint.safetensors").exists()
    # The command that it names goes on with it; here until it is interrupted again.
    pid = command(["train", "--resume", "--out", str(out), "--quiet"], log)
    time.sleep(0.3)
    os.kill(pid, number)
    assert outcome(pid) in (code, 0, -number), log.read_text()


def test_a_second_process_is_refused_while_the_first_lives(tmp_path):
    settings, out, log = config(epochs=2000, engine="module"), tmp_path / "run", tmp_path / "log"
    first = train_in_child(settings, out, tmp_path / "first")
    try:
        _wait_for(tmp_path / "run.partial" / "checkpoint.safetensors")
        for more in ("--resume", "--overwrite"):
            options = _train(out, more) if more == "--overwrite" else ["train", "--out", str(out), more, "--quiet"]
            assert outcome(command(options, log)) == 2
            assert "another process is training" in _one_line(log)
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
    # The lock died with it.
    with RunFolder(out, resume=True) as folder:
        assert folder.checkpoint.exists()


def test_a_folder_that_another_process_has_just_finished(tmp_path):
    """Between opening the folder and locking it, it got its final name."""
    folder = RunFolder(tmp_path / "run")
    folder.partial.mkdir()
    original = os.open

    def rename(path, *arguments, **settings):
        descriptor = original(path, *arguments, **settings)
        folder.partial.rename(tmp_path / "elsewhere")
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirebound_lab.run.record.os.open", rename)
        with pytest.raises(RunFolderError, match="finished by another process"):
            folder.__enter__()


def _small_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


def test_a_disk_that_fills_up(tmp_path):
    """The kernel refuses more bytes in the middle of a run; with room again it goes on, bit for bit."""
    settings = config(epochs=60, batch_size=200, checkpoint_every=5)
    train(settings, tmp_path / "whole")
    out, log = tmp_path / "run", tmp_path / "log"
    options = {**settings.as_dict(), "data_path": None}
    (tmp_path / "c.json").write_text(json.dumps({k: v for k, v in options.items() if v is not None}))
    arguments = ["train", "--config", str(tmp_path / "c.json"), "--out", str(out), "--quiet"]
    assert outcome(command(arguments, log, before=_small_files)) == 1
    assert "File too large" in _one_line(log)
    assert "make room" in log.read_text()
    assert outcome(command([*arguments, "--resume"], log)) == 0, log.read_text()
    assert_same(tmp_path / "whole", out)


@contextlib.contextmanager
def _small_disk(folder: Path, size: str):
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, f"size={size}".encode()):
        pytest.skip(f"no small file system can be made here: {os.strerror(ctypes.get_errno())}")
    try:
        yield libc
    finally:
        libc.umount2(str(folder).encode(), 2)


def test_a_full_file_system(tmp_path):
    settings = config(epochs=60, batch_size=200, checkpoint_every=5)
    train(settings, tmp_path / "whole")
    log = tmp_path / "log"
    with _small_disk(tmp_path / "disk", "80k") as libc:
        out = tmp_path / "disk" / "run"
        assert outcome(train_in_child(settings, out, log)) == 99
        assert "No space left on device" in log.read_text().splitlines()[-1]
        assert "make room" in log.read_text().splitlines()[-1]
        assert (tmp_path / "disk" / "run.partial" / "checkpoint.safetensors").exists()
        assert libc.mount(b"tmpfs", str(tmp_path / "disk").encode(), b"tmpfs", 32, b"size=4m") == 0  # remounted larger
        train(settings, out, resume=True)
        assert_same(tmp_path / "whole", out)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_data_file(tmp_path, damage):
    place = next((p for p in search(Mnist(), None) if isinstance(p, Place)), None)
    if place is None:
        pytest.skip("MNIST is not here")
    folder = tmp_path / "mnist"
    shutil.copytree(place.folder, folder)
    victim = next(folder.glob("train-images*"))
    raw = bytearray(victim.read_bytes())
    if damage == "cut":
        del raw[-1000:]
    else:
        raw[len(raw) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(raw)
    log = tmp_path / "log"
    arguments = ["train", "--data", "mnist", "--data-path", str(folder), "--connectivity", "0.01", "--epochs", "1"]
    assert outcome(command([*arguments, "--out", str(tmp_path / "run")], log)) == 2
    assert "train-images" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not (tmp_path / "run.partial").exists()


# Numbers that are not finite


def _poisoned(monkeypatch, examples, value=float("nan")):
    """Some training examples are not numbers; the fused path then gets them as floats."""
    digits = data.load("digits")
    spoilt = digits.inputs("train", flatten=True).clone()
    spoilt[examples] = value

    def engine(settings, model, method, _):
        kind = ModuleEngine if settings.engine == "module" else FusedEngine
        return kind(model, method, spoilt, digits.train_y)

    monkeypatch.setattr("wirebound_lab.tasks.perceptron.choose_engine", engine)


ENGINES = ["module", pytest.param("fused", marks=pytest.mark.skipif(not ops.native_available(), reason="no kernels"))]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_is_not_finite_stops_with_step_layer_and_checkpoint(tmp_path, monkeypatch, engine):
    _poisoned(monkeypatch, [int(data_order(1437, 3, 1)[600])])
    settings = config(engine=engine, epochs=3, checkpoint_every=4)
    with pytest.raises(DivergedError, match=r"step \d+ must be a finite number, first at fault: the inputs") as found:
        train(settings, tmp_path / "run")
    assert "the last good checkpoint is kept" in str(found.value)
    step = int(str(found.value).split("in step ")[1].split()[0])
    # Asked to, it goes on without that step; so does a run that was asked from the start.
    resumed = train(config(engine=engine, epochs=3, checkpoint_every=4, on_nan="skip"), tmp_path / "run", resume=True)
    assert resumed.summary["skipped_steps"] == 3  # once in each epoch
    train(config(engine=engine, epochs=3, checkpoint_every=4, on_nan="skip"), tmp_path / "whole")
    assert_same(tmp_path / "whole", tmp_path / "run")
    skips = [r for r in content(tmp_path / "run")[1] if r["kind"] == "skipped"]
    assert skips[0] == {"kind": "skipped", "step": step, "where": "the inputs"}
    assert all(r["loss"] is None or r["loss"] < 10 for r in content(tmp_path / "run")[1] if r["kind"] == "window")


@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_checkpoint_the_weights_before_are_kept(tmp_path, monkeypatch, engine):
    settings = config(engine=engine, epochs=4, checkpoint_every=None)
    order = []

    def listener(progress):
        if progress.accuracy is not None and progress.epoch == 2:
            order.append(progress.step)

    _poisoned(monkeypatch, [])
    good = train(settings, listener=listener)
    assert good.summary["steps"] == 4 * 29
    calls = []

    def spoil(progress):
        calls.append(progress.step)
        if progress.step == 60:  # in the third epoch
            with torch.no_grad():
                spoilt[:] = float("nan")

    digits = data.load("digits")
    spoilt = digits.inputs("train", flatten=True).clone()
    kind = ModuleEngine if engine == "module" else FusedEngine
    monkeypatch.setattr("wirebound_lab.tasks.perceptron.choose_engine", lambda s, m, o, d: kind(m, o, spoilt, digits.train_y))
    with pytest.raises(DivergedError, match=r"in step 61 .* kept in"):
        train(settings, tmp_path / "run", listener=spoil)
    _poisoned(monkeypatch, [])
    resumed = train(settings, tmp_path / "run", resume=True)
    for name, value in good.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["deep-r", "fixed"])
def test_exploding_steps_are_skipped_or_end_the_run(tmp_path, engine, method):
    settings = config(engine=engine, method=method, lr=1e20, checkpoint_every=None)
    with pytest.raises(DivergedError, match="finite"):
        train(settings, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DivergedError, match=r"10 steps in a row had to be skipped|finite"):
        train(settings.replace(on_nan="skip"), tmp_path / "run")


def _method(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    model = wb.sparsify(model, connectivity=0.3, seed=seed, init="sparse-fan-in")
    return wb.DeepR(model, torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-4), l1=0.01, temperature=1e-5)


@pytest.mark.skipif(not ops.native_available(), reason="no kernels")
def test_an_update_that_is_not_finite_is_taken_back():
    """The loss is finite, θ after the step is not: the fused path goes back to before that step."""
    digits = data.load("digits")
    x, y = digits.inputs("train", flatten=True), digits.train_y
    skipping, by_hand = _method(), _method()
    order, lrs = data_order(len(x), 1, 1)[:300], [0.01] * 30
    lrs[12] = 1e39  # more than a float32 holds
    engine = FusedEngine(skipping.model, skipping, x, y)
    engine.on_nan = "skip"
    (window,) = engine.epoch(order, lrs, 10, 30)
    assert [skip.step for skip in window.skipped] == [13]
    assert "the weights of layer" in window.skipped[0].where
    assert (window.step_from, window.step_to, len(window.losses)) == (1, 30, 29)
    other = FusedEngine(by_hand.model, by_hand, x, y)
    list(other.epoch(order[:120], lrs[:12], 10, 30))
    by_hand.steps += 1
    list(other.epoch(order[130:], lrs[13:], 10, 30))
    for name, value in skipping.model.state_dict().items():
        assert torch.equal(value, by_hand.model.state_dict()[name]), name


def test_a_gradient_that_is_not_finite_is_left_out():
    digits = data.load("digits")
    x, y = digits.inputs("train", flatten=True), digits.train_y
    method = _method()
    method.model[2].bias.register_hook(lambda g: g * float("inf") if method.steps == 4 else g)
    engine = ModuleEngine(method.model, method, x, y)
    engine.on_nan = "skip"
    (window,) = engine.epoch(torch.arange(100), [0.01] * 10, 10, 10)
    assert [(skip.step, skip.where) for skip in window.skipped] == [(5, "the gradient of '2.bias'")]
    method.model(x).sum().backward()
    assert all(torch.isfinite(p).all() for p in method.model.parameters())


def test_the_layer_at_fault_is_named():
    model = wb.sparsify(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), connectivity=0.5)
    assert where_not_finite(model, torch.ones(2, 4)) == "the loss"
    assert where_not_finite(model, torch.full((2, 4), float("nan"))) == "the inputs"
    with torch.no_grad():
        model[2].wiring.theta[-1] = float("inf")
    assert where_not_finite(model, torch.ones(2, 4)) == "the weights of layer '2'"
    with torch.no_grad():
        model[2].wiring.theta[-1] = 1.0
        model[0].wiring.theta.fill_(3e38)
        model[0].bias.fill_(3e38)
    assert where_not_finite(model, torch.full((2, 4), 10.0)) == "the output of layer '0'"


def test_a_run_in_a_thread_leaves_signals_alone(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=train, args=(config(epochs=1), tmp_path / "run"))
    thread.start()
    thread.join()
    content(tmp_path / "run")
    assert signal.getsignal(signal.SIGINT) is before


def test_fork_reports_failures(tmp_path):
    assert outcome(fork(lambda: 1 // 0, tmp_path / "log")) == 99
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


def test_moments_that_are_not_finite_end_a_run_as_diverged():
    """A gradient whose square is infinite leaves loss and weights finite; the run ends and says so."""
    settings = config(engine="module", optimizer="adam", lr=1e-3, epochs=2, checkpoint_every=4)
    task = tasks()[settings.task](settings)

    def spoil(kind, values):
        if kind == "window":
            state = next(iter(task.method.optimizer.state.values()))
            state["exp_avg_sq"].view(-1)[0] = float("inf")

    run = TrainingRun(task, task.engine(settings), RunState(task.method.layer_active()), None, None, spoil)
    with pytest.raises(DivergedError, match=r"the optimiser's exp_avg_sq of '.*' is not finite after step \d+"):
        run.go(StopRequest())
