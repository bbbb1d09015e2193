"""What ``sparsify`` took and what it left dense, in one line.

Weights are parameters of two or more dimensions; biases and norms are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from torch import nn
from torch.nn.parameter import is_lazy

MOST_DENSE = 0.5  # share of the weights that may stay dense without a warning
_NAMED = 3  # modules of each group that the line names


@dataclass(frozen=True)
class Stayed:
    """A module with weights that stay dense."""

    name: str
    module: nn.Module
    weights: int
    why: str | None  # where its kind has a sparse twin
    excluded: bool  # by choice

    def __str__(self) -> str:
        kind = type(self.module).__name__
        return f"{self.name or 'the model'!r} ({kind}{f', which {self.why}' if self.why else ''}) {self.weights:,}"


@dataclass(frozen=True)
class Account:
    """The weights of a model: those that became sparse, and those that did not."""

    matrices: int
    taken: int
    connections: int
    masked: tuple[str, ...]
    frozen: tuple[str, ...]
    stayed: tuple[Stayed, ...]

    @property
    def dense_share(self) -> float:
        """Of the weights that nobody excluded, those that stayed dense."""
        left = sum(one.weights for one in self.stayed if not one.excluded)
        return left / max(1, self.taken + left)

    def __str__(self) -> str:
        total = self.taken + sum(one.weights for one in self.stayed)
        matrices = "1 matrix" if self.matrices == 1 else f"{self.matrices} matrices"
        parts = [f"{self.taken:,} of {total:,} weights ({matrices}) became sparse, with {self.connections:,} connections"]
        if self.masked:
            parts.append(f"masked, dense in every pass: {_list(map(repr, self.masked))}")
        if self.frozen:
            parts.append(f"not trained, as before: {_list(map(repr, self.frozen))}")
        left = [one for one in self.stayed if not one.excluded]
        embeddings = [one for one in left if isinstance(one.module, nn.Embedding | nn.EmbeddingBag)]
        others = [one for one in left if one not in embeddings]
        for what, group in (("dense embeddings", embeddings), ("dense", others)):
            if group:
                largest = sorted(group, key=lambda one: -one.weights)
                parts.append(f"{what}: {_list(map(str, largest))}")
        chosen = sum(one.weights for one in self.stayed if one.excluded)
        if chosen:
            parts.append(f"dense by choice: {chosen:,}")
        return "; ".join(parts)


def _list(names: Iterable[str]) -> str:
    named = list(names)
    rest = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def stayed_dense(
    model: nn.Module, taken: Collection[int], excluded: Collection[int], whys: Mapping[int, str]
) -> tuple[Stayed, ...]:
    """The modules with weights that are not ``taken`` (parameters by ``id``); ``excluded`` and ``whys`` are of modules by
    ``id``."""
    seen = set(taken)
    found = []
    for name, module in model.named_modules():
        weights = 0
        for parameter in module._parameters.values():
            if parameter is None or is_lazy(parameter) or parameter.dim() < 2 or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            weights += parameter.numel()
        if weights:
            found.append(Stayed(name, module, weights, whys.get(id(module)), id(module) in excluded))
    return tuple(found)
