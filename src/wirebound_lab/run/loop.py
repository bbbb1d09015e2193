"""A training run from settings to run folder: one entry for all tasks, methods and engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wirebound.distributed import rank
from wirebound_lab.run.config import RunConfig, tasks
from wirebound_lab.run.distributed import Follower, agree, follow, lead
from wirebound_lab.run.engines import choose_engine
from wirebound_lab.run.interrupt import StopRequest
from wirebound_lab.run.record import RunFolder
from wirebound_lab.run.resume import RunState, check_same_run, load_checkpoint, load_finished, path_to_go_on
from wirebound_lab.run.running import Listener, Recorder, RunProgress, TrainingRun
from wirebound_lab.run.summary import model_card, summarise

__all__ = ["Listener", "Recorder", "RunProgress", "RunResult", "choose_engine", "train"]


@dataclass(frozen=True)
class RunResult:
    """A finished run: its summary, its trained model, and where it was written, if it was."""

    summary: dict[str, Any]
    model: nn.Module
    folder: Path | None


def train(
    config: RunConfig,
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
        resume: resume the run with these settings from its last checkpoint, bit for bit; where there is none, begin. A
            finished run is returned as it is.
        listener: is told after each window and each epoch.
        recorder: gets every record of ``metrics.jsonl`` as it comes, as (kind, values); see ``run/tensorboard.py``.

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
    task = tasks()[config.task](config)
    method, model = task.method, task.method.model
    if start.finished:
        return RunResult({}, model, None) if folder is None else _already_finished(folder, model)
    engine = task.engine(path_to_go_on(folder, config) if resume else config)
    kind, recorder = (TrainingRun, recorder) if rank() == 0 else (Follower, None)
    run = kind(task, engine, RunState(method.layer_active()), folder, listener, recorder)
    if rank() > 0:
        follow(run, start)
        return RunResult({}, model, None)
    if folder is None:
        run.go(StopRequest())
        return RunResult(summarise(run), model, None)
    with StopRequest() as stop, folder:
        if resume:
            lead(folder)
            run.continue_from(load_checkpoint(folder, config, method, engine.name, task, run.observer))
        folder.write_json("config.json", config.as_dict())
        run.go(stop)
        summary = summarise(run)
        folder.finish(summary, model, model_card(config, summary))
    return RunResult(summary, model, folder.path)


def _already_finished(folder: RunFolder, model: nn.Module) -> RunResult:
    """The run had ended; at most its folder had not got its name yet."""
    if not folder.path.exists():
        with folder:
            summary = load_finished(folder, model)
            folder.give_name()
    else:
        summary = load_finished(folder, model)
    return RunResult(summary, model, folder.path)
