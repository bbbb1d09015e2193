"""Growth among sampled candidates: the gradient at given positions, the draw, the choice, GSE and births of DEEP R."""

import pytest
import torch
import torch.nn.functional as F
from method_table import X, Y, assert_same, build, take_steps
from rival_helpers import OPTIMIZERS, small, steps, task
from torch import nn

import wirebound as wb
from wirebound.engine.fused import why_not_fused
from wirebound.methods.grow import Growth
from wirebound.methods.grow.sampled import draw_candidates, gradient_at
from wirebound.wiring import births_of_layers, draw_dormant_in_layers


class Kinds(nn.Module):
    """A layer of every kind that leaves a source, one of them used twice."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, groups=2)
        self.cells = nn.LSTM(8, 5, batch_first=True)
        self.both = nn.Linear(5, 5)

    def forward(self, x):
        images = self.conv(x.view(-1, 2, 4, 4)).tanh()
        last = self.cells(images.flatten(1).view(-1, 8, 8))[0][:, -1]
        return self.both(self.both(last).tanh())


@pytest.mark.usefixtures("implementation")
def test_gradients_at_positions_are_those_of_the_dense_network():
    torch.manual_seed(0)
    model = wb.sparsify(Kinds().double(), 0.4)
    twin = wb.to_dense(model)
    (wiring,) = wb.wirings(model)
    wiring.watch = {}
    x = torch.randn(6, 32, dtype=torch.float64)
    for network in (model, twin):
        network(x).square().sum().backward()
    dense = {name: p.grad for name, p in twin.named_parameters() if "weight" in name}
    expected = [dense[f"{shape.name}.weight" if f"{shape.name}.weight" in dense else shape.name] for shape in wiring.layers]
    expected = torch.cat([gradient.flatten(1).t().reshape(-1) for gradient in expected])
    nobody = torch.empty(0, dtype=torch.int64)
    some = torch.randperm(wiring.possible)[: wiring.possible // 3].sort().values
    for positions in (torch.arange(wiring.possible), some):
        growth = Growth(wiring, nobody, nobody, None, wiring.watch, 1)
        torch.testing.assert_close(gradient_at(growth, positions), expected[positions])


def test_candidates_are_uniform_over_the_dormant_positions():
    """χ² of how often each dormant position is drawn, over the wiring and in each layer."""
    model = wb.sparsify(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), 0.4, seed=1)
    (wiring,) = wb.wirings(model)
    positions = wiring.positions()
    survivors, dead = positions[::2].contiguous(), positions[1::2].contiguous()
    for counts in (None, [4, 3]):
        seen = torch.zeros(wiring.possible)
        for step in range(1, 501):
            found, numbers = draw_candidates(Growth(wiring, survivors, dead, counts, {}, step), 0.6)
            assert found.numel() == sum(numbers) == torch.unique(found).numel()
            seen[found] += 1
        assert not seen[survivors].any()
        free = torch.ones(wiring.possible, dtype=torch.bool)
        free[survivors] = False
        parts = [slice(0, 50)] if counts is None else [slice(0, 30), slice(30, 50)]
        for part in parts:
            own = seen[part][free[part]]
            # Without replacement the variance is smaller than Poisson's, by what of all is drawn.
            scale = 1 - own.mean() / 500
            assert ((own - own.mean()) ** 2 / own.mean() / scale).sum() < 1.7 * own.numel() + 10


def test_more_candidates_than_there_are_is_all_of_them():
    layer = wb.SparseLinear(6, 5, bias=False, budget=20, seed=0)
    survivors, dead = layer.wiring.positions()[5:], layer.wiring.positions()[:5]
    found, numbers = draw_candidates(Growth(layer.wiring, survivors, dead, [5], {}, 1), 9.0)
    assert numbers == [15]
    assert sorted(found.tolist() + survivors.tolist()) == list(range(30))


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_with_all_as_candidates_growth_is_that_of_rigl(scope):
    """Among all dormant connections, the best candidates are RigL's."""

    def run(grow):
        model = small(seed=2).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        drop, when = wb.drop.Magnitude(), wb.when.Every(2, 0.3)
        method = wb.Evolve(model, optimizer, drop=drop, grow=grow, when=when, scope=scope)
        x, y = task()
        for _ in range(10):
            F.cross_entropy(model(x.double()), y).backward()
            method.step()
            method.zero_grad()
            wb.wirings(model)[0].check()
        return wb.wirings(model)[0].positions()

    assert torch.equal(run(wb.grow.SampledGradient(1e6)), run(wb.grow.Gradient()))
    assert not torch.equal(run(wb.grow.SampledGradient(0.5)), run(wb.grow.Gradient()))


