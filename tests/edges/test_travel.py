"""A method's state travels in its optimiser's state dict: model and optimiser restored is all restored."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

import wirebound as wb

X = torch.randn(32, 20, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 5, (32,), generator=torch.Generator().manual_seed(2))


def _train(model, rewiring, steps):
    for _ in range(steps):
        rewiring.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        rewiring.step()


def _bits(model, optimizer):
    tensors = [*model.parameters(), *model.buffers()]
    return tensors + [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]


METHODS = {
    "deep-r": lambda m, o: wb.DeepR(m, o, l1=1e-2, temperature=1e-6),
    "constant-rate": lambda m, o: wb.ConstantRate(m, o, l1=1e-2, rate=0.05),
    "set": lambda m, o: wb.SET(m, o),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_a_run_restored_from_model_and_optimiser_alone_is_the_same_run(model, method, make):
    fresh = copy.deepcopy(model)
    optimizer = make(model.parameters())
    rewiring = METHODS[method](model, optimizer)
    _train(model, rewiring, 8)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    _train(model, rewiring, 8)

    other = make(fresh.parameters())
    again = METHODS[method](fresh, other)
    file.seek(0)
    held = torch.load(file, weights_only=True)
    fresh.load_state_dict(held["model"])
    other.load_state_dict(held["optimizer"])
    assert again.steps == 8
    _train(fresh, again, 8)
    assert all(torch.equal(a, b) for a, b in zip(_bits(model, optimizer), _bits(fresh, other), strict=True))


def test_state_of_another_method_is_said(model):
    optimizer = torch.optim.Adam(model.parameters())
    rewiring = wb.DeepR(model, optimizer)
    _train(model, rewiring, 2)
    held = optimizer.state_dict()
    rewiring.detach()
    later = wb.SET(model, optimizer)
    with pytest.warns(UserWarning, match="kept with DeepR, here it is SET"):
        optimizer.load_state_dict(held)
    assert later.steps == 0


def test_a_copy_of_a_method_travels_with_its_own_optimiser(model):
    optimizer = torch.optim.Adam(model.parameters())
    rewiring = wb.DeepR(model, optimizer)
    _train(model, rewiring, 2)
    twin = copy.deepcopy(rewiring)
    _train(twin.model, twin, 3)
    assert optimizer.state_dict()["wirebound"]["state"]["steps"] == 2
    assert twin.optimizer.state_dict()["wirebound"]["state"]["steps"] == 5


def test_an_optimiser_state_without_a_method_is_taken(model):
    optimizer = torch.optim.Adam(model.parameters())
    plain = optimizer.state_dict()
    rewiring = wb.DeepR(model, optimizer)
    _train(model, rewiring, 3)
    optimizer.load_state_dict(plain)
    _train(model, rewiring, 1)
    assert rewiring.steps == 4


def test_a_file_holds_the_method_once(model, tmp_path):
    optimizer = torch.optim.Adam(model.parameters())
    rewiring = wb.DeepR(model, optimizer)
    _train(model, rewiring, 3)
    wb.save(tmp_path / "c.safetensors", method=rewiring)
    _train(model, rewiring, 3)
    wb.load(tmp_path / "c.safetensors", method=rewiring)
    assert rewiring.steps == 3
    keys = safe_open(str(tmp_path / "c.safetensors"), "pt").keys()
    assert sum("drawn" in key for key in keys) == 1
