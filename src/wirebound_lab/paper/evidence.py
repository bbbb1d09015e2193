"""How a claim about a difference is decided: run against run of the same seed, an interval, three verdicts.

The interval is Student's over the seeds, at a level of 90 %, so that each of its ends is a one-sided test at 5 %; of 95 %
for a later look: where seeds were added a second time, or settings chosen again. What counts as "better" or "close" for
each claim was written down before the runs, in ``docs/protocol.md``.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit  # quantiles of Student's t

from wirebound_lab.paper.job import Job, Outcomes

NOT_RUN = "not run yet"
_LEVEL, _LATE_LEVEL = 0.9, 0.95
_TWO_LOOKS = 5  # seeds that a claim has after seeds were added once


@dataclass(frozen=True)
class Difference:
    """A difference over seeds, each between two runs of the same seed, with its interval; none if nothing was run yet."""

    values: tuple[float, ...]
    again: bool = False  # the claim was looked at before, with other settings

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def level(self) -> float:
        return _LATE_LEVEL if self.again or self.count > _TWO_LOOKS else _LEVEL

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None with one seed, which says nothing about the next one."""
        if self.count < 2:
            return None
        quantile = float(stdtrit(self.count - 1, (1 + self.level) / 2))
        return quantile * statistics.stdev(self.values) / self.count**0.5

    def above(self, bound: float = 0.0) -> bool | None:
        """Whether the difference is above ``bound``: None where the interval holds both answers."""
        if self.half is None:
            return None
        if self.mean - self.half > bound:
            return True
        return False if self.mean + self.half < bound else None

    def words(self, above: str, below: str) -> str:
        """As in "1.59 ± 0.16 points more error": without its sign, ± the interval."""
        if not self.count:
            return NOT_RUN
        spread = "" if self.half is None else f" ± {100 * self.half:.2f}"
        return f"{100 * abs(self.mean):.2f}{spread} points {above if self.mean >= 0 else below}"


def paired_test(gains: Sequence[Difference], wanted: str = "above 0") -> str:
    """What decides a claim about these differences, in words."""
    late = [gain.count for gain in gains if gain.level == _LATE_LEVEL]
    level = _LATE_LEVEL if gains and len(late) == len(gains) else _LEVEL
    other = f" ({100 * _LATE_LEVEL:g} % with {max(late)} seeds)" if late and level == _LEVEL else ""
    return f"paired, {100 * level:g} % interval{other} {wanted}"


def difference(done: Outcomes, more: Sequence[Job], less: Sequence[Job], key: str, *, again: bool = False) -> Difference:
    """``more`` − ``less``, of the seeds that have both. ``again``: as of ``Difference``."""
    both = [done.of(pair) for pair in zip(more, less, strict=False)]
    return Difference(tuple(pair[0][key] - pair[1][key] for pair in both if len(pair) == 2), again)


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict on a claim that says something of several levels: one that fails decides, one that is open leaves open."""
    found = list(verdicts)
    if not found or (None in found and False not in found):
        return None
    return False not in found