def test_candidates_is_checked():
    for wrong in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=rf"candidates \(={wrong}\) must be a finite number > 0"):
            wb.grow.SampledGradient(wrong)
    with pytest.raises(ValueError, match=r"births \(='best'\) must be one of uniform, gradient, paths"):
        build("deep-r", births="best")
    with pytest.raises(ValueError, match=r"candidates \(=0\) must be a finite number > 0"):
        build("deep-r", births="gradient", candidates=0)


# Births of DEEP R.


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("maximize", [False, True])
def test_newborns_are_the_candidates_that_are_pulled_up_most(maximize):
    torch.manual_seed(1)
    model = wb.sparsify(nn.Linear(30, 20, bias=False).double(), 0.2, seed=3)
    (wiring,) = wb.wirings(model)
    dense = wb.to_dense(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, maximize=maximize)
    method = wb.DeepR(model, optimizer, l1=2.0, noise=0.0, births="gradient", candidates=1e6)
    x = torch.randn(7, 30, dtype=torch.float64)
    for network in (model, dense):
        network(x).square().mean().backward()
    before = wiring.positions()
    info = method.step()
    wiring.check()
    survivors = before[torch.isin(before, wiring.positions()[wiring.theta > 0])]
    scores = dense.weight.grad.t().reshape(-1) * torch.where(wiring.negative_signs(torch.arange(600)), -1, 1)
    scores = scores if maximize else -scores
    scores[survivors] = -1
    born = set(wiring.positions()[wiring.theta == 0].tolist())
    assert info.rewired == len(born) > 5
    assert born == set(scores.topk(info.rewired).indices.tolist())


@pytest.mark.parametrize("kind", ["linear", "conv", "lstm"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("births", ["gradient", "paths"])
def test_deep_r_with_a_choice_of_births_keeps_every_promise(kind, optimizer, births, tmp_path):
    through, first, second = (build("deep-r", kind, optimizer, births=births, candidates=0.5) for _ in range(3))
    rewired = 0
    for _ in range(10):
        (info,) = take_steps(through, 1)
        for wiring in wb.wirings(through.model):
            wiring.check()
        assert info.active == info.budget == sum(wiring.active for wiring in wb.wirings(through.model))
        rewired += info.rewired
    assert rewired > 0
    take_steps(first, 5)
    wb.save(tmp_path / "state.safetensors", method=first)
    wb.load(tmp_path / "state.safetensors", method=second)
    take_steps(second, 5)
    assert_same(through, second)


def test_only_steps_that_rewire_are_watched():
    method = build("deep-r", births="gradient", rewire_every=3)
    (wiring,) = wb.wirings(method.model)
    watched = []
    for _ in range(7):
        watched.append(wiring.watch is not None)
        take_steps(method, 1)
    assert watched == [False, False, True, False, False, True, False]
    method.detach()
    assert wiring.watch is None
    uniform = build("deep-r")
    take_steps(uniform, 1)
    assert wb.wirings(uniform.model)[0].watch is None


def test_where_no_candidate_is_pulled_up_births_are_uniform():
    layer = wb.SparseLinear(40, 10, bias=False, budget=60, seed=0)
    method = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=0.1), l1=0.5, noise=0.0, births="gradient")
    (layer(torch.zeros(3, 40)).sum()).backward()  # no input, no gradient
    info = method.step()
    layer.wiring.check()
    assert info.rewired > 10
    born = layer.wiring.positions()[layer.wiring.theta == 0]
    assert 100 < born.float().mean() < 300


