"""What is kept of finished runs is enough to draw figures and to go on elsewhere; estimates come from real steps."""

import json

import pytest
from figure_helpers import digits_job

from wirebound_lab.cli import main
from wirebound_lab.paper.estimate import _kind, say_how_long, seconds_of, trial_of
from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.job import TrainJob, find_finished, run_jobs
from wirebound_lab.paper.keep import keep_runs, take_over
from wirebound_lab.paper.reproduce import FIGURES
from wirebound_lab.paper.task_runs import CIFAR, MNIST


def test_kept_runs_count_as_finished(tmp_path):
    job = digits_job("one", epochs=3)
    run_jobs([job], tmp_path / "runs", 1, print)
    (tmp_path / "runs" / "digits" / "begun").mkdir()  # without a summary: not finished
    assert keep_runs(tmp_path / "runs", tmp_path / "kept") == 1
    assert keep_runs(tmp_path / "runs", tmp_path / "kept") == 0
    names = {path.name for path in (tmp_path / "kept" / job.folder).iterdir()}
    assert names == {"config.json", "summary.json", "metrics.jsonl"}
    assert take_over(tmp_path / "kept", tmp_path / "elsewhere") == 1
    assert take_over(tmp_path / "kept", tmp_path / "elsewhere") == 0
    assert find_finished([job], tmp_path / "elsewhere") == find_finished([job], tmp_path / "runs")


def test_a_run_that_was_begun_is_not_covered_by_a_kept_one(tmp_path):
    job = digits_job("one")
    run_jobs([job], tmp_path / "runs", 1, print)
    keep_runs(tmp_path / "runs", tmp_path / "kept")
    (tmp_path / "elsewhere" / f"{job.folder}.partial").mkdir(parents=True)
    assert take_over(tmp_path / "kept", tmp_path / "elsewhere") == 0


def test_all_but_earlier_wirings_is_kept(tmp_path):
    job = digits_job("many", epochs=4)
    run_jobs([job], tmp_path / "runs", 1, print)
    keep_runs(tmp_path / "runs", tmp_path / "kept")

    def records(folder, kind):
        lines = (tmp_path / folder / job.folder / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    for kind in ("window", "epoch"):
        assert records("kept", kind) == records("runs", kind) != []
    assert records("kept", "wiring") == records("runs", "wiring")[-1:]
    assert len(records("runs", "wiring")) > 1


def test_a_trial_is_a_few_steps_of_the_same_run():
    config = CIFAR.job(Scale.FITTED, "deep-r", 0.05, 0).config
    trial = trial_of(config)
    assert (trial.epochs, trial.images, trial.method, trial.connectivity) == (1, 8 * 128, "deep-r", 0.05)
    assert trial_of(MNIST.job(Scale.FITTED, "deep-r", 0.01, 0).config) is None


@pytest.mark.parametrize("name", list(FIGURES))
def test_every_run_of_every_figure_has_a_kind(name):
    jobs = [job for job in FIGURES[name].jobs(Scale.FITTED, 2) if isinstance(job, TrainJob)]
    assert 2 * len({_kind(job.config) for job in jobs}) <= len(jobs)  # both seeds of a run are of one kind
    assert all(trial is None or trial.epochs == 1 for trial in map(trial_of, (job.config for job in jobs)))


def test_estimates_grow_with_the_number_of_runs(loaded, stripes):
    quick = [CIFAR.job(Scale.QUICK, "deep-r", 0.05, seed) for seed in range(3)]
    assert seconds_of(quick[:1]) > 0
    long = [CIFAR.job(Scale.FITTED, "deep-r", 0.05, seed) for seed in range(3)]
    said = []
    say_how_long(long, 2, said.append)
    assert len(said) == 1
    assert "hours here, 2 at a time" in said[0] or "minutes here, 2 at a time" in said[0]


def test_the_command_keeps_what_it_has_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "fig6", "--quick", "--out", "first", "--keep", "kept"]) == 0
    assert (tmp_path / "kept" / "fig6" / "experiment.json").exists()
    assert main(["reproduce", "fig6", "--quick", "--finished", "--out", "second", "--keep", "kept"]) == 0
    first, second = (json.loads((tmp_path / folder / "fig6" / "experiment.json").read_text()) for folder in ("first", "second"))
    assert not second["missing"]
    assert first["findings"] == second["findings"]
