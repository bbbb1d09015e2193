"""Random numbers as a function of (seed, stream, step, index): Philox4x32-10 (Salmon et al., SC 2011).

A number depends on nothing but its name: every device, thread count, torch version and engine draws the same, and a
checkpoint needs no generator state beside the seed and the step. ``csrc/random.inc.cpp`` is the same in C++.
"""

import math
from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

import torch
from torch import Tensor

Word = TypeVar("Word", Tensor, int)
Sample = Callable[[int, int, int, int, int, torch.device], Tensor]  # ``sample_sorted``, by whoever does it quickest
MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LANES = 8  # blocks that make one group of 32 normals, in the order that vector code writes them
MAX_WIRINGS = 1 << 12  # of a model, and layers of a wiring: what a stream's number has room for
_CHUNK_BLOCKS = 1 << 18  # bounds the scratch memory of one call


class Stream(IntEnum):
    """What a number is drawn for. Two purposes never share a number."""

    POSITIONS, WEIGHTS, NOISE, NEWBORN, NEWBORN_LAYER, SIGN, ORDER, OTHER, DROP, NEWBORN_WEIGHT, COLUMN_SIGN = range(11)
    FOLLOWED, DROPOUT, CANDIDATE, GROWTH, FIRST_INPUTS, MOVED = range(11, 17)


def stream_of(purpose: Stream, wiring_index: int, layer: int | None = None) -> int:
    """The stream of a purpose within a wiring, or within one layer of it."""
    return purpose | wiring_index << 8 | (0 if layer is None else (layer + 1) << 20)


def philox(c0: Word, c1: Word, c2: Word, c3: Word, seed: int) -> tuple[Word, Word, Word, Word]:
    """Ten rounds over 32-bit words, in int64 tensors or plain integers (quicker than tensors of one element)."""
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(_ROUNDS):
        # int64 wraps around, which leaves the 64 bits of the unsigned product; the mask undoes the sign extension.
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = (second >> 32) & MASK ^ c1 ^ k0, second & MASK
        c2, c3 = (first >> 32) & MASK ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + _WEYL[0]) & MASK, (k1 + _WEYL[1]) & MASK
    return c0, c1, c2, c3


