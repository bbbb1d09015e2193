"""Sparse networks as samples of a posterior: kept along a run, averaged for prediction, measured against one network."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.checkpoint.model_state import bare, check_state, with_current_names
from wirebound.nn.sparse_layer import wirings

__all__ = ["Quality", "SampleCollector", "Samples", "calibration_error", "fit_power", "quality", "sharpen"]

_KIND = "posterior samples"


class Samples:
    """States of a model that were met along a run: K positions and θ for each wiring, all dense parameters and buffers.

    Args:
        model: the model whose states are collected; it is copied, so training may continue.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(bare(model))
        self.states: list[dict[str, Tensor]] = []
        self.steps: list[int] = []

    def __len__(self) -> int:
        return len(self.states)

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for state in self.states for tensor in state.values())

    def add(self, model: nn.Module, step: int) -> None:
        for wiring in wirings(model):
            wiring.check()
        state = {name: value.detach().clone() for name, value in bare(model).state_dict().items()}
        check_state(state, self.model)
        self.states.append(state)
        self.steps.append(step)

    def thin(self) -> None:
        """Let the first go, and every second one after it."""
        self.states, self.steps = self.states[1::2], self.steps[1::2]

    def last(self, count: int) -> Samples:
        self._check_counts(count)
        found = Samples(self.model)
        found.states, found.steps = self.states[-count:], self.steps[-count:]
        return found

    def _check_counts(self, *counts: int) -> None:
        if any(not 1 <= count <= len(self) for count in counts):
            raise ValueError(f"count (={list(counts)}) must be in [1, {len(self)}], the number of samples")

    def models(self) -> Iterator[nn.Module]:
        """Each sample as a model: one model that is given their states in turn."""
        self.model.eval()
        for state in self.states:
            self.model.load_state_dict(state)
            yield self.model

    @torch.no_grad()
    def each(self, x: Tensor, batch_size: int = 1000) -> Iterator[Tensor]:
        """The softmax probabilities [examples, classes] of each sample in turn."""
        if not self.states:
            raise ValueError("there are no samples yet")
        for model in self.models():
            yield torch.cat([model(part).softmax(1) for part in x.split(batch_size)])

    def predict(self, x: Tensor, batch_size: int = 1000) -> Tensor:
        """Probabilities [examples, classes]: the mean over all samples, p(y | x) ≈ (1/n) Σ p(y | x, θ_i, c_i)."""
        return _running_means(self.each(x, batch_size))[-1]

    def predictions(self, x: Tensor, counts: Sequence[int], batch_size: int = 1000) -> list[Tensor]:
        """``last(count).predict(x)`` for several counts, with one pass through the samples."""
        self._check_counts(*counts)
        means = _running_means(reversed(list(self.each(x, batch_size))))
        return [means[count - 1] for count in counts]

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, safetensors and JSON, written atomically."""
        # By number and not as a list: names of tensors then sort as samples do.
        states = {f"{number:06d}": state for number, state in enumerate(self.states)}
        save(path, extra={"kind": _KIND, "steps": list(self.steps), "states": states})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> Samples:
        """Samples of ``model``, made as it was for ``save``. Nothing in the file is executed, everything is checked."""
        match load(path).extra:
            case {"kind": str(kind), "steps": list(steps), "states": dict(states), **rest} if kind == _KIND and not rest:
                pass
            case _:
                raise CheckpointError(f"{path} cannot be loaded: it must hold {_KIND}")
        if len(steps) != len(states) or not all(type(step) is int and step >= 0 for step in steps):
            raise CheckpointError(f"{path} cannot be loaded: there must be a step >= 0 for each sample")
        found = cls(model)
        for name in sorted(states):
            try:
                state = with_current_names(states[name], found.model)
                check_state(state, found.model)
            except CheckpointError as error:
                raise CheckpointError(f"{path} cannot be loaded: sample {name!r}: {error}") from None
            found.states.append(state)
        found.steps = list(steps)
        return found


class SampleCollector:
    """Offered the model after each step (or epoch), keeps some of them.

    Args:
        model: the model in training.
        every: keep one in so many that are offered.
        burn_in: keep none of the first so many.
        keep: at most so many; when there would be more, every second one goes and ``every`` doubles.

        collector = wb.SampleCollector(model, every=600, burn_in=6000, keep=20)
        ...
        rewiring.step()
        collector.offer()
        ...
        probabilities = collector.samples.predict(x)
    """

    def __init__(self, model: nn.Module, *, every: int = 1, burn_in: int = 0, keep: int | None = None) -> None:
        for name, value, least in (("every", every, 1), ("burn_in", burn_in, 0), ("keep", keep, 2)):
            if value is not None and value < least:
                raise ValueError(f"{name} (={value}) must be >= {least}")
        self.model, self.every, self.burn_in, self.keep = model, every, burn_in, keep
        self.offered, self.samples = 0, Samples(model)

    def offer(self) -> bool:
        """Tell that the model has moved on; True if it was kept."""
        self.offered += 1
        after = self.offered - self.burn_in
        if after < 1 or after % self.every:
            return False
        if self.keep is not None and len(self.samples) == self.keep:
            self.samples.thin()  # the second, fourth … remain: the multiples of the new interval
            self.every *= 2
            if after % self.every:
                return False
        self.samples.add(self.model, self.offered)
        return True


def _running_means(values: Iterator[Tensor]) -> list[Tensor]:
    """The means of the first, of the first two, and so on."""
    means, total = list[Tensor](), torch.zeros((), dtype=torch.float64)
    for value in values:
        total = total + value
        means.append((total / (len(means) + 1)).to(value.dtype))
    return means


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
    ece = calibration_error(probabilities, labels)
    right = probabilities.argmax(1) == labels
    of_label = probabilities.gather(1, labels[:, None]).clamp(min=torch.finfo(probabilities.dtype).tiny)
    return Quality(float(right.double().mean()), float(-of_label.double().log().mean()), ece)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
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
    """The power in [low, high] under which held-out labels are likeliest (temperature scaling, Guo et al. 2017)."""
    _check(probabilities, labels)
    logarithms = _logarithms(probabilities)  # the loss is convex in the power
    while high - low > 1e-4:
        third = (high - low) / 3
        left, right = (nn.functional.cross_entropy(logarithms * power, labels) for power in (low + third, high - third))
        low, high = (low, high - third) if left < right else (low + third, high)
    return (low + high) / 2


def _logarithms(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=torch.finfo(torch.float64).tiny).log()


def _check(probabilities: Tensor, labels: Tensor) -> None:
    if probabilities.dim() != 2 or labels.shape != probabilities.shape[:1] or not len(labels):
        shapes = f"probabilities {tuple(probabilities.shape)} and labels {tuple(labels.shape)}"
        raise ValueError(f"{shapes} must be [examples, classes] and a label for each example")
    if not bool(((probabilities >= 0) & (probabilities <= 1 + 1e-5)).all()):
        raise ValueError("probabilities must be in [0, 1]: pass softmax outputs, not logits")
