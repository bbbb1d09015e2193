"""The figures themselves: findings follow from the runs, and each figure runs from end to end on small data."""

import json
from dataclasses import replace

import pytest
from figure_helpers import made_outcomes

from wirebound_lab.paper import fig1a, fig1b, fig2, fig3, fig4, fig5, fig6, task_runs, theory
from wirebound_lab.paper.figure import Reading, Scale
from wirebound_lab.paper.job import Outcomes
from wirebound_lab.paper.measure import Mean, boxcar, curve_over_seeds, grouped, mean_of, reaches
from wirebound_lab.paper.reproduce import FIGURES, reproduce

SOFT = task_runs.MNIST.points["soft-deep-r"]


def _reading(runs, done, seeds, scale=Scale.FITTED):
    return Reading(scale, seeds, runs(scale, seeds), done)


def _holds(drawn):
    return {found["claim"]: found["holds"] for found in drawn.findings}


def test_means_and_curves():
    assert mean_of([]) is None
    assert mean_of([0.5]).percent() == "50.00 %"
    assert mean_of([0.5, 0.7]).percent(1) == "60.0 ± 14.1 %"
    two = [[(1, 0.0), (2, 1.0), (3, 5.0)], [(1, 1.0), (2, 2.0)]]
    assert [(p["x"], p["y"]) for p in curve_over_seeds(two)] == [(1, 0.5), (2, 1.5)]
    assert curve_over_seeds(two)[0]["low"] == pytest.approx(0.5 - 0.5**0.5)
    assert grouped([1, 3, 5, 7, 10], 3) == [2, 6, 10]
    assert grouped([], 3) == []
    assert boxcar([0, 3, 6, 9], 3) == [1.5, 3, 6, 7.5]
    assert (Mean(1, 0.25, 3).low, Mean(1, None, 1).high) == (0.75, 1)


def _fig1a_runs(short=0.963, long=0.964, dense=0.98, soft=0.9):
    groups, runs = fig1a.runs(Scale.FITTED, 2), {}
    for method in ("deep-r", "deep-r-chosen"):
        for level, jobs in groups[method].items():
            runs |= {job.folder: (short, level, [int(level * 1e5), 50, 10]) for job in jobs}
    runs |= {job.folder: (short, 0.013, [1300, 50, 10]) for job in groups["short"][0.013]}
    runs |= {job.folder: (long, 0.01, [1000, 50, 10]) for job in groups["long"][0.01]}
    runs |= {job.folder: (dense, 1.0, [235_200, 30_000, 1_000]) for job in groups["dense"][1.0]}
    for place, jobs in enumerate(groups["soft-deep-r"].values()):
        runs |= {job.folder: (soft, 0.004 * (place + 1), [500 + place, 50, 10]) for job in jobs}
    for level, jobs in groups["fixed"].items():
        runs |= {job.folder: (0.8 + level, level, [1000, 50, 10]) for job in jobs}
    return runs


def _later(jobs, deep_r):
    return {job.folder: (deep_r if job.config.method == "deep-r" else 0.7, 0.002, [500, 50, 10]) for job in jobs}


def test_fig1a_findings_follow_from_the_runs(tmp_path):
    runs, figure, seeds = _fig1a_runs(), fig1a.FIG1A, 2
    later = figure.later(Scale.FITTED, seeds, made_outcomes(tmp_path, runs))
    assert len(later) == 2 * len(SOFT) * seeds
    assert (later[-1].config.method, later[-1].config.budget) == ("deep-r", 560 + len(SOFT) - 1)
    assert (later[0].config.method, later[0].config.allocation, later[0].config.budget) == ("fixed", "500,50,10", 560)
    drawn = figure.plot(Scale.FITTED, seeds, made_outcomes(tmp_path, {**runs, **_later(later, 0.96)}))
    assert list(_holds(drawn).values()) == [True, True, True, True, False]
    assert (drawn.findings[0]["ours"], drawn.findings[0]["seeds"]) == ("96.30 ± 0.00 %", 10)
    against, iterations = drawn.charts
    methods = ["deep-r", "soft-deep-r", "fixed", "deep-r-chosen", "fixed-shares", "dense"]
    assert [s["method"] for s in against["series"]] == methods
    assert against["series"][-1]["points"][0]["x"] is None
    assert iterations["series"][0]["points"][0]["x"] == 6000
    json.dumps([drawn.charts, drawn.tables, drawn.findings], allow_nan=False)


def test_a_figure_of_one_decimal_is_reached_by_a_mean_that_rounds_to_it():
    assert reaches(Mean(0.9615, None, 1), 0.962)
    assert not reaches(Mean(0.9614, 0.002, 3), 0.962)


