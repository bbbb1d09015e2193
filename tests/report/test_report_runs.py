"""Run folders: what is read from them, and what is said when something is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wirebound_lab.report import ReportError, find_runs, read_run

MakeRun = Callable[..., Path]


def test_reads_a_finished_run(small_run: Path) -> None:
    run = read_run(small_run)
    assert (run.method, run.data, run.seed, run.budget, run.possible) == (
        "deep_r",
        "mnist",
        "0",
        2662,
        266200,
    )
    assert run.finished
    assert run.budget_kept
    assert run.active_range == (2662, 2662)
    assert [layer.name for layer in run.layers] == ["fc1", "fc2", "fc3"]
    assert run.paper is not None
    assert run.paper.accuracy == 0.963
    assert len(run.records.epochs) == 3
    assert len(run.records.pictures) == 4
    assert len(run.records.windows) == 12


@pytest.mark.parametrize("name", ["config.json", "summary.json", "metrics.jsonl"])
def test_missing_file_is_named_with_its_folder(small_run: Path, name: str) -> None:
    (small_run / name).unlink()
    with pytest.raises(ReportError, match=f"missing: {name}") as caught:
        read_run(small_run)
    assert str(small_run) in str(caught.value)


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"missing: config\.json, summary\.json, metrics\.jsonl"):
        read_run(tmp_path)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="must be an existing folder"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["{", "[1]", "", "\ufffd"])
def test_broken_summary_is_named(small_run: Path, text: str) -> None:
    (small_run / "summary.json").write_text(text)
    with pytest.raises(ReportError, match=r"summary\.json must hold one JSON object"):
        read_run(small_run)


def test_the_metrics_can_contradict_the_summary(make_run: MakeRun) -> None:
    run = read_run(make_run(epochs=2, overshoot=3, summary={"max_active": 2662}))
    assert run.active_range == (2662, 2665)
    assert run.budget_kept is False


def test_a_method_without_a_budget(make_run: MakeRun) -> None:
    run = read_run(make_run(epochs=1, method="dense", summary={"budget": None}))
    assert run.budget is None
    assert run.budget_kept is None


def test_a_method_is_called_what_the_run_calls_it(make_run: MakeRun) -> None:
    assert read_run(make_run("old", epochs=1, method="soft_deep_r")).heading == "soft-DEEP R on MNIST"
    assert read_run(make_run("mine", epochs=1, method="mine")).heading == "mine on MNIST"
    named = read_run(make_run("named", epochs=1, method="mine", summary={"title": "My own method"}))
    assert named.heading == "My own method on MNIST"


def test_interrupted_run(make_run: MakeRun) -> None:
    run = read_run(make_run(epochs=1, summary={"test_accuracy": None}))
    assert run.accuracy is None
    assert not run.finished


def test_a_summary_of_the_wrong_types_is_survived(make_run: MakeRun) -> None:
    strange = {
        "layers": "none",
        "ledger": [1, {"part": None}],
        "paper": 3,
        "budget": "many",
        "connectivity": float("nan"),
    }
    run = read_run(make_run(epochs=1, summary=strange))
    assert run.layers == []
    assert len(run.ledger) == 1
    assert run.paper is None
    assert run.budget is None


def test_find_runs(make_run: MakeRun, tmp_path: Path) -> None:
    two, one = make_run("sweep/two", epochs=1), make_run("sweep/one", epochs=1)
    assert find_runs([tmp_path / "runs"]) == [one, two]
    assert find_runs([two, one, two]) == [two, one]
    (tmp_path / "empty").mkdir()
    assert find_runs([tmp_path / "empty"]) == [tmp_path / "empty"]


def test_layers_named_by_place_only_are_numbered(make_run: MakeRun) -> None:
    names = [{"name": name, "shape": [1, 1]} for name in ("0", "2", "encoder.out")]
    layers = read_run(make_run(epochs=1, summary={"layers": names})).layers
    assert [layer.name for layer in layers] == ["layer 1", "layer 2", "encoder.out"]
