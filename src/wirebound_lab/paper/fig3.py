"""Figure 3: DEEP R and soft-DEEP R against pruning and ℓ1-shrinkage, which start fully connected. A panel for each task.

Every network of every scan is a point; none is chosen.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from wirebound_lab.paper.evidence import NOT_RUN, Difference, all_of, paired_test
from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Scale
from wirebound_lab.paper.job import Job, Outcomes
from wirebound_lab.paper.measure import ACCURACY, CONNECTIVITY, ERROR, METHOD_NAMES, Measure, Piece, axis, lines, series
from wirebound_lab.paper.task_runs import CIFAR, MNIST, SPEECH, TaskRuns

_OURS = ("deep-r", "soft-deep-r")
_RIVALS = ("pruning", "l1-shrinkage")
_VERY_LOW = 0.006  # connectivity
_LARGER = 0.05
_LOWEST_SPEECH, _FAILED = 0.02, 0.7
Points = dict[str, list[Piece]]
mnist_runs, cifar_runs, speech_runs = (
    partial(task.runs, methods=(*_OURS, *_RIVALS)) for task in (MNIST, CIFAR, SPEECH)
)  # fmt: skip


def read_mnist(r: Reading) -> Drawn:
    def gap(job: Job) -> float:
        summary = r.done.summaries[job.folder]
        return abs(sum(layer["final"] for layer in summary["layers"]) / summary["possible"] - 0.025)

    # Networks with a decent compromise, by their connectivity alone: at the end nearest to 2.5 %, seed 0.
    ended = {method: r.done.ended([jobs[0] for jobs in points.values()]) for method, points in r.runs.items()}
    examples = {method: min(jobs, key=gap) for method, jobs in ended.items() if jobs}
    of = ", of the network of each method whose end is nearest to 2.5 %"
    settings = {
        **MNIST.settings,
        "pruning": "weight decay × quality factor as in fig5",
        "ℓ1-shrinkage": f"α = 10^(−n/2), n = {', '.join(map(str, r.runs['l1-shrinkage']))}",
    }
    drawn, points = _draw(r, "MNIST", "mnist", ACCURACY, examples, settings, of)
    low = {m: [p for p in found if p["x"] <= _VERY_LOW] for m, found in points.items()}
    best = {m: max(found, key=lambda p: p["y"]) for m, found in low.items() if found}
    ours = "; ".join(f"{METHOD_NAMES[m]} {100 * p['y']:.1f} % at {100 * p['x']:.2g} %" for m, p in best.items())
    fails = [best[m]["y"] < 0.5 for m in _RIVALS if m in best]
    claim = "MNIST: pruning and ℓ1-shrinkage fail completely at very low connectivity"
    test, holds = f"their best network with at most {100 * _VERY_LOW:g} % is below 50 %", all(fails) if fails else None
    drawn.finding(claim, "fail completely", ours or "no such network", r.seeds, r.verdict(holds, r.jobs(*_RIVALS)), test)
    works = [best[m]["y"] > 0.8 for m in _OURS if m in best]
    claim = "MNIST: DEEP R and soft-DEEP R still give reasonable networks there"
    test, holds = f"the best with at most {100 * _VERY_LOW:g} % is above 80 %, for both", all(works) if works else None
    drawn.finding(claim, "reasonable", ours or "no such network", r.seeds, r.verdict(holds, r.jobs(*_OURS)), test)
    gains = [_gain(r, "deep-r", jobs, ACCURACY, -1) for jobs in r.runs["pruning"].values()]
    if leads := [gain for gain in gains if gain is not None and gain[1] >= _LARGER]:
        lead, level = max(leads, key=lambda found: found[0].mean)
        claim = "MNIST: pruning is slightly better at larger connectivities"
        note = f"the connectivity above {100 * _LARGER:g} % where pruning leads most, DEEP R on the line between its two nearest networks"
        ours = f"pruning {lead.words('better', 'worse')} at {100 * level:.2g} %"
        holds = r.verdict(lead.above(), r.jobs("deep-r", "pruning"))
        drawn.finding(claim, "slightly better", ours, lead.count, holds, paired_test([lead]), note)
    return drawn


def read_cifar(r: Reading) -> Drawn:
    settings = _task_settings(CIFAR, "by one threshold for all matrices")
    examples = {method: next(iter(groups.values()))[0] for method, groups in r.runs.items()}
    drawn, _ = _draw(r, "CIFAR-10", "cifar", ACCURACY, examples, settings)
    for method in _OURS:
        _against_rivals(drawn, r, "CIFAR-10", method, ACCURACY, 1)
    return drawn


def read_speech(r: Reading) -> Drawn:
    settings = _task_settings(SPEECH, f"ℓ2 {SPEECH.own['pruning']['weight_decay']:g}")
    # The sparsest networks: of the least connectivity, or of the largest α.
    shown = {method: groups[max(groups) if method == "l1-shrinkage" else min(groups)] for method, groups in r.runs.items()}
    examples = {method: jobs[0] for method, jobs in shown.items()}
    drawn, _ = _draw(r, "Speech", "speech", ERROR, examples, settings)
    title = "Speech: validation error over iterations"
    drawn.charts.append(ERROR.over_iterations("speech-iterations", title, shown, r.done))
    for method in _OURS:
        _against_rivals(drawn, r, "Speech", method, ERROR, -1)
    _failing(drawn, r)
    _jumps(drawn, r, shown)
    return drawn


def _task_settings(task: TaskRuns, how: str) -> dict[str, Any]:
    levels, rates = ([f"{at:g}" for at in task.points[method]] for method in _RIVALS)
    rivals = {"pruning": f"to {', '.join(levels)} of all, in two cuts, {how}", "ℓ1-shrinkage": f"α {', '.join(rates)}"}
    return {**task.settings, **rivals}


def _draw(
    r: Reading, task: str, id: str, measure: Measure, examples: Mapping[str, Job], settings: Piece, of: str = ""
) -> tuple[Drawn, Points]:
    """The measure against connectivity at the end, connectivity over iterations of one run a method, all points."""
    points = {method: measure.points(r.groups(method)) for method in r.runs}
    words = "frame error" if measure is ERROR else measure.label
    title = f"{task}: {words} against connectivity at the end"
    scatter = measure.against_connectivity(f"{id}-{words.split()[-1]}", title, points)
    ended = {method: job for method, job in examples.items() if job.folder in r.done.summaries}
    curves = [series(method, _connectivity_curve(job, r.done)) for method, job in ended.items()]
    title = f"{task}: connectivity over iterations{of}"
    charts = [scatter, lines(f"{task.lower()}-connectivity", title, axis("iteration"), CONNECTIVITY, curves)]
    table = measure.table(points, None, f"{task}: all points")
    return Drawn(r.scale, {task: settings}, charts, [table], runs=list(examples.values())), points


def _connectivity_curve(job: Job, done: Outcomes) -> list[Piece]:
    """The most connections in each window, the start included."""
    summary = done.summaries[job.folder]
    possible = summary["possible"]
    start = sum(layer["initial"] for layer in summary["layers"]) / possible
    windows = done.metrics(job, "window")[::4]
    found = [{"x": 0, "y": start}, *({"x": w["step_to"], "y": w["active_max"] / possible} for w in windows)]
    return [point for point in found if point["y"] > 0]


def _against_rivals(drawn: Drawn, r: Reading, task: str, method: str, measure: Measure, better: int) -> None:
    """A method against networks of pruning and of ℓ1-shrinkage. Rivals outside of the method's range are left out."""
    found: list[tuple[str, Difference]] = []
    for rival in _RIVALS:
        for jobs in r.runs[rival].values():
            if (gained := _gain(r, method, jobs, measure, better)) is not None:
                gain, level = gained
                found.append((f"{gain.words('better', 'worse')} than {METHOD_NAMES[rival]} at {100 * level:.2g} %", gain))
    claim = f"{task}: {METHOD_NAMES[method]} is slightly better than pruning and ℓ1-shrinkage at every connectivity"
    note = "at the rival's own connectivity, between the two nearest networks of the method"
    ours = "; ".join(words for words, _ in found) or "no networks to compare"
    several = [gain for _, gain in found if gain.count > 1]  # a single network within the range has no interval: only shown
    seeds = min((gain.count for gain in several), default=0)
    # Seeds that only one side has, for the sake of another claim, have nothing to be compared with.
    own, others = r.runs[method].values(), [jobs for rival in _RIVALS for jobs in r.runs[rival].values()]
    both = min(max(map(len, own)), max(map(len, others)))
    compared = [jobs[:both] for jobs in (*own, *others)]
    holds = r.verdict(all_of(gain.above() for gain in several), *compared)
    drawn.finding(claim, "slightly better", ours, seeds, holds, paired_test(several, "above 0 at each level"), note)


