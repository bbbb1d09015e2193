"""What a kernel says when it cannot do its work (the numbers of ``csrc/wirebound.h``), as exceptions."""

from typing import NoReturn

from torch import Tensor

FINE, NOT_FINITE, NO_MEMORY, BAD_INDEX, DORMANT, BAD_INPUT = 0, -1, -2, -3, -4, -5


class WiringError(RuntimeError):
    """A wiring does not keep its promise; the message says which and where."""


class DormantThetaError(WiringError):
    """A θ that is bound to its sign is below 0. Layers catch it and read such a θ as dormant, weight 0."""


def raise_fault(status: int) -> NoReturn:
    """The exception for what a kernel returned instead of doing its work."""
    if status == NO_MEMORY:
        raise MemoryError("a kernel of wirebound found no memory: take a smaller batch, or fewer threads")
    if status == BAD_INDEX:
        raise WiringError("the positions of a layer were overwritten: load a checkpoint, or sparsify again")
    if status == DORMANT:
        raise DormantThetaError("a connection has θ < 0")
    if status == BAD_INPUT:
        raise ValueError("the rows of a sparse input must start from 0 in order, and its columns be inside of the layer")
    raise WiringError(f"a kernel of wirebound returned {status}")


def not_finite(step: int) -> FloatingPointError:
    """What both implementations raise where a step cannot be taken; everything is then as it was before it."""
    why = "the gradient of a connection or its θ is not finite, or would not be afterwards"
    return FloatingPointError(f"step {step} was not taken: {why}; lower the learning rate, clip gradients, or skip the step")


def require_active(theta: Tensor, bound: bool) -> None:
    """What the kernels look for by themselves: no θ on the CPU that is bound to its sign is below 0."""
    if not (bound and theta.is_cpu and theta.numel()):
        return
    # The least of all is found five times faster; it is NaN where one is NaN.
    if not bool(theta.min() >= 0) and bool((theta < 0).any()):
        raise_fault(DORMANT)