def test_fig1a_says_what_does_not_hold(tmp_path):
    runs, figure = _fig1a_runs(short=0.955, long=0.955, dense=0.98, soft=0.99), fig1a.FIG1A
    later = figure.later(Scale.FITTED, 2, made_outcomes(tmp_path, runs))
    drawn = figure.plot(Scale.FITTED, 2, made_outcomes(tmp_path, {**runs, **_later(later, 0.96)}))
    assert list(_holds(drawn).values())[:4] == [False] * 4


def test_fig3_findings_and_missing_runs(tmp_path):
    groups = fig3.mnist_runs(Scale.FITTED, 2)

    def holds(runs):
        reading = _reading(fig3.mnist_runs, made_outcomes(tmp_path, runs), 2)
        return list(_holds(fig3.read_mnist(reading)).values())

    accuracy = {"deep-r": 0.9, "soft-deep-r": 0.85, "pruning": 0.4, "l1-shrinkage": 0.3}
    runs = {
        job.folder: (accuracy[method] + 0.001 * seed, 0.005 + 0.012 * place, [500, 50, 10])
        for method, points in groups.items()
        for place, jobs in enumerate(points.values())
        for seed, job in enumerate(jobs)
    }
    assert holds(runs) == [True, True, False]
    larger = {job.folder: (0.95 + 0.03 * seed, 0.06, [500, 50, 10]) for seed, job in enumerate(groups["pruning"][0.0, 1.5])}
    assert holds({**runs, **larger}) == [True, True, None]  # by 5 and 8 points: two seeds that differ so much decide nothing
    larger = {folder: (0.95, *others) for folder, (_, *others) in larger.items()}
    assert holds({**runs, **larger}) == [True, True, True]
    low = {job.folder: (0.95, 0.005, [500, 50, 10]) for job in groups["pruning"][0.0, 0.5]}
    assert holds({**runs, **low})[0] is False
    few = {name: value for name, value in runs.items() if name.startswith("mnist/deep-r")}
    assert holds(few) == [None, True]


def test_fig5_has_a_grid_of_what_was_run(tmp_path):
    grid = fig5.runs(Scale.FITTED, 1)["pruning"]
    runs = {jobs[0].folder: (0.98 - 0.3 * q, 0.5 / (1 + q), [500, 50, 10]) for (_, q), jobs in grid.items()}
    runs.pop(grid[0.0, 1.0][0].folder)
    drawn = fig5.FIG5.plot(Scale.FITTED, 1, made_outcomes(tmp_path, runs))
    accuracy, connectivity = drawn.charts
    assert (accuracy["columns"], accuracy["rows"]) == ([0.5, 1.0, 1.5, 2.0], [0.0, 1e-4, 1e-3])
    assert accuracy["cells"][0][1] is None
    assert accuracy["cells"][1][0] == pytest.approx(0.83)
    assert connectivity["cells"][0][0] == pytest.approx(0.5 / 1.5)
    assert list(_holds(drawn).values()) == [True, True]


def test_fig6_counts_newborns_of_each_layer(tmp_path):
    jobs = fig6.FIG6.jobs(Scale.FITTED, 1)
    done = made_outcomes(tmp_path, {job.folder: (0.96, 0.01, [500, 50, 10]) for job in jobs})
    births = fig6.Births.of(fig6.runs(Scale.FITTED, 1)["share"][0.01][0], done)
    assert births.rates == [[1.0], [0.1], [0.01]]
    drawn = fig6.FIG6.plot(Scale.FITTED, 1, done)
    relative = [1 / 235_200, 0.1 / 30_000, 0.01 / 1_000]
    ratio = max(relative) / min(relative)
    assert drawn.findings[-1]["ours"] == f"differ by a factor {ratio:.2f}"
    assert drawn.findings[-1]["holds"] is False
    assert [p["y"] for s in drawn.charts[1]["series"] for p in s["points"]] == pytest.approx(relative)


def test_runs_are_shared_between_figures():
    names = ("fig1a", "fig1b", "fig2", "fig3", "fig5", "fig6")
    folders = {name: {job.folder: job for job in FIGURES[name].jobs(Scale.FITTED, 3)} for name in names}
    assert set(folders["fig5"]) < set(folders["fig3"])
    assert all(len(set(folders[name]) & set(folders["fig3"])) >= 4 for name in ("fig1b", "fig2"))
    for name, jobs in folders.items():
        for other in folders.values():
            assert all(jobs[folder] == other[folder] for folder in jobs if folder in other), name
    mnist = {f: job for jobs in folders.values() for f, job in jobs.items() if f.startswith("mnist/")}
    dense = [f for f, job in mnist.items() if job.config.method not in ("deep-r", "fixed")]
    assert len(dense) <= 81  # they take about a minute each
    assert all(job.config.batch_size == 10 and not job.config.bias and job.config.lr == 0.05 for job in mnist.values())


