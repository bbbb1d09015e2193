"""Many training runs, some at a time, each once: what is finished is read, not repeated."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch

from wirebound.train import TrainConfig, train
from wirebound.train.engine import DivergedError
from wirebound.train.resume import check_same_run


def run_all(
    configs: Mapping[str, TrainConfig], out: Path, jobs: int
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(summaries, why others have none) of these runs, by name: some settings let a run diverge. Folders are in ``out``."""
    found = {name: summary for name, config in configs.items() if (summary := finished(config, out / name)) is not None}
    lost: dict[str, str] = {}
    left = {name: config for name, config in configs.items() if name not in found}
    print(f"{len(configs)} runs, {len(found)} of them finished before", flush=True)
    for name, result in _results(left, out, jobs):
        try:
            summary = found[name] = result()
        except DivergedError as error:
            lost[name] = str(error)
            continue
        accuracy, seconds = 100 * summary["test_accuracy"], summary["seconds"]
        print(f"{len(found):>4}/{len(configs)}  {name:<60} {accuracy:6.2f} %  {seconds:6.1f} s", flush=True)
    return {name: found[name] for name in configs if name in found}, lost


def _results(
    configs: Mapping[str, TrainConfig], out: Path, jobs: int
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """(name, how to get its summary) of each run, as it comes to an end."""
    if jobs == 1 or not configs:
        for name, config in configs.items():
            yield name, partial(run_one, config, out / name)
        return
    # Started afresh: a fork of a process whose torch has threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context) as pool:
        waiting = {pool.submit(run_one, config, out / name): name for name, config in configs.items()}
        for done in as_completed(waiting):
            yield waiting[done], done.result


def finished(config: TrainConfig, folder: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended; an error if a run of other settings has its name."""
    if not (folder / "summary.json").exists():
        return None
    check_same_run(config, folder)
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def run_one(config: TrainConfig, folder: Path) -> dict[str, Any]:
    """One run, from its last checkpoint if it was interrupted."""
    torch.set_num_threads(1)
    return train(config, folder, resume=True).summary
