"""A run of the speech experiment: epochs of padded batches, the error on held-out speakers, and the run folder.

A checkpoint is written after every epoch. An interrupted run goes on from there: what it had done of the epoch that was
running is done again, and the result is that of a run which was never interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import optim

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.data import SequenceDataset, load_sequences
from wirebound.data.sequences import Batch
from wirebound.experiments.phoneme_config import PhonemeConfig
from wirebound.experiments.phoneme_model import dense_model, frame_errors, frame_loss, sparse_model
from wirebound.experiments.phoneme_summary import Progress, summarise
from wirebound.methods import DeepR, Dense, Fixed, Method
from wirebound.nn.part import wirings
from wirebound.train.engine import DivergedError
from wirebound.train.interrupt import Interrupted, StopRequest
from wirebound.train.record import RunFolder, RunFolderError
from wirebound.train.summary import layer_active
from wirebound.train.window import Tally, Window

_WINDOW = 10  # steps of a point of the loss curve
_EVALUATION_BATCH = 64


def build(config: PhonemeConfig, data: SequenceDataset) -> Method:
    """Model, optimiser and method of a run."""
    sizes = (data.features, config.hidden, data.classes)
    if config.method == "dense":
        model = dense_model(*sizes, seed=config.seed)
    else:
        model = sparse_model(*sizes, config.connectivity, config.budget, config.seed)
    optimizer = optim.Adam(model.parameters(), lr=config.lr, eps=config.eps, weight_decay=config.weight_decay)
    if config.method == "dense":
        return Dense(model, optimizer)
    if config.method == "fixed":
        return Fixed(model, optimizer)
    return DeepR(model, optimizer, l1=config.l1, temperature=config.temperature, newborns=config.newborns)


def run(config: PhonemeConfig, out: Path, *, overwrite: bool = False, resume: bool = False) -> dict[str, Any]:
    """Train as the settings say and leave a run folder; returns its summary."""
    config.check()
    folder = RunFolder(out, overwrite=overwrite, resume=resume)
    if resume:
        _check_same(config, out)
    if folder.finished and folder.path.exists():
        summary: dict[str, Any] = json.loads((folder.path / "summary.json").read_text(encoding="utf-8"))
        return summary
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    data = load_sequences(config.data, config.data_path, partial=config.partial)
    data = data.split_validation(config.validation, config.seed)
    method = build(config, data)
    progress = Progress(layer_active(method.model, method))
    progress.active_min = progress.active_max = sum(progress.initial)
    with StopRequest() as stop, folder:
        if resume:
            progress = _continued(folder, config, method, progress)
        folder.write_json("config.json", config.as_dict())
        while progress.epoch < config.epochs:
            _epoch(config, data, method, folder, progress, stop)
            progress.metrics = folder.position()
            save(folder.checkpoint, method=method, extra=_extra(config, progress), random_state=False)
        summary = summarise(config, data, method, progress)
        folder.finish(summary, method.model)
    return summary


def _epoch(
    config: PhonemeConfig, data: SequenceDataset, method: Method, folder: RunFolder, progress: Progress, stop: StopRequest
) -> None:
    started, number = time.perf_counter(), progress.epoch + 1
    order = data.order("train", config.seed, number)[: config.utterances]
    method.model.train()
    progress.whole, window = Tally(), Tally()
    for batch in data.batches(config.batch_size, order):
        if stop():
            assert stop.signal is not None
            kept = f"the {progress.epoch} epochs before it are kept" if progress.epoch else "nothing is kept"
            raise Interrupted(
                f"interrupted in epoch {number}; {kept}; go on with --resume --out {folder.path}", 128 + stop.signal
            )
        part = _step(method, batch)
        progress.active_min = min(progress.active_min, part.active_min)
        progress.active_max = max(progress.active_max, part.active_max)
        progress.whole.add(part)
        window.add(part)
        if part.step_to % _WINDOW == 0:
            folder.metric("window", **window.as_record())
            window = Tally()
    if window.step_from:
        folder.metric("window", **window.as_record())
    for wiring in wirings(method.model):
        wiring.check()
    _measure(config, data, method, progress, number)
    progress.epoch = number
    progress.seconds += time.perf_counter() - started
    active = layer_active(method.model, method)
    tested = number in (progress.best_epoch, config.epochs)
    folder.metric(
        "epoch",
        epoch=number,
        step=method.steps,
        train_loss=progress.whole.mean_loss,
        validation_error=progress.validation_error,
        test_error=progress.test_error if tested else None,
        test_accuracy=1 - progress.test_error if tested else None,
        test_loss=progress.test_loss if tested else None,
        lr=config.lr,
        active=sum(active),
        rewired=sum(progress.whole.newborns),
        layer_active=active,
        seconds=round(progress.seconds, 3),
    )
    print(
        f"epoch {number:>3}: loss {progress.whole.mean_loss:.4f}, validation error {100 * progress.validation_error:.2f} %,"
        f" active {sum(active):,}, {progress.seconds:.0f} s",
        flush=True,
    )


def _step(method: Method, batch: Batch) -> Window:
    loss = frame_loss(method.model(batch.x, batch.lengths), batch.y)
    value = loss.item()
    if not math.isfinite(value):
        raise DivergedError(f"the loss (={value}) in step {method.steps + 1} must be a finite number; try a lower learning rate")
    loss.backward()
    info = method.step()
    method.zero_grad()
    return Window(info.step, info.step, value, info.active, info.active, list(info.layer_rewired), [value])


def _measure(config: PhonemeConfig, data: SequenceDataset, method: Method, progress: Progress, number: int) -> None:
    """Validation after every epoch; the test set where its error counts: at a new best, and at the end."""
    progress.validation_error, _ = evaluate(data, method, "validation")
    better = progress.best_epoch == 0 or progress.validation_error < progress.best_validation_error
    if better or number == config.epochs:
        progress.test_error, progress.test_loss = evaluate(data, method, "test")
    if better:
        progress.best_epoch, progress.best_validation_error = number, progress.validation_error
        progress.best_test_error = progress.test_error


def evaluate(data: SequenceDataset, method: Method, part: str) -> tuple[float, float]:
    """(share of wrong frames, mean cross-entropy) on a part."""
    method.model.eval()
    wrong, frames, loss = 0, 0, 0.0
    for batch in _batches(data, part):
        counts = frame_errors(method.model, batch)
        wrong, frames, loss = wrong + counts[0], frames + counts[1], loss + counts[2]
    return wrong / max(1, frames), loss / max(1, frames)


def _batches(data: SequenceDataset, part: str) -> Iterator[Batch]:
    return data.batches(_EVALUATION_BATCH, data.part(part))


def _extra(config: PhonemeConfig, progress: Progress) -> dict[str, Any]:
    return {"experiment": "phonemes", "config": config.identity(), "progress": dataclasses.asdict(progress)}


def _continued(folder: RunFolder, config: PhonemeConfig, method: Method, start: Progress) -> Progress:
    """The state of the last checkpoint, put into its objects; ``start`` if there is none."""
    if not folder.checkpoint.exists():
        folder.rewind(0)
        return start
    extra = load(folder.checkpoint, method=method).extra
    names = {f.name for f in dataclasses.fields(Progress)}
    if (
        not isinstance(extra, dict)
        or extra.get("experiment") != "phonemes"
        or extra.get("config") != config.identity()
        or not isinstance(extra.get("progress"), dict)
        or set(extra["progress"]) != names
    ):
        raise CheckpointError(f"{folder.checkpoint} is not of a run of this experiment with these settings")
    stored = dict(extra["progress"])
    progress = Progress(**{**stored, "whole": Tally(**stored["whole"])})
    folder.rewind(progress.metrics)
    return progress


def _check_same(config: PhonemeConfig, out: Path) -> None:
    for place in (out, out.with_name(out.name + ".partial")):
        path = place / "config.json"
        if not path.exists():
            continue
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error
        for name, value in config.identity().items():
            if not isinstance(stored, dict) or stored.get(name) != value:
                held = stored.get(name) if isinstance(stored, dict) else None
                raise RunFolderError(f"{name} (={value!r}) must be that of the run in {out} (={held!r}) to resume it")
        return
