"""How a claim about a difference is decided: run against run of the same seed, an interval, three verdicts.

The interval is Student's over the seeds, at a level of 90 %, so that each of its ends is a one-sided test at 5 %. What
counts as "better" or "close" for each claim was written down before the runs, in ``docs/protocol.md``.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirebound_lab.paper.job import Job, Outcomes

LEVEL = 0.9
NOT_RUN = "not run yet"
PAIRED = "paired, 90 % interval above 0"  # what decides most claims, in words
AT_EACH = "paired, 90 % interval above 0 at each level"
# 95 % quantiles of Student's t for 1, 2, … degrees of freedom.
_QUANTILES = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
    1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
)  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A difference over seeds, each between two runs of the same seed, with its interval; none if nothing was run yet."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None with one seed, which says nothing about the next one."""
        if self.count < 2:
            return None
        freedom = min(self.count - 1, len(_QUANTILES))  # beyond the table: a little too wide, never too narrow
        return _QUANTILES[freedom - 1] * statistics.stdev(self.values) / self.count**0.5

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


def difference(done: Outcomes, more: Sequence[Job], less: Sequence[Job], key: str) -> Difference:
    """``more`` − ``less``, of the seeds that have both."""
    both = [done.of(pair) for pair in zip(more, less, strict=False)]
    return Difference(tuple(pair[0][key] - pair[1][key] for pair in both if len(pair) == 2))


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict on a claim that says something of several levels: one that fails decides, one that is open leaves open."""
    found = list(verdicts)
    if not found or (None in found and False not in found):
        return None
    return False not in found
