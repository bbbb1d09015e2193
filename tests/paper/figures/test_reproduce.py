"""The frame: each run once, interrupted ones go on, other settings are refused, what diverges is noted."""

import json
import os
import signal
import threading
import time

import pytest
from figure_helpers import digits_job, mark_figure

from wirebound_lab.paper.figure import Scale
from wirebound_lab.paper.job import run_jobs
from wirebound_lab.paper.replication import write_results
from wirebound_lab.paper.reproduce import check_begun, find_figures, reproduce
from wirebound_lab.run.config import ConfigError
from wirebound_lab.run.processes import Interrupted
from wirebound_lab.run.record import RunFolderError


def _quiet(text):
    pass


def test_finished_runs_are_not_repeated_and_what_diverges_is_noted(tmp_path):
    marks = tmp_path / "marks"
    figure = mark_figure(marks)
    first = reproduce(figure, Scale.FITTED, None, tmp_path / "out", 1, _quiet)
    assert marks.read_text().split() == ["made/good-s0", "made/good-s1", "made/bad", "made/after-0.9"]
    again = reproduce(figure, Scale.FITTED, None, tmp_path / "out", 1, _quiet)
    assert marks.read_text().split()[4:] == ["made/bad"]  # it has no summary: the only one that is tried again
    assert first == again == json.loads((tmp_path / "out" / "figx" / "experiment.json").read_text())
    assert first["diverged"] == {"made/bad": "the loss must be a finite number"}
    assert first["tables"][-1]["rows"] == [["made/bad", "the loss must be a finite number"]]
    assert (first["seeds"], first["scale"], first["command"]) == (2, "fitted", "wirebound reproduce figx --seeds 2")
    assert first["runs"] == ["runs/made/good-s0", "runs/made/good-s1"]
    assert first["findings"][0]["holds"] is True
    more = reproduce(figure, Scale.FITTED, 3, tmp_path / "out", 1, _quiet)
    assert marks.read_text().split()[5:] == ["made/good-s2", "made/bad"]
    assert more["seeds"] == 3


def test_only_what_is_finished_is_drawn_when_asked(tmp_path):
    marks = tmp_path / "marks"
    figure = mark_figure(marks)
    empty = reproduce(figure, Scale.FITTED, None, tmp_path / "out", 1, _quiet, finished=True)
    assert not marks.exists()
    assert "made/good-s0" in empty["missing"]
    assert empty["runs"] == []
    reproduce(figure, Scale.FITTED, 1, tmp_path / "out", 1, _quiet)
    before = marks.read_text()
    some = reproduce(figure, Scale.FITTED, 2, tmp_path / "out", 1, _quiet, finished=True)
    assert marks.read_text() == before
    assert some["runs"] == ["runs/made/good-s0"]
    assert some["missing"] == ["made/bad", "made/good-s1"]
    assert "2 of its runs are still missing" in some["scale_note"]


def test_a_diverging_training_does_not_lose_the_others(tmp_path):
    jobs = [digits_job("bad", lr=1e30), digits_job("good")]
    said = []
    done = run_jobs(jobs, tmp_path, 1, said.append)
    assert list(done.summaries) == ["digits/good"]
    assert "finite" in done.lost["digits/bad"]
    assert "diverged" in said[1]
    assert done.ended(jobs) == jobs[1:]
    assert [record["epoch"] for record in done.metrics(jobs[1], "epoch")] == [1]


def test_a_run_of_other_settings_is_refused(tmp_path):
    run_jobs([digits_job("x")], tmp_path, 1, _quiet)
    message = r"digits/x holds another run than this figure needs: lr \(=0.25\) must be that of the run in .* \(=0.5\)"
    with pytest.raises(RunFolderError, match=message):
        run_jobs([digits_job("x", lr=0.25)], tmp_path, 1, _quiet)


def test_a_claim_that_does_not_hold_and_a_quick_look(tmp_path):
    bad = reproduce(mark_figure(tmp_path / "m", value=0.7, diverges=False), Scale.FULL, 1, tmp_path / "a", 1, _quiet)
    assert bad["findings"][0]["holds"] is False
    assert bad["diverged"] == {}
    quick = reproduce(mark_figure(tmp_path / "m", value=0.7), Scale.QUICK, None, tmp_path / "b", 1, _quiet)
    assert (quick["findings"][0]["holds"], quick["seeds"]) == (None, 1)


