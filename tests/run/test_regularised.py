"""What the perceptron task has against overfitting: dropout, smoothed labels, teachers, moved images; and a dense output."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound.engine.modules import Batch, data_order
from wirebound.ops.reference.images import standardise
from wirebound_lab.data import load
from wirebound_lab.run import train
from wirebound_lab.run.config import ConfigError, make_config
from wirebound_lab.tasks.mixing import mixed
from wirebound_lab.tasks.perceptron import Perceptron
from wirebound_lab.tasks.pieces import BORDER, Pieces
from wirebound_lab.tasks.soft_targets import with_soft_targets

BASE = {"data": "digits", "hidden": [24, 16], "connectivity": 0.3, "epochs": 4, "batch_size": 20, "lr": 0.5, "init": "sparse-fan-in"}


@pytest.mark.parametrize("engine", ["auto", "module"])
def test_dropout_and_smoothing_train_on_both_engines(tmp_path: Path, engine: str) -> None:
    config = make_config(BASE, {"input_dropout": 0.1, "dropout": 0.2, "label_smoothing": 0.1, "engine": engine})
    summary = train(config, tmp_path / "run").summary
    assert summary["min_active"] == summary["max_active"] == summary["budget"]
    assert summary["test_accuracy"] > 0.3


def test_engines_agree(tmp_path: Path) -> None:
    own = {"input_dropout": 0.1, "dropout": 0.2, "label_smoothing": 0.1, "epochs": 1}
    one, two = (train(make_config(BASE, own, {"engine": e}), tmp_path / e).summary["test_accuracy"] for e in ("auto", "module"))
    assert one == pytest.approx(two, abs=0.02)


def test_smoothed_labels() -> None:
    data = load("digits")
    config = make_config(BASE, {"label_smoothing": 0.2})
    soft = with_soft_targets(data, config, partial(data.to_inputs, flatten=True)).train_y
    assert torch.equal(soft.argmax(1), data.train_y)
    assert torch.allclose(soft.sum(1), torch.ones(len(soft)))
    assert soft.max() == pytest.approx(0.8 + 0.02)
    assert with_soft_targets(data, make_config(BASE), data.to_inputs) is data


def test_a_student_learns_its_teachers_answer(tmp_path: Path) -> None:
    folders = [str(tmp_path / f"teacher-{seed}") for seed in range(2)]
    for seed, folder in enumerate(folders):
        train(make_config(BASE, {"seed": seed}), Path(folder))
    data = load("digits")
    config = make_config(BASE, {"teachers": folders, "distill": 1.0, "teacher_temperature": 2.0})
    targets = with_soft_targets(data, config, partial(data.to_inputs, flatten=True)).train_y
    x = data.inputs("train", flatten=True)[:5]
    with torch.no_grad():
        models = [train(make_config(BASE, {"seed": seed}), tmp_path / f"again-{seed}").model.eval() for seed in range(2)]
        wanted = sum(torch.softmax(model(x) / 2.0, 1) for model in models) / 2
    torch.testing.assert_close(targets[:5], wanted)
    summary = train(config, tmp_path / "student").summary
    assert summary["test_accuracy"] > 0.3


def test_teachers_of_moved_images_see_standardised_ones(tmp_path: Path) -> None:
    own = {"augment": "crop", "shift": 1}
    teacher = train(make_config(BASE, own), tmp_path / "teacher")
    student = Perceptron(make_config(BASE, own, {"teachers": [str(tmp_path / "teacher")], "distill": 1.0}))
    assert student.pieces is not None
    with torch.no_grad():
        wanted = torch.softmax(teacher.model.eval()(student.pieces.middle(student.data.train_x)), 1)
    torch.testing.assert_close(student.pieces.y, wanted)


def test_a_teacher_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = wb.sparsify(nn.Sequential(nn.Linear(64, 3)), connectivity=0.5)
    wb.save(tmp_path / "other.safetensors", model=model)
    config = make_config(BASE, {"teachers": [str(tmp_path / "other.safetensors")]})
    with pytest.raises(ConfigError, match=r"teacher \(=.*other.safetensors\) has 3 outputs, the data 10 classes"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_dense_output_is_not_counted(tmp_path: Path) -> None:
    done = train(make_config(BASE, {"dense_output": True}), tmp_path / "run")
    (wiring,) = wb.wirings(done.model)
    assert wiring.possible == 64 * 24 + 24 * 16
    assert done.summary["budget"] == wiring.budget == round(0.3 * wiring.possible)
    assert type(done.model[-1]) is nn.Linear
    again = train(make_config(BASE, {"dense_output": True}), tmp_path / "again")
    assert torch.equal(again.model[-1].weight, done.model[-1].weight)


def test_pieces_are_moved_mirrored_and_standardised() -> None:
    data = load("digits")
    pieces = Pieces(data, seed=3)
    one, two = (list(pieces.batches(100, epoch, 0)) for epoch in (1, 2))
    x = one[0].inputs[0]
    assert x.shape == (100, 64)
    assert torch.allclose(x.mean(1), torch.zeros(100), atol=1e-5)
    assert sum(len(batch.y) for batch in one) == len(data.train_y)
    assert not torch.equal(x, two[0].inputs[0])
    again = list(pieces.batches(100, 1, 3))  # resumed within the epoch
    assert all(torch.equal(a.inputs[0], b.inputs[0]) for a, b in zip(again, one[3:], strict=True))


def test_a_piece_is_the_image_itself_moved_or_mirrored() -> None:
    data = load("digits")
    single = replace(data, train_x=data.train_x[:1], train_y=data.train_y[:1])
    pieces = Pieces(single, seed=3)
    padded = F.pad(single.train_x[0], (BORDER,) * 4)
    windows = [padded[top : top + 8, left : left + 8] for top in range(2 * BORDER + 1) for left in range(2 * BORDER + 1)]
    options = torch.stack([o for window in windows for o in (window, window.flip(1))])[:, None]
    known = standardise(options.float() / 255).flatten(1)
    for epoch in range(20):
        (batch,) = pieces.batches(1, epoch, 0)
        assert ((known - batch.inputs[0]).abs().amax(1) < 1e-4).any()
    assert torch.allclose(pieces.middle(single.train_x), standardise(single.train_x[:, None].float() / 255).flatten(1), atol=1e-4)


def test_images_move_no_further_than_they_may() -> None:
    data = load("digits")
    still = Pieces(data, seed=3, border=0)
    (batch,) = still.batches(len(data.train_y), 1, 0)
    images = still.middle(data.train_x)
    mirrored = images.view(-1, 8, 8).flip(2).flatten(1)
    chosen = data_order(len(data.train_y), 3, 1)
    same, other = ((batch.inputs[0] - known[chosen]).abs().amax(1) < 1e-5 for known in (images, mirrored))
    assert bool((same | other).all())
    assert 0.4 < same.float().mean() < 0.6


def test_images_are_moved_without_being_mirrored() -> None:
    data = load("digits")
    still = Pieces(data, seed=3, border=0, flip=False)
    (batch,) = still.batches(len(data.train_y), 1, 0)
    assert torch.equal(batch.inputs[0], still.middle(data.train_x)[data_order(len(data.train_y), 3, 1)])


def test_mixed_examples() -> None:
    """Inputs and targets by the same share, which is a function of (seed, epoch, number of the batch)."""
    batches = [Batch((torch.randn(6, 4),), torch.tensor([0, 1, 2, 2, 1, 0])) for _ in range(5)]
    one, two = (list(mixed(iter(batches), 0.4, 3, seed=7, epoch=epoch, start=0)) for epoch in (1, 2))
    shares = []
    for before, after in zip(batches, one, strict=True):
        (x,), (mix,), y = before.inputs, after.inputs, F.one_hot(before.y, 3).float()
        share = float(((mix - x.roll(1, 0)) / (x - x.roll(1, 0))).mean())
        torch.testing.assert_close(after.y, share * y + (1 - share) * y.roll(1, 0), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(after.y.sum(1), torch.ones(6))
        shares.append(share)
    assert len({round(share, 3) for share in shares}) > 2
    assert not torch.equal(one[0].y, two[0].y)
    resumed = list(mixed(iter(batches[3:]), 0.4, 3, seed=7, epoch=1, start=3))
    assert all(torch.equal(a.inputs[0], b.inputs[0]) and torch.equal(a.y, b.y) for a, b in zip(resumed, one[3:], strict=True))


@pytest.mark.parametrize("own", [{"mixup": 0.2}, {"average": 0.9}, {"augment": "crop", "shift": 1, "mixup": 0.2}])
def test_mixing_and_averages_train_module_by_module(tmp_path: Path, own: dict[str, object]) -> None:
    done = train(make_config(BASE, own), tmp_path / "run")
    assert done.summary["path"] == "module"
    assert done.summary["min_active"] == done.summary["max_active"] == done.summary["budget"]
    assert done.summary["test_accuracy"] > 0.3
    with pytest.raises(ConfigError, match=rf"engine \(='fused'\) cannot run this: .*{list(own)[-1]}"):
        train(make_config(BASE, own, {"engine": "fused"}), tmp_path / "fused")


def test_the_average_is_what_is_evaluated(tmp_path: Path) -> None:
    """With a decay that forgets almost at once it is the network itself; with a long one another."""
    plain, short, long = (
        train(make_config(BASE, {"engine": "module", "average": decay}), tmp_path / f"{decay}").summary["test_loss"]
        for decay in (0.0, 1e-6, 0.99)
    )
    assert short == pytest.approx(plain, rel=1e-3)
    assert abs(long - plain) > 1e-3 * plain


def test_centred_gradients_train_module_by_module(tmp_path: Path) -> None:
    done = train(make_config(BASE, {"mean_gradient": 0.1}), tmp_path / "run")
    assert done.summary["path"] == "module"
    assert done.summary["min_active"] == done.summary["max_active"] == done.summary["budget"]
    with pytest.raises(ConfigError, match="mean_gradient"):
        train(make_config(BASE, {"mean_gradient": 0.1, "engine": "fused"}), tmp_path / "fused")
    with pytest.raises(ConfigError, match="mean_gradient"):
        make_config(BASE, {"mean_gradient": 0.1, "method": "dense", "connectivity": None}).check()


def test_moved_images_resume(tmp_path: Path) -> None:
    own = {"augment": "crop-flip", "optimizer": "momentum", "lr": 0.05}
    done = train(make_config(BASE, own), tmp_path / "run")
    assert done.summary["path"] == "module"
    assert done.summary["min_active"] == done.summary["budget"]
    with pytest.raises(ConfigError, match="engine"):
        train(make_config(BASE, own, {"engine": "fused"}), tmp_path / "fused")


def test_connections_may_have_a_rate_of_their_own(tmp_path: Path) -> None:
    done = train(make_config(BASE, {"sparse_lr": 4.0, "dense_output": True, "lr": 0.1}), tmp_path / "run")
    (wiring,) = wb.wirings(done.model)
    assert wiring.layer_rates.lr == (4.0, 4.0)
    assert done.summary["test_accuracy"] > 0.8
    with pytest.raises(ConfigError, match="sparse_lr"):
        make_config(BASE, {"sparse_lr": 0.0})


def test_correlated_starts_of_runs(tmp_path: Path) -> None:
    own = {"correlated": [8.0, 2.0], "method": "fixed", "lr": 0.2}
    plain = train(make_config(BASE, {"method": "fixed", "lr": 0.2}), tmp_path / "plain").model
    wired = train(make_config(BASE, own), tmp_path / "wired").model
    again = train(make_config(BASE, own), tmp_path / "again").model
    positions = [wb.wirings(model)[0].positions() for model in (plain, wired, again)]
    assert torch.equal(positions[1], positions[2])
    assert not torch.equal(positions[0], positions[1])
    with pytest.raises(ConfigError, match="power has 4 numbers, but the model has 3"):
        train(make_config(BASE, {"correlated": [1.0] * 4}), tmp_path / "wrong")
