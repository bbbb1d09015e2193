"""A training run from settings to run folder: one entry for all tasks, methods and engines."""

import contextlib
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.distributed import rank, world_size
from wirebound.ledger import ledger
from wirebound.methods import METHODS
from wirebound.nn.sparse_layer import wirings
from wirebound.ops import library
from wirebound.version import __version__
from wirebound_lab.run.config import RunConfig, tasks
from wirebound_lab.run.distributed import Follower, agree, follow, lead
from wirebound_lab.run.processes import StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import RunState, check_same_run, load_checkpoint, load_finished, path_to_go_on
from wirebound_lab.run.running import Listener, Recorder, RunProgress, TrainingRun

__all__ = ["Listener", "Recorder", "RunProgress", "RunResult", "train"]

# What a model's file says about its training: what the settings decide, and nothing that a clock or a machine does.
_ON_THE_CARD = ("evaluated_on", "test_accuracy", "test_loss", "steps", "skipped_steps", "min_active", "max_active")


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary, its trained model, and where it was written, if it was."""

    summary: dict[str, Any]
    model: nn.Module
    folder: Path | None


def train(
    config: RunConfig, out: Path | None = None, *, overwrite: bool = False, resume: bool = False,
    listener: Listener | None = None, recorder: Recorder | None = None, until: int | None = None,
) -> RunResult:  # fmt: skip
    """Train as the settings say; faults of settings, data and folder are found before the first step.

    With ``resume``, from the last checkpoint, bit for bit; a finished run is returned as it is. In a process group all
    ranks call this, and rank 0 writes and evaluates. ``recorder`` gets every record of ``metrics.jsonl``. ``until``: pause
    after this epoch, with a checkpoint to resume from and without a summary.
    """
    config.check()
    folder = None if out is None or rank() > 0 else RunFolder(out, overwrite=overwrite, resume=resume)
    if folder is not None and resume:
        check_same_run(config, folder.path)
    config, finished, resumes = agree(config, folder, resume)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    task = tasks()[config.task](config)
    method, model = task.method, task.method.model
    if finished:
        return RunResult({}, model, None) if folder is None else _already_finished(folder, model)
    engine = task.engine(path_to_go_on(folder, config) if resume else config)
    kind, recorder = (TrainingRun, recorder) if rank() == 0 else (Follower, None)
    run = kind(task, engine, RunState(method.layer_active()), folder, listener, recorder)
    if rank() > 0:
        follow(run, resumes)
        return RunResult({}, model, None)
    if folder is None:
        run.go(StopRequest())
        return RunResult(summarise(run), model, None)
    with StopRequest() as stop, folder:
        if resume:
            lead(folder)
            run.continue_from(load_checkpoint(folder, config, method, engine.name, task, run.observer))
        folder.write_json("config.json", config.as_dict())
        run.go(stop, until)
        if run.state.epoch <= config.epochs:
            run.write_checkpoint()
            return RunResult({}, model, None)
        summary = summarise(run)
        # How it was trained and what came out, kept in the model's own file: files are moved without their folders.
        result = {name: summary[name] for name in _ON_THE_CARD}
        folder.finish(summary, model, {"config": config.identity(), "result": result})
    return RunResult(summary, model, folder.path)


def _already_finished(folder: RunFolder, model: nn.Module) -> RunResult:
    """The run had ended; at most its folder had not got its name yet."""
    named = folder.path.exists()
    with contextlib.nullcontext() if named else folder:
        summary = load_finished(folder, model)
        if not named:
            folder.give_name()
    return RunResult(summary, model, folder.path)


def summarise(run: TrainingRun) -> dict[str, Any]:
    """``summary.json``: the end of a run in one object."""
    run.measure()
    config, method, state = run.config, run.method, run.state
    possible, active = sum(shape.possible for shape in method.shapes), method.layer_active()
    budget = sum(w.budget for w in wirings(run.model)) if method.promises_budget else None
    measured = state.active_max if method.counts == "highest" else sum(active)
    connectivity = (measured if budget is None else budget) / possible
    layers = [
        {"name": s.name, "shape": [s.n_out, s.n_in], "possible": s.possible, "initial": a, "final": b}
        for s, a, b in zip(method.shapes, state.initial, active, strict=True)
    ]
    python, kernels = platform.python_version(), library.isa() or f"none ({library.reason()})"
    summary = {
        "task": config.task,
        "method": config.method,
        "title": METHODS[config.method].title,
        **run.task.facts(connectivity),
        "seed": config.seed,
        "budget": budget,
        "possible": possible,
        "connectivity": connectivity,
        "max_active": state.active_max,
        "min_active": state.active_min,
        "steps": run.task.steps,
        "skipped_steps": state.skipped,
        "epochs": config.epochs,
        "seconds": round(state.seconds, 3),
        "training_seconds": round(state.training_seconds, 3),
        "cpu_seconds": None if run.cpu_began is None else round(time.process_time() - run.cpu_began, 3),
        **state.figures,
        "path": run.engine.name,
        "layers": layers,
        "ledger": [entry.__dict__ for entry in (*ledger(run.model, method).entries, *run.observer.entries())],
        "versions": {"wirebound": __version__, "torch": torch.__version__, "python": python, "kernels": kernels},
        "processes": world_size(),
    }
    return summary | run.task.conclude(summary)
