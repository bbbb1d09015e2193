"""What a figure is: a claim of the paper, the runs that test it, and how charts and findings follow from them."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from wirebound_lab.paper.job import Job, Outcomes, Summary
from wirebound_lab.paper.measure import Mean, Piece, mean_of

Runs: TypeAlias = Mapping[str, Mapping[Any, Sequence[Any]]]  # jobs by what they show, point of its scan, and seed


class Scale(enum.Enum):
    """How much is run."""

    QUICK = "quick"  # a look: small data, few epochs; decides nothing
    FITTED = "fitted"  # what a small machine can do in reasonable time
    FULL = "full"  # the paper's own schedule, and every point with all seeds


@dataclass(frozen=True)
class Reading:
    """What a panel reads: its runs at a scale, and how they ended."""

    scale: Scale
    seeds: int
    runs: Runs
    done: Outcomes

    def groups(self, what: str) -> list[list[Summary]]:
        """For each point, the summaries of the seeds that ended."""
        return [self.done.of(jobs) for jobs in self.runs[what].values()]

    def mean(self, jobs: Sequence[Job], key: str = "test_accuracy") -> Mean | None:
        return mean_of(summary[key] for summary in self.done.of(jobs))

    def jobs(self, *names: str) -> list[Job]:
        """All runs of what has these names."""
        return [job for what in names for jobs in self.runs[what].values() for job in jobs]

    def verdict(self, holds: bool | None, *runs: Sequence[Job]) -> bool | None:
        """``holds``, unless some of the runs that it rests on are yet to come."""
        return None if any(job.folder in self.done.missing for jobs in runs for job in jobs) else holds

    def paired_verdict(self, holds: bool | None, pairs: Iterable[tuple[Sequence[Job], Sequence[Job]]]) -> bool | None:
        """The same for methods that were compared seed by seed: a seed that only one of both has does not count."""
        return self.verdict(holds, *(both for one, other in pairs for both in zip(one, other, strict=False)))


@dataclass
class Drawn:
    """What a panel has to show: the middle of ``experiment.json``."""

    scale: Scale
    settings: Piece = field(default_factory=dict)
    charts: list[Piece] = field(default_factory=list)
    tables: list[Piece] = field(default_factory=list)
    findings: list[Piece] = field(default_factory=list)
    runs: list[Job] = field(default_factory=list)  # worth a look

    def finding(
        self, claim: str, paper: str, ours: str, seeds: int, holds: bool | None, test: str, note: str | None = None,
        see: str | None = None,
    ) -> None:  # fmt: skip
        """A claim beside what was found. A quick look decides nothing. ``test``: what decides. ``see``: the page that explains
        a contradiction."""
        if self.scale is Scale.QUICK:
            holds, note = None, "a quick look on small data decides nothing"
        found: Piece = {"claim": claim, "paper": paper, "ours": ours, "seeds": seeds, "holds": holds, "test": test}
        found |= {key: words for key, words in (("note", note), ("see", see)) if words is not None}
        self.findings.append(found)


@dataclass(frozen=True)
class Panel:
    """A figure, or one task of a figure that has several."""

    runs: Callable[[Scale, int], Runs]  # what it needs, for a scale and a number of seeds
    read: Callable[[Reading], Drawn]  # some of the runs may be missing because they diverged
    later: Callable[[Reading], Runs] | None = None  # runs whose settings follow from those of ``runs``


@dataclass(frozen=True)
class Figure:
    """One figure of the paper."""

    name: str  # as on the command line
    title: str  # what it shows
    paper: str  # where it is in the paper
    claim: str  # what the paper says
    panels: tuple[Panel, ...]
    notes: Mapping[Scale, str]  # what is run at each scale
    costs: Mapping[Scale, str]  # roughly how long that takes on one core
    seeds: int = 3  # as many by default

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return _flat(panel.runs(scale, seeds) for panel in self.panels)

    def later(self, scale: Scale, seeds: int, done: Outcomes) -> list[Job]:
        return _flat(p.later(Reading(scale, seeds, p.runs(scale, seeds), done)) for p in self.panels if p.later)

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        whole = Drawn(scale)
        for panel in self.panels:
            part = panel.read(Reading(scale, seeds, panel.runs(scale, seeds), done))
            whole.settings |= part.settings
            for name in ("charts", "tables", "findings", "runs"):
                getattr(whole, name).extend(getattr(part, name))
        return whole


def _flat(all_runs: Iterable[Runs]) -> list[Job]:
    return [job for runs in all_runs for points in runs.values() for jobs in points.values() for job in jobs]
