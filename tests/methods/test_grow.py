"""Growth: by gradient against the dense gradient, at random, and combinations of all pieces."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import wirebound as wb
from wirebound.methods.grow import Best, Growth

SLOW = [HealthCheck.function_scoped_fixture]


class Shared(nn.Module):
    """One layer used twice in a pass, so that it leaves two sources."""

    def __init__(self):
        super().__init__()
        self.first, self.both, self.last = nn.Linear(9, 7), nn.Linear(7, 7), nn.Linear(7, 4)

    def forward(self, x):
        return self.last(self.both(self.both(self.first(x).tanh()).tanh()).tanh())


def _stack():
    return nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 4))


def _expected(dense, model, survivors, counts):
    """The best dormant positions by the dense gradient: of each layer, or of the wiring."""
    (wiring,) = wb.wirings(model)
    scores = torch.cat([layer.weight.grad.t().reshape(-1).abs() for layer in dense])
    scores[survivors] = -1
    starts = wiring.geometry.position_start
    if counts is None:
        return set(scores.topk(wiring.budget - len(survivors)).indices.tolist())
    found = set()
    for (a, b), n in zip(itertools.pairwise(starts), counts, strict=True):
        found |= set((a + scores[a:b].topk(n).indices).tolist())
    return found


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("block", [1, 13, 1 << 20])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("network", [_stack, Shared])
def test_newborns_are_those_of_the_dense_gradient(network, scope, passes, block):
    torch.manual_seed(3)
    model = wb.sparsify(network().double(), 0.3, seed=2)
    (wiring,) = wb.wirings(model)
    twin = wb.to_dense(model)
    dense = [m for m in twin.modules() if isinstance(m, nn.Linear)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    method = wb.Evolve(
        model,
        optimizer,
        drop=wb.drop.Magnitude(),
        grow=wb.grow.Gradient(block),
        when=wb.when.Every(1, 0.4),
        scope=scope,
    )
    for _ in range(passes):
        x = torch.randn(5, 9, dtype=torch.float64)
        for net in (model, twin):
            net(x).square().sum().backward()
    before = set(wiring.positions().tolist())
    old = dict(zip(wiring.positions().tolist(), wiring.theta.tolist(), strict=True))
    grad = dict(zip(wiring.positions().tolist(), wiring.theta.grad.tolist(), strict=True))
    info = method.step()
    wiring.check()
    now = wiring.positions().tolist()
    weights = dict(zip(now, wiring.theta.tolist(), strict=True))
    # A survivor moved by its gradient; a newborn, whether it was active before or not, is at 0.
    survivors = [p for p in now if p in before and weights[p] == pytest.approx(old[p] - 0.01 * grad[p], abs=1e-12)]
    counts = None if scope == "global" else info.layer_rewired
    assert set(now) - set(survivors) == _expected(dense, model, survivors, counts)
    assert info.rewired == wiring.budget - len(survivors) > 10


def test_the_best_of_blocks_are_the_best_and_ties_go_to_the_lower_position():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 5, (200,), generator=generator).float()
    taken = torch.arange(0, 200, 9)
    free = [i for i in range(200) if i % 9 and scores[i] > 0]
    for count, width in itertools.product([1, 10, 60, 500], [1, 8, 200]):
        best = Best(count, taken)
        for first in range(0, 200, width):
            best.offer(first, scores[first : first + width].view(width, -1))
        expected = sorted(sorted(free, key=lambda i: -scores[i])[:count])
        assert best.positions.tolist() == expected


def test_where_the_gradient_is_zero_growth_is_random():
    """Inputs that are always 0 have no gradient: nothing speaks for any of them, least of all a low position."""
    layer = wb.SparseLinear(1000, 4, bias=False, budget=100, seed=0)
    wiring = layer.wiring
    survivors, dead = wiring.positions()[:60], wiring.positions()[60:]
    x = torch.zeros(3, 1000)
    x[:, 500] = 1.0
    wiring.watch = {}
    layer(x).sum().backward()
    born = wb.grow.Gradient()(Growth(wiring, survivors, dead, None, wiring.watch, 1))
    assert born.numel() == 40
    informed = set(range(2000, 2004)) - set(survivors.tolist())
    assert informed <= set(born.tolist())
    assert born.float().median() > 1000


def test_random_growth_by_share_follows_the_first_counts():
    model = wb.sparsify(nn.Sequential(nn.Linear(400, 100), nn.Linear(100, 10)), 0.01, allocation="equal")
    (wiring,) = wb.wirings(model)
    positions = wiring.positions()
    growth = Growth(wiring, positions[:0], positions, None, {}, 1)
    cut = wiring.geometry.position_start[1]
    uniform, shared = wb.grow.Random()(growth), wb.grow.Random(by_share=True)(growth)
    assert len(uniform) == len(shared) == wiring.budget
    assert (uniform < cut).float().mean() > 0.9
    assert abs((shared < cut).float().mean() - 0.5) < 0.12


DROPS = [
    wb.drop.Magnitude(),
    wb.drop.SmallestOfEachSign(),
    wb.drop.Sensitivity(),
    wb.drop.Random(),
    wb.drop.Below(0.1),
    wb.drop.SignFlips(),
]
GROWS = [wb.grow.Random(), wb.grow.Random(by_share=True), wb.grow.Gradient(), wb.grow.Gradient(8)]
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.02),
}


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_every_combination_keeps_the_budget(implementation, data):
    sizes = data.draw(st.lists(st.integers(1, 10), min_size=2, max_size=4))
    possible = sum(a * b for a, b in itertools.pairwise(sizes))
    budget = data.draw(st.integers(1, possible))
    model = wb.sparsify(
        nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))),
        budget=budget,
        scope=data.draw(st.sampled_from(["global", "layer"])),
        seed=data.draw(st.integers(0, 99)),
    )
    scope, every = data.draw(st.sampled_from(["layer", "global"])), data.draw(st.integers(1, 3))
    method = wb.Evolve(
        model,
        OPTIMIZERS[data.draw(st.sampled_from(sorted(OPTIMIZERS)))](model.parameters()),
        drop=data.draw(st.sampled_from(DROPS)),
        grow=data.draw(st.sampled_from(GROWS)),
        when=wb.when.Every(every, data.draw(st.sampled_from([0.0, 0.3, 1.0]))),
        scope=scope,
        newborn_scale=data.draw(st.sampled_from([0.0, 1.0])),
    )
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 7):
        before = [n for w in wb.wirings(model) for n in w.layer_active]
        model(torch.randn(4, sizes[0], generator=generator)).tanh().mean().backward()
        info = method.step()
        method.zero_grad()
        for wiring in wb.wirings(model):
            wiring.check()
        assert info.active == info.budget == budget == sum(w.active for w in wb.wirings(model))
        assert sum(info.layer_rewired) == info.rewired
        assert step % every == 0 or info.rewired == 0
        assert scope == "global" or info.layer_active == before


def test_sign_flips_and_random_growth_rewire_as_deep_r_does():
    """Without ℓ1 and noise, DEEP R is the sign rule with random growth in every step: the same connections."""

    def run(make):
        torch.manual_seed(0)
        model = wb.sparsify(nn.Sequential(nn.Linear(20, 15), nn.Tanh(), nn.Linear(15, 5)), 0.3, seed=4)
        method = make(model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
        x = torch.randn(32, 20, generator=torch.Generator().manual_seed(1))
        rewired = 0
        for _ in range(40):
            F.cross_entropy(model(x), x[:, :5].argmax(1)).backward()
            rewired += method.step().rewired
            method.zero_grad()
        return wb.wirings(model)[0], rewired

    def pieces(model, optimizer):
        return wb.Evolve(
            model,
            optimizer,
            drop=wb.drop.SignFlips(),
            grow=wb.grow.Random(),
            when=wb.when.Every(1, 1.0),
            scope="global",
        )

    (one, rewired), (other, _) = run(pieces), run(lambda m, o: wb.DeepR(m, o, l1=0.0, noise=0.0, newborns="uniform"))
    assert rewired > 50
    assert torch.equal(one.positions(), other.positions())
    torch.testing.assert_close(one.layer_dense(0), other.layer_dense(0))
