"""A made-up text with a known answer: words, and among them one string, which the mark that opened it must close.

    lag fed "bid cab fig" hal ...

Which mark opens is a coin's choice, so whoever predicts the closing one must have looked back. Held-out texts are made of
other words, and their strings begin and end at pairs of places that no training text has.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from wirebound.ops import philox
from wirebound.ops.philox import Stream

LETTERS, SPACE = "abcdefghijkl", " "
MARKS = {"quotes": ("''", '""'), "brackets": ("()", "[]", "{}")}  # each opens and closes
_WORDS = 60  # of training, and as many others that are held out
_WORD = 3
_HELD_OUT = 5  # one pair of places in so many
HELD_OUT_SEED = 1 << 40  # beyond all seeds of runs


class Texts(NamedTuple):
    """Texts [n, length], the place of each closing mark, and which of the kinds of marks it is."""

    tokens: Tensor
    closing: Tensor
    kinds: Tensor


class Quoted:
    """All texts of one length with one family of marks."""

    def __init__(self, length: int, marks: str = "quotes") -> None:
        self.length, pairs = length, MARKS[marks]
        letters = dict.fromkeys(LETTERS + SPACE + "".join(pairs))
        self.tokens = list(letters)  # by number
        number = {token: index for index, token in enumerate(self.tokens)}
        self.space = number[SPACE]
        self.openers = torch.tensor([number[pair[0]] for pair in pairs])
        self.closers = torch.tensor([number[pair[1]] for pair in pairs])
        places = [(a, b) for a in range(length - 2) for b in range(a + 2, length)]
        self.places = {part: _places(places, part == "held-out") for part in ("train", "held-out")}

    def draw(self, part: str, count: int, seed: int, step: int) -> Texts:
        """Texts number ``step`` of a seed."""
        words, places = _word_list()[part], self.places[part]
        each = self.length // (_WORD + 1) + 2
        raw = philox.integers_below(1 << 40, seed, Stream.OTHER, step, count * (each + 3), torch.device("cpu")).view(count, -1)
        chosen = words[raw[:, :each] % len(words)]
        spaced = torch.cat([chosen, torch.full_like(chosen[..., :1], self.space)], 2).flatten(1)
        begin = raw[:, each] % (_WORD + 1)
        tokens = spaced.gather(1, begin[:, None] + torch.arange(self.length))
        opening, closing = places[raw[:, each + 1] % len(places)].unbind(1)
        kinds, every = raw[:, each + 2] % len(self.openers), torch.arange(count)
        tokens[every, opening], tokens[every, closing] = self.openers[kinds], self.closers[kinds]
        return Texts(tokens, closing, kinds)

    def closing_places(self, tokens: Tensor) -> Tensor:
        """Where the string ends: the last mark that can close one."""
        places = torch.isin(tokens, self.closers) * torch.arange(1, tokens.shape[1] + 1)
        return places.argmax(1)

    def written(self, tokens: Tensor) -> str:
        return "".join(self.tokens[number] for number in tokens.tolist())


def _places(pairs: list[tuple[int, int]], held_out: bool) -> Tensor:
    return torch.tensor([(a, b) for a, b in pairs if ((a + 2 * b) % _HELD_OUT == 0) is held_out])


@cache
def _word_list() -> dict[str, Tensor]:
    """Different words of three letters, by part; the same for all runs."""
    possible = len(LETTERS) ** _WORD
    order = philox.integers_below(1 << 62, HELD_OUT_SEED, Stream.ORDER, 0, possible, torch.device("cpu")).argsort()
    sizes = torch.tensor([len(LETTERS) ** power for power in range(_WORD)])
    words = order[: 2 * _WORDS, None] // sizes % len(LETTERS)
    return {"train": words[:_WORDS], "held-out": words[_WORDS:]}
