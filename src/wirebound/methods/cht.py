"""Cannistraci-Hebb training with soft rules, a setting of ``Evolve``."""

from collections.abc import Mapping
from typing import Any

from torch import nn, optim

from wirebound.methods.declaration import FRACTION, REPLACE_EVERY, REPLACE_UNTIL, RunLength, Setting
from wirebound.methods.drop import SoftMagnitude
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import Topological
from wirebound.methods.rigl import RigL
from wirebound.methods.when import Every, cosine

REMOVAL = Setting(
    "removal_temperature", "float", 0.5, "how soft the removal of cht is: 0 removes the smallest |w|, large values any", least=0
)


class CHT(Evolve):
    """Sampled removal by magnitude, and growth from the wiring alone, after CHTs (Zhang et al. 2025, arXiv 2501.19107).

    Drop connections with a probability that falls with |w|; grow dormant ones in proportion to the paths of length three
    that they close. No gradient of dormant connections is ever asked for, and neither scores nor pairs are listed.

    Differs from the paper in that paths count by the degree-normalised L3 index instead of CH2-L3n, whose count of local
    communities needs all pairs; in that connections of neurons which have lost all others stay; and in that the
    removal's temperature is constant. Its correlated first wiring is ``wb.wire_by_correlation_``.

    Args:
        model, optimizer, fraction, every, until, options: as for ``RigL``.
        removal_temperature: of ``wb.drop.SoftMagnitude``.
    """

    name = "cht"
    title = "CHT, soft"
    settings = (FRACTION, REPLACE_EVERY, REPLACE_UNTIL, REMOVAL)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, fraction: float = FRACTION.default, every: int = 100,
        until: int | None = None, removal_temperature: float = REMOVAL.default, **options: Any,
    ) -> None:  # fmt: skip
        when = Every(every, fraction if until is None else cosine(fraction, until), until)
        drop = SoftMagnitude(removal_temperature)
        super().__init__(model, optimizer, drop=drop, grow=Topological(), when=when, **options)

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        return {**RigL.arguments(settings, length), "removal_temperature": cls.values(settings)["removal_temperature"]}