def _gain(r: Reading, method: str, jobs: Sequence[Job], measure: Measure, better: int) -> tuple[Difference, float] | None:
    """By how much a method is better than a rival's networks, seed by seed, and their mean connectivity. The method is read
    at the rival's own: on the line between its two nearest networks, over the logarithm of the connectivity. None: it has
    no networks there."""
    values, levels = [], []
    for seed, job in enumerate(jobs):
        for summary in r.done.of([job]):
            own = [r.done.of(each[seed : seed + 1]) for each in r.runs[method].values()]
            value = _between([s[0] for s in own if s], measure.key, summary["connectivity"])
            if value is not None:
                values.append(better * (value - summary[measure.key]))
                levels.append(summary["connectivity"])
    return (Difference(tuple(values)), sum(levels) / len(levels)) if values else None


def _between(summaries: Sequence[Mapping[str, Any]], key: str, connectivity: float) -> float | None:
    """A measure at a connectivity, from networks around it; within a twentieth of one of them, its own."""
    known = sorted((s["connectivity"], s[key]) for s in summaries if s["connectivity"] > 0)
    for at, value in known:
        if abs(connectivity / at - 1) <= 0.05:
            return float(value)
    for (low, first), (high, last) in pairwise(known):
        if low < connectivity < high:
            share = math.log(connectivity / low) / math.log(high / low)
            return float(first + share * (last - first))
    return None


