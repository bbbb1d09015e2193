"""Training in processes of its own that can be killed, and what is left of it.

Children are forked: real processes with their own signals, files and locks, without the seconds that torch takes to
import. The parent keeps to one thread (OMP_NUM_THREADS=1 or torch.set_num_threads in tests/conftest.py), so forking is
safe.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from wirebound_lab import data
from wirebound_lab.cli import main
from wirebound_lab.run import TrainConfig, train

_CAPABILITIES_V3, _DAC_OVERRIDE, _DAC_READ_SEARCH = 0x20080522, 1 << 1, 1 << 2  # linux/capability.h


def config(**settings) -> TrainConfig:
    """A short run on real data: 2 epochs of 29 steps."""
    network = {"data": "digits", "connectivity": 0.2, "hidden": [16], "bias": True, "init": "sparse-fan-in", "seed": 3}
    training = {"epochs": 2, "batch_size": 50, "lr": 0.3, "l1": 3e-3, "noise": 1e-3, "checkpoint_every": 2}
    return TrainConfig(**{**network, **training, **settings})


def fork(work: Callable[[], int], log: Path) -> int:
    """Start ``work`` in a process of its own; its exit code is what it returns. The id of the process."""
    # Imports that every child needs, once: scikit-learn, and what torch's first optimiser brings along.
    data.load("digits")
    torch.optim.SGD([torch.zeros(1)])
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        with log.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
            sys.stdout, sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb"), write_through=True), stream
            try:
                code = work()
            except BaseException:
                traceback.print_exc(file=stream)
            stream.flush()
    finally:
        os._exit(code)


def outcome(pid: int) -> int:
    """The exit code of a process, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def command(arguments: list[str], log: Path, before: Callable[[], None] = lambda: None) -> int:
    """The wirebound command in a process of its own."""

    def work() -> int:
        before()
        return main(arguments)

    return fork(work, log)


def as_any_user(reads: bool = True) -> None:
    """Holds this process to the permissions of files and folders, also if it is root's (Linux). With ``reads`` it may
    still read everything, so that what is imported later can be imported from a folder of any owner."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or not hasattr(libc, "capset"):
        return
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    dropped = _DAC_OVERRIDE if reads else _DAC_OVERRIDE | _DAC_READ_SEARCH
    sets[0] &= ~dropped  # of what is in effect
    libc.capset(header, sets)


def train_in_child(settings: TrainConfig, out: Path, log: Path) -> int:
    def work() -> int:
        train(settings, out, resume=True)
        return 0

    return fork(work, log)


def kill_until_done(settings: TrainConfig, out: Path, delays: Callable[[], float]) -> int:
    """Train, kill -9 after each delay, resume, until a process comes to its end. The number of kills."""
    log = out.with_suffix(".log")
    for kills in range(1000):
        pid = train_in_child(settings, out, log)
        deadline = time.monotonic() + delays()
        while time.monotonic() < deadline:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                assert os.waitstatus_to_exitcode(status) == 0, log.read_text()
                return kills
            time.sleep(0.001)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ended = outcome(pid)
        assert ended in (0, -signal.SIGKILL), log.read_text()
        if ended == 0:
            return kills
    raise AssertionError("the run never came to its end")


def content(out: Path) -> tuple[dict[str, torch.Tensor], list[dict], dict]:
    """What a run left: weights, records and summary, without the wall clock."""
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"]
    assert not out.with_name(out.name + ".partial").exists()
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record.pop("seconds", None)
    summary = json.loads((out / "summary.json").read_text())
    for name in ("seconds", "training_seconds", "cpu_seconds"):
        summary.pop(name)
    return load_file(out / "model.safetensors"), records, summary


def assert_same(one: Path, two: Path) -> None:
    """Bit for bit the same run."""
    (weights, records, summary), (others, other_records, other_summary) = content(one), content(two)
    assert weights.keys() == others.keys()
    for name, tensor in weights.items():
        assert tensor.dtype == others[name].dtype
        assert torch.equal(tensor, others[name]), name
    assert records == other_records
    assert summary == other_summary
