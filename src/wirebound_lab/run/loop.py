"""A training run from settings to run folder: one loop for all methods and engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.distributed import rank, world_size
from wirebound.engine.fused import FusedEngine, why_not_fused
from wirebound.engine.modules import Engine, ModuleEngine
from wirebound.methods import Method
from wirebound_lab import data as datasets
from wirebound_lab.data import Dataset
from wirebound_lab.run.config import ConfigError, TrainConfig
from wirebound_lab.run.distributed import Follower, agree, distributed_engine, follow, lead
from wirebound_lab.run.interrupt import StopRequest
from wirebound_lab.run.models import build_method, build_model, build_optimizer
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import check_same_run, load_checkpoint, load_finished, path_to_go_on
from wirebound_lab.run.run_state import RunState
from wirebound_lab.run.running import WINDOWS, Examples, Listener, Progress, Recorder, Run, evaluate
from wirebound_lab.run.summary import model_card, summarise

__all__ = ["WINDOWS", "Listener", "Progress", "Recorder", "RunResult", "choose_engine", "evaluate", "train"]


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary, its trained model, and where it was written, if it was."""

    summary: dict[str, Any]
    model: nn.Module
    folder: Path | None


def choose_engine(config: TrainConfig, model: nn.Module, method: Method, data: Dataset) -> Engine:
    """Fused native steps where model, loss and method allow them, ordinary modules elsewhere."""
    if world_size() > 1:
        return distributed_engine(config, model, method, data.inputs("train", flatten=True), data.train_y)
    reason = why_not_fused(model, method)
    if config.engine == "fused" and reason:
        raise ConfigError(f"engine (='fused') cannot run this: {reason}")
    if config.engine == "module" or reason:
        return ModuleEngine(model, method, data.inputs("train", flatten=True), data.train_y)
    # The kernels read the bytes as they are stored: a quarter of the memory traffic.
    return FusedEngine(model, method, data.train_x.flatten(1), data.train_y, scale=1 / data.maximum)


def train(
    config: TrainConfig,
    out: Path | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    listener: Listener | None = None,
    recorder: Recorder | None = None,
) -> RunResult:
    """Train as the settings say. With ``out``, leave a run folder there.

    Everything that can be wrong with the settings, the data or the folder is found before the first step.

    Args:
        config: the settings of the run.
        out: the run folder to write.
        overwrite: replace what is there.
        resume: go on from the last checkpoint of a run with these settings; where there is none, begin. The result is
            that of a run which was never interrupted, bit for bit. A finished run is returned as it is.
        listener: is told after each window and each epoch.
        recorder: gets every record of ``metrics.jsonl`` as it comes, as (kind, values); see ``train/tensorboard.py``.

    In a process group, all ranks call this, and rank 0 writes and evaluates.
    """
    config.check()
    folder = None if out is None or rank() > 0 else RunFolder(out, overwrite=overwrite, resume=resume)
    if folder is not None and resume:
        check_same_run(config, folder.path)
    start = agree(config, folder, resume)
    config = start.config
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = datasets.load(config.data, path=config.data_path)
    if config.validation:
        data = datasets.split_validation(data, config.validation, seed=0)
    examples = Examples(len(data.train_y), data.inputs("test", flatten=True), data.test_y, data.shape)
    model = build_model(config, examples.test_x.shape[1], data.classes)
    per_epoch = -(-examples.count // config.batch_size)
    method = build_method(config, model, build_optimizer(config, model), per_epoch)
    if start.finished:
        return RunResult({}, model, None) if folder is None else _already_finished(folder, model)
    engine = choose_engine(path_to_go_on(folder, config) if resume else config, model, method, data)
    state = RunState(method.layer_active())
    kind = Run if rank() == 0 else Follower
    run = kind(config, model, method, engine, examples, state, folder, listener, recorder if rank() == 0 else None)
    if rank() > 0:
        follow(run, start)
        return RunResult({}, model, None)
    if folder is None:
        run.go(StopRequest())
        return RunResult(_summary(run), model, None)
    with StopRequest() as stop, folder:
        if resume:
            lead(folder)
            run.continue_from(load_checkpoint(folder, config, method, engine.name, run.per_epoch, run.observer))
        folder.write_json("config.json", config.as_dict())
        run.go(stop)
        summary = _summary(run)
        folder.finish(summary, model, model_card(config, summary))
    return RunResult(summary, model, folder.path)


def _summary(run: Run) -> dict[str, Any]:
    run.measure()
    summary = summarise(run.config, run.model, run.method, run.engine.name, run.steps, run.state)
    held = [*summary["ledger"], *(entry.__dict__ for entry in run.observer.entries())]
    return {**summary, "ledger": held, "processes": world_size()}


def _already_finished(folder: RunFolder, model: nn.Module) -> RunResult:
    """The run had ended; at most its folder had not got its name yet."""
    if not folder.path.exists():
        with folder:
            summary = load_finished(folder, model)
            folder.give_name()
    else:
        summary = load_finished(folder, model)
    return RunResult(summary, model, folder.path)
