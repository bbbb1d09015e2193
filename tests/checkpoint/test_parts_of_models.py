"""Models that are not what a checkpoint can hold: parts of others, another precision, no memory, θ < 0."""

import pytest
import torch
from checkpoint_helpers import X, build
from torch import nn

import wirebound as wb


def _model():
    model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    return wb.sparsify(model, connectivity=0.4)


def test_a_slice_without_the_layer_that_holds_theta(tmp_path):
    whole = _model()
    wb.save(tmp_path / "c", model=whole)
    match = r"layer '2' is a part of the wiring over 0, 2, 4, whose connections are held by layer '0'.* give the whole model"
    with pytest.raises(wb.CheckpointError, match=match):
        wb.save(tmp_path / "d", model=whole[2:])
    with pytest.raises(wb.CheckpointError, match=match):
        wb.load(tmp_path / "c", model=whole[2:])
    assert not (tmp_path / "d").exists()
    with pytest.raises(ValueError, match=r"of a model with layer '0', which holds it"):
        wb.DeepR(whole[2:], torch.optim.SGD([*whole[2:].parameters()], lr=0.1))


def test_a_slice_that_keeps_it(tmp_path):
    whole = _model()
    wb.save(tmp_path / "c", model=whole[:3])
    wb.load(tmp_path / "c", model=whole[:3])
    layers = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 6))
    alone = wb.sparsify(layers, connectivity=0.4, scope="layer")
    wb.save(tmp_path / "c", model=alone[2:])  # with a wiring of its own


@pytest.mark.parametrize(("there", "here"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_another_precision(tmp_path, there, here):
    wb.save(tmp_path / "c", model=_model().to(there))
    model = _model().to(here)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kind = str(there).removeprefix("torch.")
    with pytest.raises(wb.CheckpointError, match=rf"is {kind} of shape .*; load it into a model of that type, model.to\({there}\)"):
        wb.load(tmp_path / "c", model=model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model = _model().to(there)
    wb.load(tmp_path / "c", model=model)
    model.to(here)(X.to(here))


def test_optimiser_state_of_another_precision(tmp_path):
    """``.double()`` in the midst of training leaves the state behind."""
    method = build(optimizer="rmsprop")[0]
    method.model(X).square().sum().backward()
    method.step()
    method.model.double()
    with pytest.raises(wb.CheckpointError, match=r"must be float64 .* is float32 .*nothing was written"):
        wb.save(tmp_path / "c", method=method)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_memory(tmp_path):
    wb.save(tmp_path / "c", model=_model())
    for call in (wb.save, wb.load):
        with pytest.raises(wb.CheckpointError, match=r"meta device and has no numbers"):
            call(tmp_path / "c", model=_model().to("meta"))


@pytest.mark.parametrize(
    ("value", "advice"),
    [(-0.5, r"1 have θ < 0; nothing was written: take the method's step, not that of another optimiser"),
     (float("nan"), "finite.*nothing was written: go back to the last good file")],
)
def test_theta_that_is_not_worth_keeping(tmp_path, value, advice):
    model = _model()
    wb.save(tmp_path / "c", model=model)
    good = (tmp_path / "c").read_bytes()
    with torch.no_grad():
        model[0].wiring.theta[2] = value
    with pytest.raises(wb.WiringError, match=advice):
        wb.save(tmp_path / "c", model=model)
    assert (tmp_path / "c").read_bytes() == good
