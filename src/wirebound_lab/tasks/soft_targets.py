"""Targets that are probabilities of the classes: smoothed labels, and the answers of networks that were trained before."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from wirebound.methods import Setting
from wirebound_lab.data import Dataset
from wirebound_lab.run.config import ConfigError, RunConfig
from wirebound_lab.run.export_source import open_source

SOFT_TARGETS = (
    Setting("label_smoothing", "float", 0.0, "share of the target that all classes have in common", least=0, below=1),
    Setting("teachers", "list[str]", [], "run folders (or model files) of networks whose mean answer is learned too"),
    Setting("distill", "float", 0.5, "share of the teachers' answer in the target", least=0, most=1),
    Setting("teacher_temperature", "float", 1.0, "what the teachers' logits are divided by: above 1, softer answers", above=0),
)
_BATCH = 1000


def with_soft_targets(data: Dataset, config: RunConfig, seen: Callable[[Tensor], Tensor]) -> Dataset:
    """The data with probabilities for labels, if the settings ask for any; ``seen``: images as networks see them."""
    if not config.label_smoothing and not config.teachers:
        return data
    targets = F.one_hot(data.train_y, data.classes).float()
    targets = targets * (1 - config.label_smoothing) + config.label_smoothing / data.classes
    if config.teachers:
        targets = torch.lerp(targets, answers(data, config.teachers, config.teacher_temperature, seen), config.distill)
    return replace(data, train_y=targets)


@torch.no_grad()
def answers(data: Dataset, teachers: list[str], temperature: float, seen: Callable[[Tensor], Tensor]) -> Tensor:
    """[examples, classes]: what the teachers think of the training examples, on average."""
    total = torch.zeros(len(data.train_y), data.classes)
    for path in teachers:
        model = open_source(Path(path)).model.eval()
        parts = [model(seen(part)) for part in data.train_x.split(_BATCH)]
        if parts[0].shape[1] != data.classes:
            raise ConfigError(f"teacher (={path}) has {parts[0].shape[1]} outputs, the data {data.classes} classes")
        total += F.softmax(torch.cat(parts) / temperature, dim=1)
    return total / len(teachers)
