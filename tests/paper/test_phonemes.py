"""The speech experiment: its network against torch's packed sequences, its loss, and whole small runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.checkpoint import CheckpointError
from wirebound_lab.cli import main
from wirebound_lab.data import Batch, SequenceDataset
from wirebound_lab.report.runs import read_run
from wirebound_lab.run.config import ConfigError, make_config
from wirebound_lab.tasks.phonemes import (
    Phonemes,
    TwoWayLSTM,
    dense_model,
    frame_errors,
    frame_loss,
    reverse,
    sparse_model,
)

TRAIN = ["train", "--task", "phonemes", "--quiet"]
SMALL = ["--hidden", "8", "--batch-size", "8", "--validation", "0.1", "--threads", "1"]
METHODS = [
    pytest.param(["--method", "dense"], id="dense"),
    pytest.param(["--method", "deep-r", "--connectivity", "0.3", "--l1", "0.01"], id="deep-r"),
    pytest.param(["--method", "fixed", "--budget", "300"], id="fixed"),
    pytest.param(["--method", "soft-deep-r", "--connectivity", "0.3", "--l1", "0.01"], id="soft-deep-r"),
    pytest.param(["--method", "l1-shrinkage", "--l1", "0.01"], id="l1-shrinkage"),
    pytest.param(["--method", "pruning", "--connectivity", "0.3"], id="pruning"),
    pytest.param(["--method", "set", "--connectivity", "0.3"], id="set"),
    pytest.param(["--method", "rigl", "--connectivity", "0.3"], id="rigl"),
]


def test_two_passes_are_one_packed_pass() -> None:
    torch.manual_seed(0)
    ours, theirs = TwoWayLSTM(5, 7), nn.LSTM(5, 7, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            half = ours.back if name.endswith("_reverse") else ours.ahead
            parameter.copy_(half.get_parameter(name.removesuffix("_reverse")))
    x, lengths = torch.randn(4, 9, 5), torch.tensor([9, 1, 4, 7])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    got, _ = ours(x, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.allclose(got[row, :length], expected[row, :length], atol=1e-6)


def test_reverse_turns_each_sequence_in_its_own_length() -> None:
    x = torch.arange(8.0).reshape(2, 4, 1)
    turned = reverse(x, torch.tensor([3, 2])).squeeze(2)
    assert turned.tolist() == [[2, 1, 0, 3], [5, 4, 6, 7]]
    assert torch.equal(reverse(reverse(x, torch.tensor([3, 2])), torch.tensor([3, 2])), x)


def test_the_gradient_of_a_reversal():
    x = torch.randn(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda given: reverse(given, torch.tensor([5, 3, 0])), x)
    across = x.transpose(0, 1).contiguous().transpose(0, 1)  # in memory as torch's LSTM leaves it
    assert torch.equal(reverse(across, torch.tensor([5, 3, 0])), reverse(x, torch.tensor([5, 3, 0])))


def test_padding_and_unlabelled_frames_count_nowhere() -> None:
    torch.manual_seed(1)
    model = dense_model(6, 4, 3, seed=0)
    x, lengths = torch.randn(2, 5, 6), torch.tensor([5, 3])
    y = torch.tensor([[0, 1, 2, -1, 1], [2, 0, 1, -1, -1]])
    logits = model(x, lengths)
    kept = y != -1
    assert torch.allclose(frame_loss(logits, y), F.cross_entropy(logits[kept], y[kept]))
    wrong, frames, loss = frame_errors(model, Batch(x, lengths, y))
    assert frames == 7
    assert wrong == int((logits.argmax(2)[kept] != y[kept]).sum())
    assert loss == pytest.approx(7 * F.cross_entropy(logits[kept], y[kept]).item(), rel=1e-5)
    louder = x.clone()
    louder[1, 3:] = 1e3  # what stands in the padding must not matter
    assert frame_errors(model, Batch(louder, lengths, y)) == (wrong, frames, pytest.approx(loss, rel=1e-5))


def test_the_dense_network_starts_as_the_paper_says() -> None:
    model = dense_model(39, 200, 39, seed=3)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(parameter.shape[1] ** -0.5, rel=0.03), name
    again = dense_model(39, 200, 39, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_the_sparse_network_starts_with_the_papers_shares() -> None:
    model = sparse_model(39, 200, 39, 0.1, None, seed=0)
    (wiring,) = wb.wirings(model)
    assert wiring.budget == round(0.1 * wiring.possible)
    shares = [active / shape.possible for active, shape in zip(wiring.layer_active, wiring.layers, strict=True)]
    assert shares == pytest.approx([0.18, 0.06, 0.18, 0.06, 0.6], rel=0.02)
    wiring.check()


def _best_epoch(epochs: list[dict], any_connectivity: bool = False) -> int:
    """Among those with at most a twentieth more connections than the last one; of equal ones the sparsest, then the first."""
    active = [0 if any_connectivity else record["active"] for record in epochs]
    counting = [n for n in range(len(epochs)) if active[n] <= 1.05 * active[-1]]
    return min(counting, key=lambda n: (epochs[n]["validation_error"], active[n], n))


@pytest.mark.parametrize("arguments", METHODS)
def test_a_run_learns_keeps_its_budget_and_leaves_a_run_folder(
    loaded: SequenceDataset, tmp_path: Path, arguments: list[str]
) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, *arguments, *SMALL, "--epochs", "6", "--out", str(out)]) == 0
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "metrics.jsonl", "model.safetensors", "summary.json"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["test_error_at_best_validation"] < 0.3  # four of five would be wrong by chance
    assert summary["test_accuracy"] == pytest.approx(1 - summary["test_error"])
    if summary["budget"] is not None:
        assert summary["min_active"] == summary["max_active"] == summary["budget"]
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines() if '"epoch"' in line]
    epochs = [record for record in epochs if record["kind"] == "epoch"]
    errors = [record["validation_error"] for record in epochs]
    best = _best_epoch(epochs, "soft-deep-r" in arguments)
    assert len(errors) == 6
    assert (summary["best_epoch"], summary["best_validation_error"]) == (best + 1, errors[best])
    assert epochs[best]["test_error"] == summary["test_error_at_best_validation"]
    assert epochs[-1]["test_error"] == summary["test_error"]
    found = read_run(out)  # the report knows such a folder
    assert found.finished
    assert found.accuracy == summary["test_accuracy"]


@pytest.mark.parametrize("arguments", [["--method", "pruning", "--connectivity", "0.05"], ["--method", "l1-shrinkage", "--l1", "0.3"]])
def test_epochs_with_more_connections_than_at_the_end_do_not_count(
    loaded: SequenceDataset, tmp_path: Path, arguments: list[str]
) -> None:
    out = tmp_path / "run"
    assert main([*TRAIN, *arguments, *SMALL, "--epochs", "6", "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in records if record["kind"] == "epoch"]
    active = [record["active"] for record in epochs]
    counting = [n for n in range(6) if active[n] <= 1.05 * active[-1]]
    assert 0 < len(counting) < 6
    best = _best_epoch(epochs)
    assert best in counting
    assert (summary["best_epoch"], summary["best_validation_error"]) == (best + 1, epochs[best]["validation_error"])
    assert epochs[best]["test_error"] == summary["test_error_at_best_validation"]


def test_a_checkpoint_without_the_tested_epochs_is_refused(loaded: SequenceDataset) -> None:
    settings = {"task": "phonemes", "method": "dense", "hidden": [8], "batch_size": 8, "validation": 0.1}
    task = Phonemes(make_config(settings))
    with pytest.raises(CheckpointError, match="names no tested epochs"):
        task.measure(2, {}, lambda *_, **__: None)
    with pytest.raises(CheckpointError, match="cannot be read"):
        task.load_state({})
    task.load_state({"tested": [[0.5, 10, 1, 0.6]]})
    assert task.state() == {"tested": [[0.5, 10, 1, 0.6]]}


@pytest.mark.parametrize("arguments", METHODS[:2])
def test_an_interrupted_run_goes_on_to_the_same_end(
    loaded: SequenceDataset, tmp_path: Path, cut_after: Callable[[int], AbstractContextManager[None]], arguments: list[str]
) -> None:
    settings = [*arguments, *SMALL, "--epochs", "3", "--checkpoint-every", "4", "--out"]
    assert main([*TRAIN, *settings, str(tmp_path / "whole")]) == 0
    with cut_after(10):  # of 6 in an epoch: the last checkpoint stands within the second
        main([*TRAIN, *settings, str(tmp_path / "cut")])
    assert not (tmp_path / "cut").exists()
    assert main([*TRAIN, *settings, str(tmp_path / "cut"), "--resume", "--seed", "5"]) == 2  # another run
    assert main([*TRAIN, *settings, str(tmp_path / "cut"), "--resume"]) == 0
    a, b = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("whole", "cut"))
    for volatile in ("seconds", "training_seconds", "cpu_seconds", "ledger"):
        a.pop(volatile), b.pop(volatile)
    assert a == b
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    records = [[{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in part] for part in lines]
    assert records[0] == records[1]
    assert main([*TRAIN, *settings, str(tmp_path / "cut"), "--resume"]) == 0  # finished: returned as it is


def test_the_same_seed_gives_the_same_run(loaded: SequenceDataset, tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["--method", "dense", *SMALL, "--epochs", "1", "--seed", seed, "--out", str(tmp_path / name)]
        assert main([*TRAIN, *arguments]) == 0
        found.append(json.loads((tmp_path / name / "summary.json").read_text())["test_loss"])
    assert math.isfinite(found[0])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, r"method \(='deep-r'\) needs connectivity"),
        ({"connectivity": 0.1, "budget": 5}, "not both"),
        ({"connectivity": 1.7}, r"connectivity \(=1.7\) must be in \(0, 1\]"),
        ({"method": "dense", "budget": 5}, "has no connectivity and no budget"),
        ({"method": "magic"}, r"method \(='magic'\) must be one of deep-r, fixed, dense"),
        ({"method": "dense", "lr": 0.0}, r"lr \(=0.0\) must be a finite number > 0"),
        ({"connectivity": 0.1, "l1": math.nan}, r"l1 \(=nan\)"),
        ({"method": "dense", "validation": 0.0}, r"validation \(=0.0\) must be in \(0, 1\)"),
        ({"method": "dense", "epochs": 0}, r"epochs \(=0\) must be a finite number >= 1"),
        ({"method": "dense", "seed": -1}, r"seed \(=-1\)"),
    ],
)
def test_settings_are_checked(changes: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        make_config({"task": "phonemes", **changes})


def test_wrong_input_is_one_line_and_writes_nothing(
    loaded: SequenceDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--out", str(tmp_path / "x"), "--connectivity", "0"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == "wirebound: connectivity (=0.0) must be in (0, 1]"
    assert not list(tmp_path.iterdir())
