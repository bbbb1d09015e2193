"""One loop for the experiments with data and networks of their own: epochs, what was measured, and the run folder.

A checkpoint is written after every epoch. An interrupted run goes on from there: what it had done of the epoch that was
running is done again, and the result is that of a run which was never interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.engine.modules import DivergedError
from wirebound.engine.window import StepWindow, Tally
from wirebound.nn.sparse_layer import wirings
from wirebound_lab.run.interrupt import Interrupted, StopRequest
from wirebound_lab.run.observe import Observer
from wirebound_lab.run.record import RunFolder
from wirebound_lab.tasks.same_run import check_same
from wirebound_lab.tasks.task import Progress, Task, summarise
from wirebound_lab.tasks.task_config import TaskConfig

_WINDOWS = 400  # points of the loss curve of a run


def run_task(
    task_of: Callable[[Any], Task], config: TaskConfig, out: Path, *, overwrite: bool = False, resume: bool = False
) -> dict[str, Any]:
    """Train as the settings say and leave a run folder; returns its summary. ``task_of`` makes the task of a config."""
    config.check()
    folder = RunFolder(out, overwrite=overwrite, resume=resume)
    if resume:
        check_same(config.identity(), out)
    if folder.finished and folder.path.exists():
        return read_summary(folder.path)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    task = task_of(config)
    progress = Progress(task.method.layer_active())
    progress.active_min = progress.active_max = sum(progress.initial)
    observer = Observer(task.method)
    with StopRequest() as stop, folder:
        if resume:
            progress = _continued(folder, task, progress, observer)
        folder.write_json("config.json", config.as_dict())
        if progress.epoch == 0:
            _record_wiring(task, folder, observer, 0)
        while progress.epoch < config.epochs:
            _epoch(task, folder, progress, stop)
            _record_wiring(task, folder, observer, progress.epoch)
            progress.metrics = folder.position()
            save(folder.checkpoint, method=task.method, extra=_extra(task, progress, observer), random_state=False)
        summary = summarise(task, progress, observer)
        folder.finish(summary, task.method.model)
    return summary


def read_summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


# One epoch


def _epoch(task: Task, folder: RunFolder, progress: Progress, stop: StopRequest) -> None:
    started, number, method = time.perf_counter(), progress.epoch + 1, task.method
    every = max(1, task.steps // _WINDOWS)
    method.model.train()
    whole, window, before = Tally(), Tally(), method.layer_active()

    def record() -> None:
        nonlocal window, before
        now = method.layer_active()
        # Who was born and is not there any more, and who else is gone.
        deaths = [new - (b - a) for new, a, b in zip(window.newborns, before, now, strict=True)]
        folder.metric("window", **window.as_record(), deaths=deaths if method.counts_newborns else None)
        window, before = Tally(), now

    for batch in task.batches(number):
        if stop():
            assert stop.signal is not None
            kept = f"the {progress.epoch} epochs before it are kept" if progress.epoch else "nothing is kept"
            raise Interrupted(
                f"interrupted in epoch {number}; {kept}; go on with --resume --out {folder.path}", 128 + stop.signal
            )
        part = _step(task, batch)
        progress.active_min = min(progress.active_min, part.active_min)
        progress.active_max = max(progress.active_max, part.active_max)
        whole.add(part)
        window.add(part)
        if part.step_to % every == 0:
            record()
    if window.step_from:
        record()
    for wiring in wirings(method.model):
        wiring.check()
    method.model.eval()
    measured = task.measure(number, progress.figures)
    progress.epoch = number
    progress.seconds += time.perf_counter() - started
    active = method.layer_active()
    folder.metric(
        "epoch",
        epoch=number,
        step=method.steps,
        train_loss=whole.mean_loss,
        **measured,
        lr=method.optimizer.param_groups[0]["lr"],
        active=sum(active),
        rewired=sum(whole.newborns),
        layer_active=active,
        seconds=round(progress.seconds, 3),
    )
    shown = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in measured.items() if value is not None)
    print(
        f"epoch {number:>3}: loss {whole.mean_loss:.4f}, {shown}, active {sum(active):,}, {progress.seconds:.0f} s", flush=True
    )


def _step(task: Task, batch: Any) -> StepWindow:
    method = task.method
    lr = task.config.lr * task.lr_factor(method.steps / max(1, task.steps - 1))
    for group in method.optimizer.param_groups:
        group["lr"] = lr
    loss = task.loss(batch)
    value = loss.item()
    if not math.isfinite(value):
        raise DivergedError(f"the loss (={value}) in step {method.steps + 1} must be a finite number; try a lower learning rate")
    loss.backward()  # type: ignore[no-untyped-call]
    task.after_backward()
    info = method.step()
    method.zero_grad()
    task.after_step()
    return StepWindow(info.step, info.step, value, info.active, info.active, list(info.layer_rewired), [value])


def _record_wiring(task: Task, folder: RunFolder, observer: Observer, epoch: int) -> None:
    """Where the connections are and how old, after an epoch."""
    seen = observer.look(epoch)
    if seen is not None:
        folder.metric("wiring", epoch=epoch, step=task.method.steps, shape=list(task.input_shape), **seen)


# Going on with a run


def _extra(task: Task, progress: Progress, observer: Observer) -> dict[str, Any]:
    return {
        "experiment": task.name,
        "config": task.config.identity(),
        "progress": dataclasses.asdict(progress),
        "observed": observer.state(),
    }


def _continued(folder: RunFolder, task: Task, start: Progress, observer: Observer) -> Progress:
    """The state of the last checkpoint, put into its objects; ``start`` if there is none."""
    if not folder.checkpoint.exists():
        folder.rewind(0)
        return start
    extra = load(folder.checkpoint, method=task.method).extra
    names = {f.name for f in dataclasses.fields(Progress)}
    if (
        not isinstance(extra, dict)
        or set(extra) != {"experiment", "config", "progress", "observed"}
        or extra.get("experiment") != task.name
        or extra.get("config") != task.config.identity()
        or not isinstance(extra.get("progress"), dict)
        or set(extra["progress"]) != names
    ):
        raise CheckpointError(f"{folder.checkpoint} is not of a run of this experiment with these settings")
    progress = Progress(**extra["progress"])
    observer.load(extra["observed"], progress.epoch)
    folder.rewind(progress.metrics)
    return progress