def test_the_table_of_results(tmp_path):
    marks, out = tmp_path / "marks", tmp_path / "out"
    figures = {
        "figx": mark_figure(marks, value=0.7),
        "figy": mark_figure(marks, "figy"),
        "figz": mark_figure(marks, "figz"),
    }
    reproduce(figures["figx"], Scale.FITTED, None, out, 1, _quiet)
    reproduce(figures["figz"], Scale.QUICK, None, out, 1, _quiet)
    text = write_results(out, figures).read_text()
    rows = [line for line in text.splitlines() if line.startswith("| fig")]
    assert [row.split(" | ")[0] for row in rows] == ["| figure", "| figx", "| figy", "| figz"]
    assert rows[1] == "| figx | it is above 80 % | 80 % | 0.70 | 2 | the mean is above 80 % | **does not hold** | `wirebound reproduce figx --seeds 2` |"
    assert rows[2] == "| figy | A claim \\| with a bar. |  | not run |  |  |  | `wirebound reproduce figy` |"
    assert "| not decided | `wirebound reproduce figz --quick --seeds 1` |" in rows[3]
    assert "0 claims hold, 1 do not, 1 are not decided" in text
    assert "diverged: `made/bad`: the loss must be a finite number" in text
    (out / "figx" / "experiment.json").write_text("{}")
    with pytest.raises(ValueError, match=r"figx.experiment.json cannot be read: it must hold one experiment"):
        write_results(out, figures)


def test_names_and_resume(tmp_path):
    figures = {name: mark_figure(tmp_path / "m", name) for name in ("fig1a", "fig1b", "theory")}
    assert [f.name for f in find_figures(["theory", "fig1a", "theory"], figures)] == ["theory", "fig1a"]
    with pytest.raises(ConfigError, match=r"figure \(='fig1'\) is unknown; did you mean fig1[ab] or fig1[ab]\?"):
        find_figures(["fig1"], figures)
    with pytest.raises(ConfigError, match="known are fig1a, fig1b, theory"):
        find_figures(["zzzz"], figures)
    everything = list(figures.values())
    with pytest.raises(RunFolderError, match="holds no run of fig1a fig1b theory at this scale to resume"):
        check_begun(everything, Scale.FITTED, None, tmp_path)
    (tmp_path / "runs" / "made" / "good-s1.partial").mkdir(parents=True)
    check_begun(everything, Scale.FITTED, None, tmp_path)
    with pytest.raises(RunFolderError):  # not the second seed
        check_begun(everything, Scale.FITTED, 1, tmp_path)


def _plain(runs):
    """What the settings decide of each finished run."""
    found = {}
    for path in sorted(runs.glob("digits/*/summary.json")):
        summary = json.loads(path.read_text())
        kept = {key: summary[key] for key in ("test_accuracy", "test_loss", "steps", "layers", "max_active")}
        metrics = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        found[path.parent.name] = kept, [{k: v for k, v in record.items() if k != "seconds"} for record in metrics]
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_and_gone_on_with(tmp_path, workers):
    """SIGINT to this process alone, as `kill -INT` sends it; then the same once more, beside runs that are left alone."""
    jobs = [digits_job(f"s{s}", epochs=8, seed=s, engine="module") for s in range(2)]

    def interrupt():
        while not list(tmp_path.glob("runs/digits/*.partial/metrics.jsonl")):
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Interrupted, match="of 2 runs are finished; the same command goes on") as stopped:
        run_jobs(jobs, tmp_path / "runs", workers, _quiet)
    assert stopped.value.code == 130
    assert list(tmp_path.glob("runs/digits/*.partial/checkpoint.safetensors"))
    assert len(_plain(tmp_path / "runs")) < 2
    assert len(run_jobs(jobs, tmp_path / "runs", 1, _quiet).summaries) == 2
    run_jobs(jobs, tmp_path / "alone", 1, _quiet)
    assert _plain(tmp_path / "runs") == _plain(tmp_path / "alone")
