"""Every method keeps caps and signs of neurons after every step."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rival_helpers import OPTIMIZERS, bits, same, task
from torch import nn

import wirebound as wb
from wirebound.engine.fused import why_not_fused
from wirebound.methods.grow import Growth
from wirebound.wiring import LayerShape, Wiring

METHODS = {
    "deep-r": lambda m, o: wb.DeepR(m, o, l1=0.05, temperature=1e-3),
    "deep-r, by share": lambda m, o: wb.DeepR(m, o, l1=0.05, newborns="share", rewire_every=2),
    "set": lambda m, o: wb.SET(m, o, every=2, newborn_scale=1.0),
    "rigl": lambda m, o: wb.RigL(m, o, every=2),
    "rigl, global": lambda m, o: wb.RigL(m, o, every=2, scope="global"),
    "gse": lambda m, o: wb.GSE(m, o, every=2, scope="global"),
    "births by gradient": lambda m, o: wb.DeepR(m, o, l1=0.05, births="gradient"),
    "fixed": wb.Fixed,
}


def network(sizes, kept, scope="global", share=0.7, seed=0):
    """A stack over one wiring, or over one for each layer, as full as ``share`` of what the caps allow."""
    shapes = [LayerShape(str(2 * i), b, a) for i, (a, b) in enumerate(itertools.pairwise(sizes))]
    counts = [max(1, int(share * kept.capacity(shape))) for shape in shapes]
    layers = []
    torch.manual_seed(seed)
    whole = Wiring(shapes, counts, seed=seed, constraints=kept) if scope == "global" else None
    for i, (shape, count) in enumerate(zip(shapes, counts, strict=True)):
        wiring = whole or Wiring([shape], [count], seed=seed, index=i, constraints=kept)
        part = i if whole else 0
        layers += [wb.SparseLinear(shape.n_in, shape.n_out, wiring=wiring, layer_id=part, owner=part == 0), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def check(model, kept):
    """Independently of ``Wiring.check``: from the dense matrices."""
    for wiring in wb.wirings(model):
        wiring.check()
        columns = itertools.pairwise(wiring.geometry.column_start)
        for part, (shape, (first, last)) in enumerate(zip(wiring.layers, columns, strict=True)):
            start, end = wiring.geometry.position_start[part : part + 2]
            here = torch.zeros(shape.n_in, shape.n_out)
            positions = wiring.positions()
            here.view(-1)[positions[(positions >= start) & (positions < end)] - start] = 1
            assert here.sum(0).max() <= (kept.max_fan_in or shape.n_in)
            assert here.sum(1).max() <= (kept.max_fan_out or shape.n_out)
            if kept.dale is not None:
                assert (wiring.layer_dense(part) * wiring.column_signs[first:last] >= 0).all()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_caps_and_signs_hold_after_every_step(implementation, data):
    sizes = data.draw(st.lists(st.integers(2, 9), min_size=2, max_size=4))
    cap = st.one_of(st.none(), st.integers(1, 4))
    kept = wb.Constraints(data.draw(cap), data.draw(cap), data.draw(st.sampled_from([None, 0.5, 0.8])))
    scope, share = data.draw(st.sampled_from(["global", "layer"])), data.draw(st.sampled_from([0.4, 0.8, 1.0]))
    model = network(sizes, kept, scope, share, data.draw(st.integers(0, 20)))
    optimizer = OPTIMIZERS[data.draw(st.sampled_from(sorted(OPTIMIZERS)))](model.parameters())
    method = METHODS[data.draw(st.sampled_from(sorted(METHODS)))](model, optimizer)
    budget = sum(w.budget for w in wb.wirings(model))
    check(model, kept)
    for _ in range(6):
        model(torch.randn(4, sizes[0])).square().mean().backward()
        info = method.step()
        method.zero_grad()
        check(model, kept)
        assert info.active == budget == sum(w.active for w in wb.wirings(model))


@pytest.mark.parametrize("name", METHODS)
def test_learning_goes_on_within_them_and_resumes_bit_for_bit(tmp_path, name):
    kept = wb.Constraints(max_fan_in=5, max_fan_out=8, dale=0.6)

    def start(seed):
        model = network([12, 16, 3], kept, seed=seed)
        return model, METHODS[name](model, OPTIMIZERS["momentum"](model.parameters()))

    def steps(model, method, count):
        x, y = task()
        rewired = 0
        for _ in range(count):
            F.cross_entropy(model(x), y).backward()
            rewired += method.step().rewired
            method.zero_grad()
        return rewired

    model, method = start(1)
    first = F.cross_entropy(model(task()[0]), task()[1]).item()
    rewired = steps(model, method, 13)
    wb.save(tmp_path / "kept.safetensors", method=method)
    rewired += steps(model, method, 12)
    assert F.cross_entropy(model(task()[0]), task()[1]).item() < first
    assert (rewired > 0) == (name != "fixed")
    other, other_method = start(2)
    wb.load(tmp_path / "kept.safetensors", method=other_method)
    steps(other, other_method, 12)
    check(other, kept)
    assert same(bits(model), bits(other))


def test_growth_by_gradient_takes_the_best_that_there_is_room_for():
    kept = wb.Constraints(max_fan_in=3, max_fan_out=2)
    layer = network([30, 20], kept, share=0.6)[0]
    wiring = layer.wiring
    positions = wiring.positions()
    survivors, dead = positions[::2].clone(), positions[1::2].clone()
    x = torch.randn(16, 30)
    wiring.watch = {}
    layer(x).square().sum().backward()
    ((source,),) = wiring.watch.values()
    score = source.block(0, 30).t().reshape(-1).abs()
    rows, columns = [0] * 20, [0] * 30
    for p in survivors.tolist():
        rows[p % 20] += 1
        columns[p // 20] += 1
    expected = set()
    for p in score.argsort(descending=True).tolist():
        free = p not in survivors and rows[p % 20] < 3 and columns[p // 20] < 2
        if free and len(expected) < dead.numel():
            expected.add(p)
            rows[p % 20] += 1
            columns[p // 20] += 1
    assert len(expected) == dead.numel()
    for block in (1, 64, 1 << 20):
        growth = Growth(wiring, survivors, dead, None, wiring.watch, 1)
        assert set(wb.grow.Gradient(block)(growth).tolist()) == expected


def test_growth_by_gradient_asks_for_the_right_sign():
    """An inhibitory input can only help where the gradient is positive."""
    kept = wb.Constraints(dale=0.5)
    model = network([20, 10], kept, share=0.3)
    (wiring,) = wb.wirings(model)
    method = wb.RigL(model, torch.optim.SGD(model.parameters(), lr=0.0), fraction=0.5, every=1)
    model(torch.randn(8, 20)).square().sum().backward()
    ((source,),) = wiring.watch.values()
    gradient = source.block(0, 20).t().reshape(-1)
    before = set(wiring.positions().tolist())
    method.step()
    born = [p for p in wiring.positions().tolist() if p not in before]
    assert len(born) > 10
    assert all(gradient[p] * wiring.column_signs[p // 10] < 0 for p in born)


def test_fused_steps_leave_constrained_wirings_alone():
    for kept, reason in ((wb.Constraints(max_fan_in=3), "caps or signs"), (wb.Constraints(dale=0.5), "caps or signs")):
        model = network([12, 16, 3], kept)
        for make in (wb.DeepR, wb.Fixed):
            assert reason in why_not_fused(model, make(model, torch.optim.SGD(model.parameters(), lr=0.1)))


def test_no_constraints_leave_no_trace():
    free = network([12, 16, 3], wb.Constraints(), share=0.2)
    (wiring,) = wb.wirings(free)
    assert not wiring.constrained
    assert torch.equal(wiring.packed_rows, Wiring(wiring.layers, wiring.initial_counts.tolist()).packed_rows)
    assert not any(name.endswith(("fan_caps", "column_signs")) for name in free.state_dict())
    assert "signs of neurons" not in str(wb.ledger(free))
    bound = network([12, 16, 3], wb.Constraints(dale=0.5), share=0.2)
    assert "signs of neurons" in str(wb.ledger(bound))
