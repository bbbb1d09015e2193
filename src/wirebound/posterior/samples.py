"""``Samples``: networks of one shape, each kept in O(K) numbers, that predict together."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from wirebound.checkpoint import CheckpointError, load, save
from wirebound.checkpoint.model_state import bare, check_state
from wirebound.nn.sparse_layer import wirings

_KIND = "posterior samples"
State = dict[str, Tensor]


class Samples:
    """States of a model that were met along a run.

    A sample is the model's state dict: for each wiring the K codes and θ and the column pointers, and all dense
    parameters and buffers. Nothing of the size of a matrix is kept.

    Args:
        model: the model whose states are collected; it is copied, so training may go on.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(bare(model))
        self.states: list[State] = []
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
        return running_means(self.each(x, batch_size))[-1]

    def predictions(self, x: Tensor, counts: Sequence[int], batch_size: int = 1000) -> list[Tensor]:
        """``last(count).predict(x)`` for several counts, with one pass through the samples."""
        if any(not 1 <= count <= len(self) for count in counts):
            raise ValueError(f"counts (={list(counts)}) must be in [1, {len(self)}], the number of samples")
        means = running_means(reversed(list(self.each(x, batch_size))))
        return [means[count - 1] for count in counts]

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file, safetensors and JSON, written atomically."""
        # By number and not as a list: names of tensors then sort as samples do.
        states = {f"{number:06d}": state for number, state in enumerate(self.states)}
        save(path, extra={"kind": _KIND, "steps": list(self.steps), "states": states})

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> Samples:
        """Samples of ``model``, made as it was for ``save``. Nothing in the file is executed, everything is checked."""
        extra = load(Path(path)).extra
        if not isinstance(extra, dict) or extra.get("kind") != _KIND or set(extra) != {"kind", "steps", "states"}:
            raise CheckpointError(f"{path} cannot be loaded: it must hold {_KIND}")
        steps, states = extra["steps"], extra["states"]
        if not isinstance(states, dict) or not isinstance(steps, list) or len(steps) != len(states):
            raise CheckpointError(f"{path} cannot be loaded: there must be a step for each sample")
        if not all(type(step) is int and step >= 0 for step in steps):
            raise CheckpointError(f"{path} cannot be loaded: steps must be numbers >= 0")
        found = cls(model)
        for name in sorted(states):
            try:
                check_state(states[name], found.model)
            except CheckpointError as error:
                raise CheckpointError(f"{path} cannot be loaded: sample {name!r}: {error}") from None
            found.states.append(states[name])
        found.steps = list(steps)
        return found


def running_means(values: Iterator[Tensor]) -> list[Tensor]:
    """The means of the first, of the first two, and so on."""
    means: list[Tensor] = []
    total: Tensor | None = None
    for value in values:
        total = value.double() if total is None else total + value
        means.append((total / (len(means) + 1)).to(value.dtype))
    return means
