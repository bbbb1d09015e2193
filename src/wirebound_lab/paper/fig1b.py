"""Figure 1B: CIFAR-10 with the tutorial's convolutional network."""

from functools import partial

from wirebound_lab.paper.figure import Drawn, Figure, Panel, Reading, Scale
from wirebound_lab.paper.measure import ACCURACY, Measure, difference, rule
from wirebound_lab.paper.task_runs import CIFAR, TaskRuns

_LEVEL, _LARGE = 0.05, 0.2  # the connectivities of the paper's claims
_CLOSE = 0.02  # of accuracy: what counts as close to the fully connected network
_FIGURE = 0.841  # the paper's, at 5 % after a million steps
runs = partial(CIFAR.runs, methods=("deep-r", "fixed", "dense", "soft-deep-r"))


def read(r: Reading) -> Drawn:
    drawn = draw_by_connectivity(r, ACCURACY, "test accuracy", _LEVEL, CIFAR)
    sparse = r.mean(r.runs["deep-r"][_LEVEL])
    if sparse is not None:
        claim = f"CIFAR-10: DEEP R reaches 84.1 % at {100 * _LEVEL:g} % connectivity"
        full = r.scale is Scale.FULL
        holds = sparse.value >= _FIGURE - 0.0005 if full else None
        note = None if full else "the paper's figure is after 2,558 epochs: not decided by a short run"
        drawn.finding(claim, "84.1 %", sparse.percent(), sparse.count, holds, note)
    gap = difference(r.done, r.runs["dense"][1.0], r.runs["deep-r"][_LARGE], ACCURACY.key)
    if gap is not None:
        claim = f"CIFAR-10: DEEP R at {100 * _LARGE:g} % is close to the fully connected network"
        note = f"read as: less than {100 * _CLOSE:g} % below"
        drawn.finding(claim, "close", gap.words("below", "above"), gap.count, gap.value < _CLOSE, note)
    for level in r.runs["fixed"]:
        gain = difference(r.done, r.runs["deep-r"][level], r.runs["fixed"][level], ACCURACY.key)
        if gain is not None:
            claim = f"CIFAR-10: DEEP R at {100 * level:g} % is better than fixed connectivity"
            note = "read as: better in every seed, each beside the same seed"
            drawn.finding(claim, "better", gain.words("better", "worse"), gain.count, gain.least > 0, note)
    return drawn


def draw_by_connectivity(
    r: Reading, measure: Measure, words: str, level: float, task: TaskRuns, dense_name: str | None = None
) -> Drawn:
    """A measure of all methods against connectivity and as a table, and over iterations for those of ``level``."""
    points = {method: measure.points(r.groups(method)) for method in r.runs if method != "dense"}
    dense = r.mean(r.runs["dense"][1.0], measure.key)
    title = f"{words.capitalize()} against connectivity"
    against = measure.against_connectivity(words.split()[-1], title, points, rule("dense", dense, dense_name))
    shown = {method: groups.get(level) or next(iter(groups.values())) for method, groups in r.runs.items()}
    title = f"{measure.record_label.capitalize()} over iterations (budgets {100 * level:g} %)"
    charts = [against, measure.over_iterations("iterations", title, shown, r.done)]
    examples = [jobs[0] for jobs in shown.values()]
    return Drawn(r.scale, dict(task.settings), charts, [measure.table(points, dense)], runs=examples)


FIG1B = Figure(
    "fig1b", "CIFAR-10: accuracy against connectivity", "Figure 1B",
    "DEEP R reaches 84.1 % on CIFAR-10 at 5 % connectivity, and at 20 % comes close to the fully connected network.",
    panels=(Panel(runs, read),),
    notes={
        Scale.QUICK: "twenty steps of each method, one seed",
        Scale.FITTED: "5 epochs (1,955 steps) instead of 2,558, the same for all methods: half a cosine from η 0.05, momentum "
        "0.9, first weights as strong as in the dense network; soft-DEEP R with one seed; what "
        "was tried is in docs/reproduce.md",
        Scale.FULL: "the paper's million steps",
    },
    costs={Scale.QUICK: "1 min", Scale.FITTED: "80 min", Scale.FULL: "weeks"}, seeds=2,
)  # fmt: skip