def test_full_repeats_the_scans_for_every_seed():
    fitted, full = (task_runs.CIFAR.runs(scale, 3, ("deep-r", "pruning")) for scale in (Scale.FITTED, Scale.FULL))
    assert [len(jobs) for jobs in (fitted["deep-r"][0.05], fitted["pruning"][0.05], full["pruning"][0.05])] == [3, 2, 3]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One folder for all figures: they share runs."""
    return tmp_path_factory.mktemp("reproduce")


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_runs(name, shared, monkeypatch, loaded, stripes):
    monkeypatch.setattr(task_runs, "EPOCHS", 1)
    monkeypatch.setattr(theory, "STEP_SIZES", (0.08, 0.04))
    monkeypatch.setattr(fig4, "_EPOCHS", {Scale.QUICK: 3})
    experiment = reproduce(FIGURES[name], Scale.QUICK, None, shared, 1, print)
    assert experiment == json.loads((shared / name / "experiment.json").read_text())
    assert experiment["findings"]
    assert all(found["holds"] is None for found in experiment["findings"])
    assert all(found["test"] for found in experiment["findings"])
    assert experiment["charts"]
    for chart in experiment["charts"]:
        assert chart["cells"] if chart["kind"] == "grid" else all(s["points"] for s in chart["series"])
    for run in experiment["runs"]:
        assert (shared / run / "summary.json").exists()
    again = []
    reproduce(FIGURES[name], Scale.QUICK, None, shared, 1, again.append)
    assert all("runs," in line for line in again)  # nothing was run


def test_nothing_is_lost_without_runs(tmp_path):
    """All runs of a figure may diverge; what is left is empty, not wrong."""
    for name in FIGURES:
        drawn = FIGURES[name].plot(Scale.FITTED, 2, Outcomes(tmp_path, {}, {"x": "diverged"}))
        assert all(found["holds"] is None for found in drawn.findings)


def test_fig1b_and_fig2_findings_follow_from_the_runs(tmp_path):
    def by_method(runs):
        groups = runs(Scale.FITTED, 2).items()
        return [(method, level, job.folder) for method, levels in groups for level, jobs in levels.items() for job in jobs]

    def read(runs):
        return fig1b.read(_reading(fig1b.runs, made_outcomes(tmp_path, runs), 2))

    accuracy = {"deep-r": 0.7, "fixed": 0.69, "dense": 0.71, "soft-deep-r": 0.6, "long": 0.83, "first": 0.68}
    runs = {folder: (accuracy[method], level, [100, 100, 100]) for method, level, folder in by_method(fig1b.runs)}
    assert list(_holds(read(runs)).values()) == [None, True, True]
    assert read(runs).findings[1]["ours"] == "1.00 ± 0.00 points below"  # by the runs with the α of 20 %
    assert read(runs).findings[1]["note"].endswith("3.00 ± 0.00 points below")
    assert read(runs).findings[1]["test"] == "paired, 95 % interval below 2 points"
    drawn = read({folder: (0.65, *rest) if "/deep-r" in folder else (a, *rest) for folder, (a, *rest) in runs.items()})
    assert list(_holds(drawn).values()) == [None, False, False]
    assert drawn.findings[-1]["ours"] == "4.00 ± 0.00 points worse"
    runs |= {folder: (0.841, *runs[folder][1:]) for method, _, folder in by_method(fig1b.runs) if method == "long"}
    assert next(iter(_holds(read(runs)).values())) is True
    error = {"deep-r": 0.4, "fixed": 0.42, "dense": 0.41, "soft-deep-r": 0.45}
    made_outcomes(tmp_path, {folder: (0.5, level, [1, 1, 1]) for _, level, folder in by_method(fig2.runs)})
    summaries = {
        folder: {"test_error_at_best_validation": error[method], "connectivity": level}
        for method, level, folder in by_method(fig2.runs)
    }
    found = fig2.read(_reading(fig2.runs, Outcomes(tmp_path, summaries, {}), 2)).findings
    assert [f["holds"] for f in found] == [None, True, False, True, True]
    two = [0.42, 0.38]  # DEEP R is better than dense with one seed, worse with the other
    for job, value in zip(fig2.runs(Scale.FITTED, 2)["deep-r"][0.1], two, strict=True):
        summaries[job.folder]["test_error_at_best_validation"] = value
    found = fig2.read(_reading(fig2.runs, Outcomes(tmp_path, summaries, {}), 2)).findings
    assert [f["holds"] for f in found] == [None, None, False, None, True]


def test_nothing_is_decided_while_runs_that_it_rests_on_are_to_come(tmp_path):
    summaries = {
        job.folder: {"test_error_at_best_validation": 0.4 if method == "deep-r" else 0.45, "connectivity": level}
        for method, levels in fig2.runs(Scale.FITTED, 3).items()
        for level, jobs in levels.items()
        for job in jobs
    }
    made_outcomes(tmp_path, {folder: (0.5, 0.1, [1, 1, 1]) for folder in summaries})

    def holds(missing):
        left = {folder: summary for folder, summary in summaries.items() if folder not in missing}
        return [f["holds"] for f in fig2.read(_reading(fig2.runs, Outcomes(tmp_path, left, {}, missing), 3)).findings]

    assert holds(()) == [None, True, None, True, True]
    assert holds(("speech/fixed-0.2-s2",)) == [None, True, None, None, True]
    assert holds(("speech/dense-s1",)) == [None, None, None, True, True]
    assert holds(("speech/deep-r-0.1-s4",)) == [None, None, None, True, True]  # with which fixed connectivity has no pair
    one_diverged = {folder: summary for folder, summary in summaries.items() if folder != "speech/fixed-0.2-s2"}
    done = Outcomes(tmp_path, one_diverged, {"speech/fixed-0.2-s2": "the loss must be a finite number"})
    assert [f["holds"] for f in fig2.read(_reading(fig2.runs, done, 3)).findings] == [None, True, None, True, True]


def test_seeds_are_added_where_three_decided_nothing():
    task = replace(task_runs.SPEECH, more_seeds={("dense", 1.0): 5, ("deep-r", 0.1): 5})
    runs = task.runs(Scale.FITTED, 3, ("deep-r", "dense"))
    assert {at: len(jobs) for at, jobs in runs["deep-r"].items()} == {0.02: 3, 0.05: 3, 0.1: 5, 0.2: 3}
    assert [job.config.seed for job in runs["dense"][1.0]] == [0, 1, 2, 3, 4]
    assert len(task.runs(Scale.FITTED, 2, ("dense",))["dense"][1.0]) == 2
    assert len(task.runs(Scale.QUICK, 1, ("dense",))["dense"][1.0]) == 1
    assert len(task.runs(Scale.FULL, 4, ("dense",))["dense"][1.0]) == 4


def test_claims_of_fig3_on_speech_rest_on_the_runs_that_they_read(tmp_path):
    groups = fig3.speech_runs(Scale.FITTED, 3)
    error = {"deep-r": 0.44, "soft-deep-r": 0.46, "pruning": 0.45, "l1-shrinkage": 0.5}
    ends = {0.2: 0.15, 0.3: 0.08, 0.4: 0.03, 0.6: 0.001}  # of ℓ1-shrinkage, by α
    made = {}
    for method, levels in groups.items():
        for at, jobs in levels.items():
            for job in jobs:
                rises = [0.5, 0.9 if (method, at) in (("l1-shrinkage", 0.6), ("pruning", 0.02)) else 0.51]
                made[job.folder] = (method, ends.get(at, at) if method == "l1-shrinkage" else at, rises)
    done = made_outcomes(tmp_path, {folder: (0.5, level, [30, 30, 30]) for folder, (_, level, _) in made.items()})
    for folder, (method, _, rises) in made.items():
        done.summaries[folder]["test_error_at_best_validation"] = error[method]
        with (tmp_path / folder / "metrics.jsonl").open("a") as stream:
            epochs = [{"kind": "epoch", "epoch": n, "step": n, "validation_error": e} for n, e in enumerate(rises, 2)]
            stream.write("".join(json.dumps(line) + "\n" for line in epochs))
        text = (tmp_path / folder / "metrics.jsonl").read_text().splitlines()[1:]  # without the epoch that has no such error
        (tmp_path / folder / "metrics.jsonl").write_text("\n".join(text) + "\n")

    def holds(missing=(), **changed):
        summaries = {folder: s for folder, s in done.summaries.items() if folder not in missing}
        summaries |= {folder: {**summaries[folder], "connectivity": at} for folder, at in changed.items()}
        reading = _reading(fig3.speech_runs, Outcomes(tmp_path, summaries, {}, tuple(missing)), 3)
        return [found["holds"] for found in fig3.read_speech(reading).findings]

    better, soft_worse, nobody_fails, jumps = True, False, False, True
    assert holds() == [better, soft_worse, nobody_fails, jumps]
    # soft-DEEP R has no fourth seed, and what fails or not is read off the sparsest networks.
    assert holds(["speech/pruning-0.1-s4"]) == [None, soft_worse, nobody_fails, jumps]
    assert holds(["speech/deep-r-0.1-s5"]) == [better, soft_worse, nobody_fails, jumps]  # for which no rival has a pair
    assert holds(["speech/pruning-0.1-s1"]) == [None, None, nobody_fails, jumps]
    assert holds(["speech/pruning-0.02-s1"]) == [None, None, None, None]
    assert holds(["speech/l1-shrinkage-0.2-s1"]) == [None, None, None, jumps]
    # One network of α 0.6 within the range has no interval.
    assert holds((), **{"speech/l1-shrinkage-0.6-s1": 0.03})[0] is better
