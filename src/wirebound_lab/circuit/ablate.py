"""A network with some of its connections at zero, and what it then still answers."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from wirebound.nn.sparse_layer import wirings
from wirebound_lab.tasks.task import Questions


def connection_count(model: nn.Module) -> int:
    return sum(wiring.budget for wiring in wirings(model))


def thetas(model: nn.Module) -> list[nn.Parameter]:
    """θ of all wirings; connections are numbered through them."""
    return [wiring.theta for wiring in wirings(model)]


@contextlib.contextmanager
def only(model: nn.Module, kept: Tensor) -> Iterator[None]:
    """All connections but ``kept`` (BOOL, K) have weight zero; biases and norms stay as they are."""
    found = thetas(model)
    before = [theta.detach().clone() for theta in found]
    try:
        with torch.no_grad():
            for theta, keep in zip(found, _split(kept, found), strict=True):
                theta.mul_(keep)
        yield
    finally:
        with torch.no_grad():
            for theta, old in zip(found, before, strict=True):
                theta.copy_(old)


@torch.no_grad()
def accuracies(model: nn.Module, asked: Questions, kept: Tensor | None = None) -> tuple[float, float]:
    """Shares of right answers with the connections ``kept`` alone: as they are, and without the mean score of each choice.

    The second sees knowledge that the first does not: of a network that knows the answer but prefers one choice always.
    """
    with only(model, kept) if kept is not None else contextlib.nullcontext():
        scores = asked.scores(model(asked.inputs))
    found = [(each.argmax(1) == asked.answers).double().mean().item() for each in (scores, scores - scores.mean(0))]
    return found[0], found[1]


def accuracy(model: nn.Module, asked: Questions, kept: Tensor | None = None) -> float:
    return accuracies(model, asked, kept)[0]


def chance(asked: Questions) -> float:
    """What the best constant answer gets."""
    return float(torch.bincount(asked.answers).max()) / len(asked.answers)


def effects(model: nn.Module, asked: Questions, kept: Tensor, parts: int = 4) -> Tensor:
    """|θ ∂loss/∂θ| of each connection, the mean over ``parts`` steps from the network to one without weights.

    At the weights alone it would say little: where all answers are right with room to spare, the gradient is nearly zero.
    """
    found = thetas(model)
    total = torch.zeros(len(kept))
    for part in range(1, parts + 1):
        with only(model, kept * (part / parts)):
            loss = nn.functional.cross_entropy(asked.scores(model(asked.inputs)), asked.answers)
            gradients = torch.autograd.grad(loss, found)
        total += torch.cat([(theta.detach() * gradient).abs().cpu() for theta, gradient in zip(found, gradients, strict=True)])
    return torch.where(kept, total / parts, torch.zeros(()))


def _split(kept: Tensor, found: Sequence[Tensor]) -> Sequence[Tensor]:
    pieces: Sequence[Tensor] = kept.split([theta.numel() for theta in found])
    return pieces
