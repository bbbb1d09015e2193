"""What layers of one wiring may have of their own: factors on the optimiser's rates, or that they are frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LayerRates:
    """One value for each layer of a wiring; a wiring in which nothing is special has none of these (``None``)."""

    lr: tuple[float, ...]  # factors on the learning rate of the optimiser's group
    weight_decay: tuple[float, ...]  # and on its weight decay
    frozen: tuple[bool, ...]  # no connection of the layer moves, dies or is born; never all of them

    @classmethod
    def plain(cls, layers: int) -> LayerRates:
        return cls((1.0,) * layers, (1.0,) * layers, (False,) * layers)

    @property
    def are_plain(self) -> bool:
        return self == LayerRates.plain(len(self.lr))

    @property
    def have_factors(self) -> bool:
        return any(factor != 1 for factor in (*self.lr, *self.weight_decay))

    def changed(
        self, layer: int, *, lr: float | None = None, weight_decay: float | None = None
    ) -> LayerRates:
        """The same with other values for one layer; None leaves a value as it is."""
        new = self
        if lr is not None:
            new = replace(new, lr=_with(new.lr, layer, lr))
        if weight_decay is not None:
            new = replace(new, weight_decay=_with(new.weight_decay, layer, weight_decay))
        return new


def _with(values: tuple[float, ...], at: int, value: float) -> tuple[float, ...]:
    return (*values[:at], value, *values[at + 1 :])
