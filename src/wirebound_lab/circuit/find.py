"""Find the connections that do a piece of work: alone they do it, and without them it is not done.

Two searches over questions with a known answer. Down: from all K, leave out what has the least effect, in ever smaller
portions and at last one by one, as long as the answers stay right; no connection of what is left can be spared. Up: as long
as the rest of the network can still answer without it, take in the connections by which it does; if these upset the answers
when they stand alone with the core, search down again, with all of them fixed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wirebound_lab.circuit.ablate import accuracies, accuracy, chance, connection_count, effects
from wirebound_lab.tasks.task import Questions

_ROUNDS = 4  # of up and down
_TRIED = 12  # connections of the rest whose removal is tried out, for each one that is taken in
ABOVE_CHANCE = 0.04  # how far the answers of the rest may be from guessing: the noise of a thousand questions


@dataclass(frozen=True)
class Found:
    """Two sets of connections (BOOL, K)."""

    core: Tensor  # enough by itself, and none of it can be spared
    circuit: Tensor  # the core, and what else answers without it


def find_circuit(model: nn.Module, asked: Questions, least: float = 0.995) -> Found:
    """The circuit of a network for these questions; ``least`` is the accuracy that the core must have."""
    whole = accuracy(model, asked)
    if whole < least:
        raise ValueError(f"accuracy of the network (={whole:.4f}) must be at least that of its circuit (={least})")
    model.eval()
    core = _fewest(model, asked, torch.zeros(connection_count(model), dtype=torch.bool), least)
    circuit = core
    for _ in range(_ROUNDS):
        circuit = _with_spares(model, asked, circuit)
        if accuracy(model, asked, circuit) >= least:
            break
        circuit = _fewest(model, asked, circuit, least)  # spares are out of balance without what goes with them
    return Found(core, circuit)


def _fewest(model: nn.Module, asked: Questions, fixed: Tensor, least: float) -> Tensor:
    """A set around ``fixed`` that can answer, of which nothing else can be left out."""
    return _one_by_one(model, asked, _in_portions(model, asked, fixed, least), fixed, least)


def _in_portions(model: nn.Module, asked: Questions, fixed: Tensor, least: float) -> Tensor:
    kept, share = torch.ones_like(fixed), 0.5
    while share * (size := int((kept & ~fixed).sum())) >= 1:
        scores = effects(model, asked, kept)
        scores[~kept | fixed] = torch.inf
        tried = kept.clone()
        tried[scores.argsort()[: int(share * size)]] = False
        if accuracy(model, asked, tried) >= least:
            kept = tried
        else:
            share /= 2
    return kept


def _one_by_one(model: nn.Module, asked: Questions, kept: Tensor, fixed: Tensor, least: float) -> Tensor:
    """Until a whole round has found nothing that can be left out."""
    kept, left_out = kept.clone(), True
    while left_out:
        left_out = False
        scores = effects(model, asked, kept)
        for number in (n for n in scores.argsort().tolist() if kept[n] and not fixed[n]):
            kept[number] = False
            if accuracy(model, asked, kept) >= least:
                left_out = True
            else:
                kept[number] = True
    return kept


def _with_spares(model: nn.Module, asked: Questions, core: Tensor) -> Tensor:
    """The core and the fewest others (greedily) without which the rest knows nothing of the answer."""
    rest = ~core
    while _knowledge(model, asked, rest) > ABOVE_CHANCE:
        scores = effects(model, asked, rest)
        outcomes = []
        for number in scores.argsort(descending=True)[:_TRIED].tolist():
            rest[number] = False
            outcomes.append((_knowledge(model, asked, rest), number))
            rest[number] = True
        rest[min(outcomes)[1]] = False
    for number in (~rest & ~core).nonzero().flatten().tolist():  # what was taken in early may not be needed any more
        rest[number] = True
        if _knowledge(model, asked, rest) > ABOVE_CHANCE:
            rest[number] = False
    return ~rest


def _knowledge(model: nn.Module, asked: Questions, kept: Tensor) -> float:
    """How far answers are from guessing; to be wrong more often than by chance is knowledge too."""
    plain, centred = accuracies(model, asked, kept)
    choices = len(asked.answers.unique())
    return max(plain - chance(asked), abs(centred - 1 / choices))
