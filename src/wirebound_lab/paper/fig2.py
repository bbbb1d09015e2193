"""Figure 2: framewise phone classification with a bidirectional LSTM."""

from __future__ import annotations

from typing import Any

from wirebound_lab.paper import speech_jobs as speech
from wirebound_lab.paper.charts import METHOD_NAMES, axis, finding, lines, rule, series
from wirebound_lab.paper.curves import Mean
from wirebound_lab.paper.figure import Drawn, Figure, Outcomes, Part, Scale
from wirebound_lab.paper.job import Job
from wirebound_lab.paper.measure import ERROR
from wirebound_lab.paper.task_job import TaskJob, affordable, difference

_NEAR = 0.1  # the connectivity of the paper's claim
_TIMIT_DENSE = "28.3 % (TIMIT)"


class SpeechError(Part):
    """DEEP R, soft-DEEP R, fixed and dense."""

    def runs(self, scale: Scale, seeds: int) -> dict[str, dict[float, list[TaskJob]]]:
        """By method and connectivity."""
        each = range(affordable(scale, seeds))
        return {
            "deep-r": {level: [speech.deep_r(scale, level, s) for s in each] for level in speech.LEVELS},
            "fixed": {level: [speech.fixed(scale, level, s) for s in each] for level in speech.LEVELS},
            "dense": {1.0: [speech.dense(scale, s) for s in each]},
            "soft-deep-r": {level: [speech.soft(scale, level, s) for s in each] for level in speech.SOFT_STARTS},
        }

    def jobs(self, scale: Scale, seeds: int) -> list[Job]:
        return [job for groups in self.runs(scale, seeds).values() for jobs in groups.values() for job in jobs]

    def plot(self, scale: Scale, seeds: int, done: Outcomes) -> Drawn:
        runs = self.runs(scale, seeds)
        points = {m: ERROR.points([done.of(jobs) for jobs in groups.values()]) for m, groups in runs.items() if m != "dense"}
        dense = ERROR.mean(done.of(runs["dense"][1.0]))
        against = lines(
            "error",
            "Frame error against connectivity (soft-DEEP R: the highest ever met)",
            axis("connectivity", "log", percent=True),
            axis("test error", percent=True),
            [*(series(method, found) for method, found in points.items()), rule("dense", dense, "fully connected, with ℓ2")],
        )
        shown = {method: groups.get(_NEAR) or next(iter(groups.values())) for method, groups in runs.items()}
        title = f"Validation error over iterations (budgets {100 * _NEAR:g} %)"
        return Drawn(
            settings=dict(speech.SETTINGS),
            charts=[against, ERROR.over_iterations("iterations", title, shown, done)],
            tables=[ERROR.table(points, dense)],
            findings=self.findings(scale, runs, done, dense),
            runs=[jobs[0] for jobs in shown.values()],
        )

    def findings(
        self, scale: Scale, runs: dict[str, dict[float, list[TaskJob]]], done: Outcomes, dense: Mean | None
    ) -> list[dict[str, Any]]:
        found = []
        if dense is not None:
            claim = "Speech: frame error of the fully connected LSTM with ℓ2"
            note = "another corpus: the figures cannot be compared, only what follows"
            found.append(finding(scale, claim, _TIMIT_DENSE, dense.percent(), dense.count, None, note))
        for method in ("deep-r", "soft-deep-r"):
            gain = difference(done, runs["dense"][1.0], runs[method].get(_NEAR, []), ERROR.key)
            if gain is not None:
                name = METHOD_NAMES[method]
                claim = f"Speech: {name} is slightly better than the fully connected network around {100 * _NEAR:g} %"
                ours = gain.words("less error", "more error")
                found.append(finding(scale, claim, "slightly better", ours, gain.count, gain.value > 0))
        gains = {
            level: difference(done, runs["fixed"][level], runs["deep-r"][level], ERROR.key) for level in speech.LEVELS
        }
        known = {level: gain for level, gain in gains.items() if gain is not None}
        if known:
            claim = "Speech: DEEP R beats fixed random connectivity at every level"
            ours = "; ".join(f"{gain.words('less error', 'more error')} at {100 * level:g} %" for level, gain in known.items())
            holds = all(gain.least > 0 for gain in known.values())
            count = min(gain.count for gain in known.values())
            found.append(finding(scale, claim, "consistently", ours, count, holds, "read as: in every seed at every level"))
        return found


FIG2 = Figure(
    name="fig2",
    title="Speech: error of a bidirectional LSTM against connectivity",
    paper="Figure 2",
    claim="DEEP R and soft-DEEP R are slightly better than the fully connected LSTM around 10 % connectivity, and DEEP R "
    "beats fixed random connectivity at every level.",
    parts=(SpeechError(),),
    notes={
        Scale.QUICK: "32 cells, 96 utterances, two epochs, one seed",
        Scale.FITTED: "6 epochs instead of 40, the same for all methods, on real speech with forced-alignment labels instead of TIMIT",
        Scale.FULL: "the paper's 40 epochs; with WIREBOUND_SPEECH=timit on TIMIT itself",
    },
    costs={Scale.QUICK: "30 s", Scale.FITTED: "45 min", Scale.FULL: "5 h"},
    seeds=2,
)
