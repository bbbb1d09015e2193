"""What a wiring knows of each of its layers: its shape, and the rates that it has of its own."""

from dataclasses import dataclass, replace

from torch import Tensor

_ENOUGH = 4096  # numbers for a mean: so few that torch adds them up in one order, whatever its threads


def mean_of(values: Tensor) -> float:
    """The mean of some numbers that are spread over all of these; 0 of none."""
    if (count := values.numel()) > _ENOUGH:
        values = values[:: -(-count // _ENOUGH)]
    return values.mean().item() if count else 0.0


@dataclass(frozen=True)
class LayerShape:
    """One matrix of a wiring: outputs are rows, inputs are columns."""

    name: str
    n_out: int
    n_in: int

    @property
    def possible(self) -> int:
        return self.n_out * self.n_in


@dataclass(frozen=True)
class LayerRates:
    """One value for each layer of a wiring; a wiring in which nothing is special has none of these (``None``)."""

    lr: tuple[float, ...]  # factors on the learning rate of the optimiser's group
    weight_decay: tuple[float, ...]  # and on its weight decay
    frozen: tuple[bool, ...]  # no connection of the layer moves, dies or is born; never all of them

    @classmethod
    def plain(cls, layers: int) -> "LayerRates":
        return cls((1.0,) * layers, (1.0,) * layers, (False,) * layers)

    @property
    def are_plain(self) -> bool:
        return self == LayerRates.plain(len(self.lr))

    def changed(self, layer_id: int, **factors: float) -> "LayerRates":
        values = {name: list(getattr(self, name)) for name in factors}
        for name, factor in factors.items():
            values[name][layer_id] = factor
        return replace(self, **{name: tuple(changed) for name, changed in values.items()})
