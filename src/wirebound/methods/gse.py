"""GSE, a setting of ``Evolve``."""

from collections.abc import Mapping
from typing import Any

from torch import nn, optim

from wirebound.methods.declaration import CANDIDATES, FRACTION, REPLACE_EVERY, REPLACE_UNTIL, RunLength
from wirebound.methods.drop import Magnitude
from wirebound.methods.evolve import Evolve
from wirebound.methods.grow import SampledGradient
from wirebound.methods.rigl import RigL
from wirebound.methods.when import Every, cosine


class GSE(Evolve):
    """Guided stochastic exploration (Heddes et al. 2024, arXiv 2401.06898): RigL whose growth sees a sample only.

    Drop by magnitude; draw as many dormant connections as there are active ones; grow those of them with the largest
    gradient. The paper's experiments use masks; here the gradient exists at the drawn positions only, so a step that
    replaces connections costs about as much as any other.

    Candidates are drawn uniformly and without replacement among the dormant; the schedule is RigL's. As in ``RigL``, a step
    that replaces connections is a step of the optimiser too, and a connection which is dropped and chosen again starts
    at 0.

    Args:
        model, optimizer, fraction, every, until, options: as for ``RigL``.
        candidates: γ, drawn dormant connections as a multiple of the active ones of each layer.
    """

    name = "gse"
    title = "GSE"
    settings = (FRACTION, REPLACE_EVERY, REPLACE_UNTIL, CANDIDATES)

    def __init__(
        self, model: nn.Module, optimizer: optim.Optimizer, *, fraction: float = FRACTION.default, every: int = 100,
        until: int | None = None, candidates: float = CANDIDATES.default, **options: Any,
    ) -> None:  # fmt: skip
        when = Every(every, fraction if until is None else cosine(fraction, until), until)
        super().__init__(model, optimizer, drop=Magnitude(), grow=SampledGradient(candidates), when=when, **options)

    @classmethod
    def arguments(cls, settings: Mapping[str, Any], length: RunLength) -> dict[str, Any]:
        return {**RigL.arguments(settings, length), "candidates": cls.values(settings)["candidates"]}
