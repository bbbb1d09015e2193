"""How good predicted probabilities are: accuracy, likelihood, and whether their confidence can be believed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

BINS = 15


@dataclass(frozen=True)
class Quality:
    """Of predictions: share that is right, mean −log p(label), and expected calibration error."""

    accuracy: float
    nll: float
    ece: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def quality(probabilities: Tensor, labels: Tensor) -> Quality:
    """All measures of probabilities [examples, classes]."""
    _check(probabilities, labels)
    right = probabilities.argmax(1) == labels
    of_label = probabilities.gather(1, labels[:, None]).clamp(min=torch.finfo(probabilities.dtype).tiny)
    accuracy, nll = float(right.double().mean()), float(-of_label.double().log().mean())
    return Quality(accuracy, nll, calibration_error(probabilities, labels))


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> float:
    """Σ over bins of confidence of (share of examples) · |accuracy − mean confidence| (Guo et al. 2017)."""
    _check(probabilities, labels)
    confidence, predicted = probabilities.double().max(1)
    right = (predicted == labels).double()
    # Bins are (i/n, (i+1)/n]; a confidence of exactly 1 belongs to the last.
    number = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64).index_add(0, number, right - confidence)
    return float(gap.abs().sum() / len(labels))


def sharpen(probabilities: Tensor, power: float) -> Tensor:
    """p^power, scaled to sum 1: surer of themselves above 1, less sure below."""
    if not power > 0:
        raise ValueError(f"power (={power}) must be > 0")
    return (_logarithms(probabilities) * power).softmax(1)


def fit_power(probabilities: Tensor, labels: Tensor, low: float = 0.1, high: float = 10.0) -> float:
    """The power in [low, high] that gives the labels of held-out examples the highest likelihood.

    One number for all examples (temperature scaling, Guo et al. 2017); the negative log-likelihood is convex in it.
    """
    _check(probabilities, labels)
    logarithms = _logarithms(probabilities)

    def loss(power: float) -> float:
        return float(torch.nn.functional.cross_entropy(logarithms * power, labels))

    while high - low > 1e-4:
        third = (high - low) / 3
        if loss(low + third) < loss(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def _logarithms(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()


def _check(probabilities: Tensor, labels: Tensor) -> None:
    if probabilities.dim() != 2 or labels.shape != probabilities.shape[:1] or not len(labels):
        shapes = f"probabilities {tuple(probabilities.shape)} and labels {tuple(labels.shape)}"
        raise ValueError(f"{shapes} must be [examples, classes] and a label for each example")
    if not bool(((probabilities >= 0) & (probabilities <= 1 + 1e-5)).all()):
        raise ValueError("probabilities must be in [0, 1]: pass softmax outputs, not logits")
