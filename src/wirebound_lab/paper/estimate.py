"""How long runs will take on this machine, by a few steps of each kind of run, taken before the first of them."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wirebound_lab.paper.job import Job, Say, TrainJob
from wirebound_lab.run import train
from wirebound_lab.run.config import RunConfig, make_config

_EXAMPLES = {"cifar": 50_000, "perceptron": 60_000, "shuffled": 60_000, "phonemes": 2_400}  # of the data sets that figures use
_STEPS = 8
_BESIDE = 1.1  # evaluation and the rest, beside the steps


def trial_of(config: RunConfig) -> RunConfig | None:
    """A few steps of such a run; None of a kind that takes seconds anyway."""
    some = _STEPS * config.batch_size
    few: Mapping[str, Any] = {
        "cifar": {"images": some, "test_images": 500, "evaluate_every": 1},
        "phonemes": {"utterances": some, "test_utterances": 32},
    }.get(config.task, {})  # of the others an epoch, which takes seconds
    if config.task not in _EXAMPLES or (config.task == "perceptron" and config.method in ("deep-r", "fixed")):
        return None
    return make_config(config.as_dict(), {"epochs": 1, "threads": 1, **few})


def _kind(config: RunConfig) -> tuple[object, ...]:
    """Runs of one kind take equally long for a step; on MNIST all points of a method do."""
    point = () if config.task == "perceptron" else (config.connectivity, *getattr(config, "hidden", ()))
    limits = (getattr(config, "images", None), getattr(config, "utterances", None))
    return (config.task, config.method, config.batch_size, *point, *limits)


def seconds_of(jobs: Sequence[Job]) -> float:
    """Seconds of one core for all of ``jobs``, by trials; jobs of kinds that take seconds are not counted."""
    kinds: dict[tuple[object, ...], list[RunConfig]] = {}
    for job in jobs:
        if isinstance(job, TrainJob):
            kinds.setdefault(_kind(job.config), []).append(job.config)
    total = 0.0
    with tempfile.TemporaryDirectory(prefix="wirebound-") as folder:
        for number, configs in enumerate(kinds.values()):
            trial = trial_of(configs[0])
            if trial is None:
                continue
            summary: Mapping[str, Any] = train(trial, Path(folder) / str(number)).summary
            a_step = summary["training_seconds"] / summary["steps"]
            total += sum(_BESIDE * a_step * config.epochs * -(-_examples(config) // config.batch_size) for config in configs)
    return total


def _examples(config: RunConfig) -> int:
    limit = getattr(config, "images", None) or getattr(config, "utterances", None)
    return limit or _EXAMPLES[config.task]


def say_how_long(jobs: Sequence[Job], workers: int, say: Say) -> None:
    seconds = seconds_of(jobs) / workers
    if seconds >= 60:
        words = f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"
        say(f"what is left takes about {words} here, {workers} at a time, by a few steps of each kind")
