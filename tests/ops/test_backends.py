"""Backends as objects: chosen per tensor, registered by one call, and then used for everything."""

from collections import Counter

import pytest
import torch
from torch import nn

import wirebound as wb
from wirebound import ops

COUNTED = ("linear_forward", "linear_backward", "update_", "rewire_", "step_", "normals", "sample_sorted")


class Counting(ops.Backend):
    """The reference for float32 on the CPU, which notes what it is asked for and keeps its counts in tensors."""

    name = "counting"

    def __init__(self):
        self.calls = Counter()

    def __getattribute__(self, name):
        if name in COUNTED:
            self.calls[name] += 1
        return super().__getattribute__(name)

    def accepts(self, tensor):
        return tensor.is_cpu and tensor.dtype is torch.float32


@pytest.fixture
def counting():
    backend = Counting()
    ops.register(backend)
    yield backend
    ops.unregister("counting")


def _train(optimizer):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 6))
    model = wb.sparsify(plain, connectivity=0.2, seed=4)
    rewiring = wb.DeepR(model, optimizer(model.parameters()), l1=1e-2, temperature=1e-4)
    x, y = torch.randn(9, 12), torch.randint(0, 6, (9,))
    born = 0
    for _ in range(30):
        rewiring.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        born += rewiring.step().rewired
    assert born > 5
    return model


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adam(p, lr=0.02)])
def test_a_third_backend_is_used_for_everything(counting, optimizer):
    theirs = _train(optimizer)
    with ops.use("reference"):
        ours = _train(optimizer)
    for (name, one), other in zip(theirs.state_dict().items(), ours.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert set(counting.calls) == set(COUNTED)
    assert counting.calls["linear_forward"] == counting.calls["linear_backward"] == 2 * 30
    assert counting.calls["update_"] == counting.calls["step_"] == 30
    assert counting.calls["rewire_"] > 5


def test_each_tensor_has_its_own(counting):
    single, double = torch.zeros(1), torch.zeros(1, dtype=torch.float64)
    assert ops.backend_of(single) is counting
    assert ops.backend_of(double).name == ("native" if ops.native_available() else "reference")
    assert ops.backend_of(torch.zeros(1, device="meta")).name == "device"
    for name in ("reference", "counting"):
        with ops.use(name):
            assert ops.backend_of(single).name == name
            assert ops.backend_of(double).name == "reference"
    assert ops.backend_of(single) is counting


def test_a_registered_backend_may_be_unregistered(counting):
    with ops.use("counting"):
        ops.unregister("counting")
        assert ops.backend_of(torch.zeros(1)).name == "reference"
        ops.register(counting)
        assert ops.backend_of(torch.zeros(1)) is counting


@pytest.mark.parametrize("name", ["counting", "reference"])
def test_a_name_can_be_taken_once(counting, name):
    counting.name = name
    with pytest.raises(ValueError, match=f"={name!r}.*is taken"):
        ops.register(counting)


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"the backend \(='cuda'\) must be one of \['device', 'native', 'reference'\]"), ops.use("cuda"):
        pass


def test_counts_may_stay_where_the_tensors_are():
    assert ops.numbers(torch.tensor([2, 0])) == ops.numbers([2, 0]) == ops.numbers((2, 0)) == [2, 0]
    wiring = wb.SparseLinear(5, 4, budget=6).wiring
    born, died = ops.Backend().rewire_(wiring, [(wiring.theta.detach(), 0)], torch.tensor([1, 4]), 1, None)
    assert isinstance(born, torch.Tensor)
    assert ops.numbers(born) == ops.numbers(died) == [2]

