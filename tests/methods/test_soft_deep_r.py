"""soft-DEEP R against a few slow lines of numpy, and how it starts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wirebound as wb
from wirebound import ops
from wirebound.methods import soft_deep_r
from wirebound.ops.philox import Stream, stream_of

X = torch.randn(20, 9, generator=torch.Generator().manual_seed(1))
TARGET = torch.randn(20, 4, generator=torch.Generator().manual_seed(2))


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4))


class Slow:
    """Algorithm 2, one connection at a time, in double precision."""

    def __init__(self, soft, lr, l1, temperature, adam):
        self.lr, self.l1, self.temperature, self.adam = lr, l1, temperature, adam
        self.theta = [row.double().numpy().copy() for row in soft.theta]
        self.sign = [row.double().numpy() for row in soft.sign]
        self.floor, self.seed, self.steps = soft.theta_min, soft.seed, 0
        self.moments = [[[0.0, 0.0, 0] for _ in row] for row in self.theta]

    def weights(self):
        return [s * np.maximum(t, 0) for s, t in zip(self.sign, self.theta, strict=True)]

    def step(self, gradients):
        self.steps += 1
        for i, theta in enumerate(self.theta):
            stream = stream_of(Stream.NOISE, 0, layer=i)
            cpu = torch.device("cpu")
            nu = ops.backend_on(cpu).normals(self.seed, stream, self.steps, len(theta), cpu).double().numpy()
            noise = np.sqrt(2 * self.lr * self.temperature) * nu
            for k in range(len(theta)):
                if theta[k] >= 0:
                    theta[k] += self.move(i, k, self.sign[i][k] * gradients[i][k]) - self.lr * self.l1 + noise[k]
                    if theta[k] < 0:
                        self.moments[i][k] = [0.0, 0.0, 0]
                    theta[k] = max(theta[k], self.floor[i])
                else:
                    theta[k] = max(theta[k] + noise[k], self.floor[i])

    def move(self, i, k, gradient):
        if not self.adam:
            return -self.lr * gradient
        moment = self.moments[i][k]
        moment[0] = 0.9 * moment[0] + 0.1 * gradient
        moment[1] = 0.999 * moment[1] + 0.001 * gradient**2
        moment[2] += 1  # its own age
        first, second = moment[0] / (1 - 0.9 ** moment[2]), moment[1] / (1 - 0.999 ** moment[2])
        return -self.lr * first / (np.sqrt(second) + 1e-8)


@pytest.mark.parametrize(
    ("optimizer", "lr", "l1", "temperature"), [("sgd", 0.2, 0.02, 1e-5), ("adam", 0.01, 0.3, 1e-3)]
)
@pytest.mark.parametrize("piece", [soft_deep_r._PIECE, 10])  # the matrices have 63 and 28 numbers
def test_against_numpy(implementation, optimizer, lr, l1, temperature, piece, monkeypatch):
    monkeypatch.setattr(soft_deep_r, "_PIECE", piece)
    model = _model()
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    soft = wb.SoftDeepR(
        model, kind(model.parameters(), lr=lr), l1=l1, temperature=temperature, theta_min=[-0.01, -0.02], connectivity=0.4
    )
    slow = Slow(soft, lr, l1, temperature, adam=optimizer == "adam")
    born = 0
    for _ in range(25):
        F.mse_loss(model(X), TARGET).backward()
        slow.step([m.grad.double().numpy().copy() for m in soft.matrices])
        info = soft.step()
        soft.zero_grad()
        born += info.rewired
        for mine, theirs, matrix, weight in zip(soft.theta, slow.theta, soft.matrices, slow.weights(), strict=True):
            assert np.allclose(mine.numpy(), theirs, atol=2e-6)
            assert np.allclose(matrix.weight.numpy(), weight, atol=2e-6)
        assert list(info.layer_active) == [int((theta >= 0).sum()) for theta in slow.theta]
    assert born > 20


def test_it_starts_as_sparsify_does():
    soft = wb.SoftDeepR(model := _model(), torch.optim.SGD(model.parameters(), lr=0.1), connectivity=0.4, seed=5)
    twin = wb.to_dense(wb.sparsify(_model(), connectivity=0.4, seed=5, allocation="paper"))
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        if mine.dim() > 1:
            assert torch.equal(mine, theirs)
    active = [int((p != 0).sum()) for p in twin.parameters() if p.dim() > 1]
    assert soft.layer_active() == soft.highest_layer_active == active


def test_dormant_connections_start_spread_between_theta_min_and_0():
    model = nn.Linear(200, 100)
    soft = wb.SoftDeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), theta_min=-0.5)
    dormant = soft.theta[0][soft.theta[0] < 0]
    assert dormant.numel() == 19_800
    assert -0.5 <= float(dormant.min()) < -0.499
    assert float(dormant.max()) < 0
    share = torch.histc(dormant, 10, -0.5, 0) / dormant.numel()
    assert torch.allclose(share, torch.full((10,), 0.1), atol=0.012)


def test_highest_counts_are_remembered():
    model = _model()
    soft = wb.SoftDeepR(
        model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.5, temperature=1e-4, theta_min=-0.05, connectivity=0.3
    )
    seen, layers = [sum(soft.layer_active())], [soft.layer_active()]
    for _ in range(30):
        F.mse_loss(model(X), TARGET).backward()
        info = soft.step()
        soft.zero_grad()
        seen.append(info.active)
        layers.append(list(info.layer_active))
    assert soft.highest_active == max(seen) > seen[-1]
    assert soft.highest_layer_active == [max(column) for column in zip(*layers, strict=True)]
    again = wb.SoftDeepR(other := _model(), torch.optim.SGD(other.parameters(), lr=0.1), theta_min=-1.0)
    again.load_state_dict(soft.state_dict())
    assert (again.highest_active, again.highest_layer_active) == (soft.highest_active, soft.highest_layer_active)
    assert again.theta_min == soft.theta_min


def test_excluded_and_other_parameters_are_trained_as_usual():
    model = _model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    soft = wb.SoftDeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), connectivity=0.5, exclude="2.*")
    assert [shape.name for shape in soft.shapes] == ["0.weight"]
    assert torch.equal(model[2].weight, before["2.weight"])
    F.mse_loss(model(X), TARGET).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    soft.step()
    for name in ("0.bias", "2.weight", "2.bias"):
        assert torch.allclose(dict(model.named_parameters())[name], before[name] - 0.1 * grads[name])


def test_matrices_outside_of_the_loss_are_left_alone():
    model = nn.ModuleList([nn.Linear(9, 4), nn.Linear(9, 4)])
    soft = wb.SoftDeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), temperature=1e-3, connectivity=0.5)
    before = soft.theta[1].clone()
    F.mse_loss(model[0](X), TARGET).backward()
    soft.step()
    assert torch.equal(soft.theta[1], before)


def test_rates_of_every_form():
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    soft = wb.SoftDeepR(
        model,
        optimizer,
        l1={"0.weight": 0.1, "2.weight": wb.schedule.linear(0.0, 1.0, 10)},
        temperature=[wb.schedule.noise_amplitude(0.01), 0.0],
        theta_min={"0.weight": -1.0, "2.weight": -2.0},
    )
    assert soft.theta_min == [-1.0, -2.0]
    before = soft.theta[1].clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    soft.step()
    expected = torch.where(before >= 0, before - 0.1 * 0.1, before)
    assert torch.allclose(soft.theta[1], expected, atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"theta_min": 0.0}, r"theta_min of '0.weight' \(=0.0\) must be < 0"),
        ({"theta_min": [-1.0]}, "has 1 values for 2"),
        ({"l1": 0.0}, r"l1 of '0.weight' \(=0.0\) must be > 0 to find theta_min"),
        ({"l1": -1.0}, r"l1 \(=-1.0\) must be a finite number >= 0"),
        ({"connectivity": 1.5}, r"connectivity \(=1.5\) must be in \(0, 1\]"),
        ({"exclude": "*"}, "has no weight matrix for SoftDeepR"),
    ],
)
def test_wrong_settings(settings, message):
    model = _model()
    with pytest.raises(ValueError, match=message):
        wb.SoftDeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), **settings)


def test_parameters_that_the_optimiser_lacks():
    model = _model()
    with pytest.raises(ValueError, match=r"lacks parameter '2.weight'"):
        wb.SoftDeepR(model, torch.optim.SGD(model[0].parameters(), lr=0.1))


def test_a_lost_gradient_is_noticed():
    model = _model()
    soft = wb.SoftDeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), connectivity=0.5)
    (model(X).sum() * float("inf")).backward()
    with pytest.raises(FloatingPointError, match="step 1 was not taken"):
        soft.step()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_counts_are_exact_in_every_dtype(dtype):
    model = nn.Linear(60, 50, bias=False).to(dtype)
    soft = wb.SoftDeepR(
        model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.5, temperature=1e-2, theta_min=-0.2, connectivity=0.4
    )
    assert soft.layer_active() == [1200]
    before = soft.theta[0] >= 0
    model.weight.grad = torch.zeros_like(model.weight)
    info = soft.step()
    now = soft.theta[0] >= 0
    assert info.active == int(now.sum()) != 1200
    assert info.rewired == int((now & ~before).sum()) > 0