def words(seed: int, stream: int, step: int | Tensor, count: int, device: torch.device, first: int = 0) -> Tensor:
    """``count`` 32-bit words from word ``first`` (a multiple of 4), as int64: four of each block."""
    block = torch.arange(first // 4, (first + count + 3) // 4, device=device)
    same = torch.zeros_like(block)
    outputs = philox(block, same + (step & MASK), same + (step >> 32), same + stream, seed)
    return torch.stack(outputs, dim=1).view(-1)[:count]


def integers_below(n: int, seed: int, stream: int, step: int, count: int, device: torch.device, first: int = 0) -> Tensor:
    """``count`` integers of [0, n) from number ``first`` (even) of a stream: 63 random bits modulo n."""
    w = words(seed, stream, step, 2 * count, device, first=2 * first).view(-1, 2)
    return (((w[:, 1] << 32 | w[:, 0]) >> 1) & 0x7FFFFFFFFFFFFFFF) % n


def normals(seed: int, stream: int, step: int, count: int, device: torch.device, first: int = 0) -> Tensor:
    """Numbers first .. first + count of a stream of standard normals (Box-Muller), float32."""
    group_from, group_to = first // 32, (first + count + 31) // 32
    parts = []
    for group in range(group_from, group_to, _CHUNK_BLOCKS // _LANES):
        groups = min(_CHUNK_BLOCKS // _LANES, group_to - group)
        w = words(seed, stream, step, 32 * groups, device, first=32 * group).view(groups, _LANES, 4)
        u = (w >> 8).to(torch.float32)
        radius = torch.sqrt(-2.0 * torch.log((u[..., 0::2] + 0.5) * 2.0**-24))
        angle = u[..., 1::2] * (2.0 * math.pi * 2.0**-24)
        pair = torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)  # [groups, lanes, 2, 2]
        parts.append(pair.view(groups, _LANES, 4).transpose(1, 2).reshape(-1))
    if not parts:
        return torch.empty(0, dtype=torch.float32, device=device)
    skip = first - group_from * 32
    return torch.cat(parts)[skip : skip + count]


def gumbels(seed: int, stream: int, step: int, count: int, device: torch.device) -> Tensor:
    """Standard Gumbel numbers, float64: the largest k of log weight + Gumbel are k draws without replacement in
    proportion to the weights, one after another."""
    parts = [torch.empty(0, dtype=torch.float64, device=device)]
    for first in range(0, count, 4 * _CHUNK_BLOCKS):
        w = words(seed, stream, step, min(4 * _CHUNK_BLOCKS, count - first), device, first=first)
        parts.append((w.to(torch.float64) + 0.5).mul_(2.0**-32).log_().neg_().log_().neg_())
    return torch.cat(parts)


def negative_signs(positions: Tensor, seed: int, wiring_index: int) -> Tensor:
    """Whether the constant sign of each position is -1: a hash of (seed, position), so it needs no memory."""
    same = torch.zeros_like(positions)
    out, *_ = philox(positions & MASK, positions >> 32, same, same + stream_of(Stream.SIGN, wiring_index), seed)
    return (out & 1).to(torch.bool)


def dormant_at(ranks: Tensor, active: Tensor) -> Tensor:
    """The positions that stand at ``ranks`` among those that are not in the sorted ``active``."""
    # The r-th dormant position is r + #{i : active[i] - i <= r}: exact at any density, without rejection or a mask.
    before = active - torch.arange(active.numel(), device=active.device)
    return ranks + torch.searchsorted(before, ranks, right=True)


def require_sample(n: int, k: int) -> None:
    if not 0 <= k <= n:
        raise ValueError(f"k (={k}) must be in [0, n (={n})]")


def sample_sorted(n: int, k: int, seed: int, stream: int, step: int, device: torch.device) -> Tensor:
    """k distinct numbers of [0, n), every subset equally likely, sorted; O(k) memory."""
    require_sample(n, k)
    if 2 * k > n:
        return dormant_at(torch.arange(k, device=device), sample_sorted(n, n - k, seed, stream, step, device))
    if k == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    expected = -n * math.log1p(-k / n)  # draws until k distinct ones are met
    count = math.ceil(1.02 * expected + 4 * math.sqrt(expected)) + 8
    while True:
        values, order = torch.sort(integers_below(n, seed, stream, step, count, device), stable=True)
        is_first = torch.ones_like(values, dtype=torch.bool)
        is_first[1:] = values[1:] != values[:-1]
        if int(is_first.sum()) >= k:
            break
        count *= 2
    # The first k distinct values in the order in which they were drawn.
    new = torch.zeros_like(is_first)
    new[order[is_first]] = True
    return values[(new & (new.cumsum(0) <= k))[order]]


def uniform(seed: int, stream: int, step: int) -> float:
    """A number of [0, 1) with 53 random bits, the first of a stream: for decisions that are taken once in a step."""
    low, high, _, _ = philox(0, step & MASK, step >> 32 & MASK, stream, seed)
    return ((high << 32 | low) >> 11) * 2.0**-53


def binomial(n: int, p: float, u: float) -> int:
    """The number of successes in ``n`` trials of probability ``p``, as a function of a uniform ``u``.

    Values are subtracted from u in the order of their distance from the mode, which takes O(√(np)) of them and never
    a probability too small for a float.
    """
    if n <= 0 or p <= 0 or p >= 1:
        return n if n > 0 and p >= 1 else 0
    mode = min(n, math.floor((n + 1) * p))
    log_mass = math.lgamma(n + 1) - math.lgamma(mode + 1) - math.lgamma(n - mode + 1)
    mass = math.exp(log_mass + mode * math.log(p) + (n - mode) * math.log1p(-p))
    below, above, odds = mode, mode, p / (1 - p)
    mass_below = mass_above = mass
    u -= mass
    while u >= 0 and (mass_below > 0 or mass_above > 0):
        mass_below *= below / ((n - below + 1) * odds)  # mass of below - 1; 0 once below is 0
        if below > 0:
            below -= 1
            if u < mass_below:
                return below
            u -= mass_below
        mass_above *= (n - above) * odds / (above + 1)
        if above < n:
            above += 1
            if u < mass_above:
                return above
            u -= mass_above
    return mode  # here by rounding alone, where all the mass is used up