def test_layers_get_as_many_newborns_as_by_uniform_births():
    """The numbers of newborns in the layers have the law of the uniform draw: by share, and uniform over the wiring."""
    model = wb.sparsify(nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 10), nn.Linear(10, 5)), 0.2, seed=0)
    (wiring,) = wb.wirings(model)
    positions = wiring.positions()
    survivors, dead = positions[:-40], positions[-40:]
    shares = [3.0, 2.0, 1.0]
    by_share = torch.tensor([births_of_layers(wiring, survivors, dead, s, shares) for s in range(1, 401)]).double()
    assert (by_share.sum(1) == 40).all()
    assert (by_share.mean(0) - torch.tensor([20.0, 40 / 3, 20 / 3])).abs().max() < 0.6
    assert (by_share.var(0) - torch.tensor([10.0, 80 / 9, 50 / 9])).abs().max() < 2.5  # binomial
    uniform = torch.tensor([births_of_layers(wiring, survivors, dead, s, None) for s in range(1, 201)]).double()
    free = torch.tensor([draw_dormant_in_layers(wiring, survivors, [10**6] * 3, 1)[1]]).double()
    assert (uniform.mean(0) - 40 * free[0] / free.sum()).abs().max() < 0.8


def test_full_layers_pass_their_newborns_on():
    model = wb.sparsify(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 40)), 0.5, seed=0, allocation="uniform")
    (wiring,) = wb.wirings(model)
    positions = wiring.positions()
    for step in range(1, 20):
        born = births_of_layers(wiring, positions[:-20], positions[-20:], step, [50.0, 1.0])
        assert sum(born) == 20
        assert born[0] <= 6


@pytest.mark.parametrize("births", ["gradient", "paths"])
def test_frozen_layers_caps_and_signs_hold(births):
    for options in ({}, {"constraints": wb.Constraints(max_fan_in=5, max_fan_out=6)}, {"constraints": wb.Constraints(dale=0.5)}):
        model = small(**options)
        wb.freeze(model[2])
        frozen = model[2].dense_weight()
        method = wb.DeepR(model, OPTIMIZERS["sgd"](model.parameters()), l1=0.05, births=births)
        found = []

        def each(info, found=found, model=model):
            found.append(info.rewired)
            for wiring in wb.wirings(model):
                wiring.check()

        steps(model, method, 8, each)
        assert sum(found) > 10
        assert torch.equal(frozen, model[2].dense_weight())


def test_births_by_gradient_are_not_fused_and_the_reason_is_said():
    method = build("deep-r", births="gradient")
    assert "births (='gradient') chooses among dormant connections" in why_not_fused(method.model, method)


def test_a_gradient_from_elsewhere_is_an_error_and_nothing_moves():
    method = build("deep-r", births="gradient")
    (wiring,) = wb.wirings(method.model)
    before = wiring.theta.detach().clone()
    wiring.theta.grad = torch.ones_like(wiring.theta)
    with pytest.raises(RuntimeError, match="must leave the gradient of dormant connections"):
        method.step()
    assert torch.equal(before, wiring.theta)


@pytest.mark.parametrize("births", ["gradient", "paths"])
def test_births_by_choice_learn(births):
    method = build("deep-r", l1=0.005, births=births)
    take_steps(method, 60)
    assert (method.model(X).argmax(1) == Y).float().mean() > 0.9


def test_births_along_paths_stay_local():
    """Two halves that share no neuron: no path joins them, so no newborn does."""
    layer = wb.SparseLinear(40, 40, bias=False, budget=200, seed=0)
    wiring, half = layer.wiring, torch.arange(40) < 20
    within = torch.nonzero(half[:, None] == half[None])
    chosen = within[torch.randperm(800, generator=torch.Generator().manual_seed(1))[:200]]
    wiring.replace_(torch.arange(200), (40 * chosen[:, 0] + chosen[:, 1]).sort().values, [], torch.linspace(0.01, 1, 200))
    method = wb.DeepR(layer, torch.optim.SGD(layer.parameters(), lr=0.1), l1=0.2, noise=0.0, births="paths")
    x, rewired = torch.randn(8, 40, generator=torch.Generator().manual_seed(0)), 0
    for _ in range(5):
        layer(x).square().mean().backward()
        rewired += method.step().rewired
        method.zero_grad()
        wiring.check()
        assert (half[wiring.positions() // 40] == half[wiring.positions() % 40]).all()
    assert rewired > 5


def test_births_along_paths_refuse_sparse_rows():
    model = wb.sparsify(nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 2)), 0.3, seed=0)
    method = wb.DeepR(model, torch.optim.SGD(model.parameters(), lr=0.1), l1=0.1, births="paths")
    model(torch.eye(30)[:5].to_sparse_csr()).sum().backward()
    with pytest.raises(ValueError, match=r"births \(='paths'\) does not know which columns sparse rows have"):
        method.step()
