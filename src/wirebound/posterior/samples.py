"""``Samples``: networks of one shape, each kept in O(K) numbers, that predict together; and who collects them."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.checkpoint.model_state import bare, check_state, with_current_names
from wirebound.nn.sparse_layer import wirings

_KIND = "posterior samples"


class Samples:
    """States of a model that were met along a run.

    A sample is the model's state dict: K positions and θ for each wiring, and all dense parameters and buffers.

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
        """Keep the model as it is now."""
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
        """The latest ``count`` of them."""
        if not 1 <= count <= len(self):
            raise ValueError(f"count (={count}) must be in [1, {len(self)}], the number of samples")
        found = Samples(self.model)
        found.states, found.steps = self.states[-count:], self.steps[-count:]
        return found

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
        if any(not 1 <= count <= len(self) for count in counts):
            raise ValueError(f"counts (={list(counts)}) must be in [1, {len(self)}], the number of samples")
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
    means: list[Tensor] = []
    total: Tensor | None = None
    for value in values:
        total = value.double() if total is None else total + value
        means.append((total / (len(means) + 1)).to(value.dtype))
    return means
