"""What a step needs to know: the optimiser's rule as numbers, its state as tensors, the wiring as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from torch import Tensor

from wirebound.ops.layout import Geometry


class RuleKind(IntEnum):
    """Which rule moves θ. NONE: the optimiser has already done so."""

    NONE, SGD, ADAM = range(3)


@dataclass(frozen=True)
class Rule:
    """The numbers of torch's SGD, Adam and AdamW, under torch's names."""

    kind: RuleKind
    lr: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False
    maximize: bool = False
    fresh: bool = False  # SGD's first step: the momentum buffer becomes the gradient, whatever the dampening


@dataclass(frozen=True)
class State:
    """The optimiser's tensors for one wiring, each K long; None where the rule keeps none."""

    momentum: Tensor | None = None
    exp_avg: Tensor | None = None
    exp_avg_sq: Tensor | None = None
    max_exp_avg_sq: Tensor | None = None
    born: Tensor | None = None  # Adam: the clock at which each connection was born
    clock: int = 0  # Adam: how often θ has been moved, this step included


NO_STATE = State()
Carried = Sequence[tuple[Tensor, float]]  # arrays of K elements that move with their connections, and a newborn's value
Counts = Sequence[int] | Tensor  # one for each layer, wherever the backend has them


def numbers(counts: Counts) -> list[int]:
    """Counts as plain numbers; those of another device are waited for."""
    if type(counts) is list:
        return counts
    return counts.tolist() if isinstance(counts, Tensor) else list(counts)


class StepCounts(NamedTuple):
    """What a step did to each layer."""

    born: Counts
    died: Counts
    active: Counts  # θ >= 0 afterwards, counted


class DriftAndNoise(NamedTuple):
    """The rest of the line of Algorithm 1, for connections first .. last: − ηα + √(2ηT) ν."""

    first: int
    last: int
    shrink: float
    noise_std: float
    lr_factor: float = 1.0  # on the rule's lr, of layers that have rates of their own
    decay_factor: float = 1.0  # on its weight decay
    second_moment: float = 0.0  # Adam: the squared gradient with which newborns start; 0: with nothing, as all do at first
    frozen: bool = False  # they stay as they are, their optimiser state included
    lazy: bool = False  # so do those whose gradient is exactly 0 in this step


class WiringArrays(Protocol):
    """What ops read of a wiring: its matrices, its index, and the name of its random numbers."""

    geometry: Geometry
    colptr: Tensor
    packed_rows: Tensor

    @property
    def origin(self) -> Sequence[int]: ...  # seed and index

    @property
    def seed(self) -> int: ...

    @property
    def index(self) -> int: ...
