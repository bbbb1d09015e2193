"""The most connections that a method without a budget ever had: what its results must be held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Highest:
    """The highest count in all, and of each layer (not all in the same step)."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.active = sum(layers)
        self.layers = list(layers)

    def see(self, layers: Sequence[int]) -> None:
        """Note the counts of a step."""
        self.active = max(self.active, sum(layers))
        self.layers = [max(a, b) for a, b in zip(self.layers, layers, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {"active": self.active, "layers": list(self.layers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        layers = [int(n) for n in state["layers"]]
        if len(layers) != len(self.layers):
            raise ValueError(f"state has highest counts of {len(layers)} layers, but the method has {len(self.layers)}")
        self.active, self.layers = int(state["active"]), layers


class HasHighest:
    """What a method without a budget tells of the most connections that it ever had."""

    highest: Highest

    @property
    def highest_active(self) -> int:
        """The most connections that were ever active at once."""
        return self.highest.active

    @property
    def highest_layer_active(self) -> list[int]:
        """The most of each layer."""
        return list(self.highest.layers)
