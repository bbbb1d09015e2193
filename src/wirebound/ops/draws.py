"""Single random numbers by name, for decisions that are taken once in a step: too few to ask a kernel for them."""

from __future__ import annotations

import math

from wirebound.ops.philox import MASK, philox_block


def uniform(seed: int, stream: int, step: int) -> float:
    """A number of [0, 1) with 53 random bits: the first of a stream."""
    low, high, _, _ = philox_block(0, step & MASK, step >> 32 & MASK, stream, seed)
    return ((high << 32 | low) >> 11) * 2.0**-53


def binomial(n: int, p: float, u: float) -> int:
    """The number of successes in ``n`` trials of probability ``p``, as a function of a uniform ``u``.

    Values are subtracted from u in the order of their distance from the mode, which takes O(√(np)) of them and never
    a probability too small for a float.
    """
    if n <= 0 or p <= 0:
        return 0
    if p >= 1:
        return n
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