def _failing(drawn: Drawn, r: Reading) -> None:
    """The sparsest networks: those of pruning and ℓ1-shrinkage fail, those of DEEP R and soft-DEEP R do not."""
    errors = {m: [(s["connectivity"], s[ERROR.key]) for of in r.groups(m) for s in of] for m in r.runs}
    lowest = 1.05 * _LOWEST_SPEECH
    low = {m: min((e for x, e in found if x <= lowest), default=None) for m, found in errors.items()}
    known = {m: e for m, e in low.items() if e is not None}
    fails = [known[m] > _FAILED for m in _RIVALS if m in known]
    works = [known[m] < _FAILED for m in _OURS if m in known]
    claim = "Speech: pruning and ℓ1-shrinkage fail completely at very low connectivity, DEEP R and soft-DEEP R do not"
    ours = "; ".join(f"{METHOD_NAMES[m]} {100 * e:.1f} %" for m, e in known.items()) or "no such network"
    test = f"their least error above {100 * _FAILED:g} %, ours below"
    note = (f"the least error of networks with at most {100 * _LOWEST_SPEECH:g} %; failing is read as an error above "
            f"{100 * _FAILED:g} %, which is more than nine tenths of that of always answering silence")  # fmt: skip
    told = [jobs for m in (*_OURS, "pruning") for at, jobs in r.runs[m].items() if at <= lowest]
    holds = r.verdict(all_of([*fails, *works]) if fails and works else None, r.jobs("l1-shrinkage"), *told)
    drawn.finding(claim, "fail completely", ours, r.seeds, holds, test, note)


def _jumps(drawn: Drawn, r: Reading, shown: Mapping[str, Sequence[Job]]) -> None:
    """The largest rise of the validation error from one epoch to the next, of each method over its seeds."""
    worst, compared = {}, ("deep-r", *_RIVALS)
    for method in compared:
        rises = []
        for job in r.done.ended(shown[method]):
            errors = [record["validation_error"] for record in r.done.metrics(job, "epoch")]
            rises += [after - before for before, after in pairwise(errors)]
        if rises:
            worst[method] = max(rises)
    claim = "Speech: pruning and ℓ1-shrinkage make the error jump, DEEP R has only small glitches"
    test, note = "largest rise below that of both others", "over all seeds of the sparsest networks"
    each = ", ".join(f"{METHOD_NAMES[m]} {100 * rise:+.2f} %" for m, rise in worst.items())
    ours = f"largest rise between two epochs: {each}" if worst else NOT_RUN
    holds = worst["deep-r"] < min(worst[m] for m in _RIVALS) if len(worst) == 3 else None
    seeds = min(len(r.done.ended(shown[m])) for m in compared)
    holds = r.verdict(holds, *(shown[m] for m in compared))
    drawn.finding(claim, "large sudden increases", ours, seeds, holds, test, note)


FIG3 = Figure(
    "fig3", "Strict budgets against pruning and ℓ1-shrinkage", "Figure 3",
    "Though its budget is strict, DEEP R does about as well as pruning algorithms that train fully connected networks; "
    "at very low connectivity pruning and ℓ1-shrinkage fail completely while DEEP R and soft-DEEP R still work.",
    panels=(Panel(mnist_runs, read_mnist), Panel(cifar_runs, read_cifar), Panel(speech_runs, read_speech)),
    notes={
        Scale.QUICK: "MNIST panel on the bundled digits; CIFAR-10 and speech as in quick fig1b and fig2; one seed",
        Scale.FITTED: "MNIST: the paper's own settings; CIFAR-10 and speech as in fig1b and fig2, on CIFAR-10 pruning, "
        "ℓ1-shrinkage and soft-DEEP R with two seeds",
        Scale.FULL: "MNIST: the paper's own settings, every point with all seeds",
    },
    costs={Scale.QUICK: "25 s", Scale.FITTED: "18 h, less where fig1a, fig1b, fig2 and fig5 have been run", Scale.FULL: "weeks"},
)  # fmt: skip
